// Exponent histograms as bytes: how traces store them, and how recorders keep them until they are written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "ulpscope/emulation/tensor_statistics.h"

namespace ulpscope {

// A histogram is nothing at all where it is empty; else its first and its last nonzero bin, one byte each, and the counts of the
// bins from one to the other as LEB128: seven bits a byte, the lowest first, the top bit set in all bytes but the last.
inline constexpr size_t kLargestHistogram = 2 + 10 * ExponentHistogram::kBins;
// Writes at most kLargestHistogram bytes; returns how many.
size_t encode_histogram(const ExponentHistogram& histogram, uint8_t* out);
// False where `bytes` is no encoded histogram. Bins must be zero before.
bool decode_histogram(std::span<const uint8_t> bytes, ExponentHistogram& histogram);
// The bins that such bytes are of: begin <= bin < end.
struct EncodedBins {
  size_t begin = 0, end = 0;
};
inline EncodedBins encoded_bins(std::span<const uint8_t> bytes) {
  return bytes.empty() ? EncodedBins{} : EncodedBins{bytes[0], bytes[1] + size_t{1}};
}

}  // namespace ulpscope
