// Files of dot products, to compute them again: CSV (with gzip too) or HDF5.
//
// CSV: each row has a[0..k-1], b[0..k-1], c and perhaps the result d, as FP32 bit patterns of up to 8 hexadecimal digits; an odd
// number of fields has no d. Lines that begin with # are comments.
// HDF5: data sets a and b [rows, k], c [rows], perhaps d [rows], of numbers that FP32 holds; for factors with scales, their
// encodings a_scale and b_scale [rows, scales of a row].
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace ulpscope {

struct DotProduct {
  std::string place;           // for messages: "vectors.csv:12"
  std::vector<uint32_t> a, b;  // FP32 bit patterns, as are c and the result
  uint32_t c = 0;
  std::optional<uint32_t> result;
  std::vector<uint8_t> a_scales, b_scales;
};

// Calls take with each row. Throws Error: unreadable where the file is none of this kind, usage where it has no scales, or has
// them, against `has_scales`.
void read_dot_products(const std::string& path, bool has_scales, const std::function<void(const DotProduct&)>& take);

}  // namespace ulpscope
