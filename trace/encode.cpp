#include "ulpscope/trace/encode.h"

#include <charconv>

#include "ulpscope/base/error.h"
#include "ulpscope/base/text.h"

namespace ulpscope::trace_detail {

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
