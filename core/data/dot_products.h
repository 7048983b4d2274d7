// Files of dot products, to compute them again: CSV (with gzip too) or HDF5.
//
// CSV: each row has a[0..k-1], b[0..k-1], c and perhaps the result d, as FP32 bit patterns of up to 8 hexadecimal digits; an odd
// number of fields has no d. Lines that begin with # are comments. A first row of names only is passed over; a name begins with a
// letter or _ and is not 8 hexadecimal digits (so a, b0 and result are names there, and 3f800000, ffffffff and 0 are not).
//
// HDF5: data sets a and b [rows, k], c [rows], perhaps d [rows]; for factors with scales, their encodings a_scale and b_scale
// [rows, scales of a row]. Floating-point data sets hold values, which FP32 must hold. Those of unsigned integers hold encodings,
// of the input's format in a and b and of the output's in c and d, and are as wide as these in memory: 8 bits for formats of 8 bits
// or fewer (in the low bits), 16 for fp16 and bf16, 32 for fp32 and for tf32, whose encodings are FP32's. Signed integers and other
// widths are errors.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ulpscope/emulation/tensor_core.h"

namespace ulpscope {

struct DotProduct {
  std::string place;           // for messages: "vectors.csv:12"
  std::vector<uint32_t> a, b;  // FP32 bit patterns, as are c and the result
  uint32_t c = 0;
  std::optional<uint32_t> result;
  std::vector<uint8_t> a_scales, b_scales;
};

// Calls take with each row of the dot products that `core` is to compute. The file is read once, from its beginning, so it can be
// a pipe; "-" is standard input. HDF5 data need a file. Throws Error: unreadable where the file is none of this kind, usage where
// it has no scales, or has them, against the model.
void read_dot_products(const std::string& path, const TensorCore& core, const std::function<void(const DotProduct&)>& take);

}  // namespace ulpscope
