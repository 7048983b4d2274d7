#include "ulpscope/trace/histogram_code.h"

#include <algorithm>

namespace ulpscope {

size_t encode_histogram(const ExponentHistogram& histogram, uint8_t* out) {
  // Eight bins at a time first: most are empty.
  const auto& bins = histogram.bins;
  constexpr int kBins = ExponentHistogram::kBins;
  const auto any = [&](int begin) {
    uint64_t bits = 0;
    for (int i = begin; i < std::min(begin + 8, kBins); ++i) bits |= bins[static_cast<size_t>(i)];
    return bits != 0;
  };
  int first = 0, last = (kBins - 1) / 8 * 8;
  while (first < kBins && !any(first)) first += 8;
  if (first >= kBins) return 0;
  while (!any(last)) last -= 8;
  last = std::min(last + 7, kBins - 1);
  while (bins[static_cast<size_t>(first)] == 0) ++first;
  while (bins[static_cast<size_t>(last)] == 0) --last;
  uint8_t* end = out;
  *end++ = static_cast<uint8_t>(first);
  *end++ = static_cast<uint8_t>(last);
  for (int i = first; i <= last; ++i) {
    uint64_t count = bins[static_cast<size_t>(i)];
    for (; count >= 0x80; count >>= 7) *end++ = static_cast<uint8_t>(count | 0x80);
    *end++ = static_cast<uint8_t>(count);
  }
  return static_cast<size_t>(end - out);
}

bool decode_histogram(std::span<const uint8_t> bytes, ExponentHistogram& histogram) {
  if (bytes.empty()) return true;
  if (bytes.size() < 3 || bytes[0] > bytes[1] || bytes[1] >= ExponentHistogram::kBins) return false;
  size_t at = 2;
  for (size_t bin = bytes[0]; bin <= bytes[1]; ++bin) {
    // Nearly all counts have one or two bytes.
    if (at + 1 < bytes.size() && (bytes[at] & bytes[at + 1] & 0x80) == 0) {
      const bool is_long = bytes[at] >= 0x80;
      histogram.bins[bin] = (bytes[at] & 0x7Fu) | (is_long ? uint64_t{bytes[at + 1]} << 7 : 0);
      at += is_long ? 2 : 1;
      continue;
    }
    uint64_t count = 0;
    for (int shift = 0;; shift += 7) {
      if (at == bytes.size() || shift > 63) return false;
      const uint8_t byte = bytes[at++];
      if (shift == 63 && byte > 1) return false;
      count |= uint64_t{byte & 0x7Fu} << shift;
      if (byte < 0x80) break;
    }
    histogram.bins[bin] = count;
  }
  return at == bytes.size();
}

}  // namespace ulpscope
