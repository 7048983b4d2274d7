#include "ulpscope/trace/encode.h"

#include <charconv>

#include "ulpscope/base/error.h"
#include "ulpscope/base/text.h"

namespace ulpscope::trace_detail {

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

std::string shape_text(std::span<const int64_t> shape) {
  std::string text;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) text += ',';
    text += std::to_string(shape[i]);
  }
  return text;
}

bool parse_shape(std::string_view text, std::vector<int64_t>& shape) {
  shape.clear();
  if (text.empty()) return true;
  const char* at = text.data();
  const char* const end = at + text.size();
  for (;;) {
    int64_t size = 0;
    const auto [next, error] = std::from_chars(at, end, size);
    if (error != std::errc() || size < 0) return false;
    shape.push_back(size);
    if (next == end) return true;
    if (*next != ',') return false;
    at = next + 1;
  }
}

uint32_t Encoder::intern(std::string_view text, TraceBuffer& buffer) {
  if (const auto found = strings_.find(text); found != strings_.end()) return found->second;
  // Whatever a producer calls things, and whatever files are called, what is written can be read.
  if (!is_utf8(text)) return intern(valid_utf8(text), buffer);
  if (text.size() > kLongestText)
    throw failed_error("a text of {} bytes cannot be recorded, expected at most {}", text.size(), kLongestText);
  const auto id = static_cast<uint32_t>(strings_.size());
  strings_.emplace(text, id);
  buffer[TableId::string_bytes].append_bytes(text.data(), text.size());
  string_end_ += text.size();
  TableBuffer& strings = buffer[TableId::strings];
  strings.reserve(1);
  strings.set<uint64_t>(0, string_end_);
  strings.end_row();
  return id;
}

uint64_t Encoder::add_histogram(const ExponentHistogram& histogram, TraceBuffer& buffer) {
  uint8_t bytes[kLargestHistogram];
  const size_t size = encode_histogram(histogram, bytes);
  buffer[TableId::histograms].append_bytes(bytes, size);
  return histogram_end_ += size;
}

}  // namespace ulpscope::trace_detail
