#include "ulpscope/trace/decode.h"

#include "ulpscope/base/text.h"

namespace ulpscope::trace_detail {

namespace {

// Tables that are held in memory are refused beyond this.
constexpr uint64_t kMostTexts = uint64_t{1} << 24;
constexpr uint64_t kMostBytes = uint64_t{1} << 30;

}  // namespace

uint64_t total_of(const ExponentHistogram& histogram, size_t begin, size_t end) {
  // Where no count has one of the eight highest bits, 255 of them add up without a carry out.
  static_assert(ExponentHistogram::kBins < 256);
  uint64_t total = 0, bits = 0;
  const std::span bins = std::span(histogram.bins).subspan(begin, end - begin);
  for (const uint64_t count : bins) {
    total += count;
    bits |= count;
  }
  if (bits >> 56 != 0) {
    total = 0;
    for (const uint64_t count : bins) total = sum_of({total, count});
  }
  return sum_of({total, histogram.below_range, histogram.above_range});
}

uint32_t Decoder::next_node(const Block& block, size_t row) const {
  constexpr size_t kNode = column_named<CaptureRow>("node");
  const uint64_t number = block.row_number(row);
  if (number == 0) return 0;
  uint32_t before = 0;
  if (row > 0)
    before = block.value<uint32_t>(kNode, row - 1);
  else
    file_.read_column(TableId::captures, kNode, number - 1, 1, reinterpret_cast<std::byte*>(&before));
  return before + 1;
}

void Texts::read(const TraceFile& file) {
  file.check_size(TableId::strings, kMostTexts);
  file.check_size(TableId::string_bytes, kMostBytes);
  try {
    read_ends(file);
  } catch (const Error&) {
    read_bytes(file);
    check_new();
    throw;
  }
  read_bytes(file);
  check_new();
}

std::string Texts::what_is_wrong(uint32_t id) const {
  if (id >= size()) return fmt::format("refers to text {} of {}", id, size());
  if (length(id) > kLongestText)
    return fmt::format("refers to text {}, of {} bytes; expected at most {}", id, length(id), kLongestText);
  return fmt::format("refers to text {}, which is damaged", id);
}

void Texts::check_new() {
  for (; checked_ < ends_.size() && ends_[checked_] <= bytes_.size(); ++checked_)
    if (!is_utf8((*this)[checked_])) broken_.insert(checked_);
}

void Texts::read_ends(const TraceFile& file) {
  const TableSpec& strings = spec(TableId::strings);
  Block block;
  while (ends_.size() < file.rows(TableId::strings)) {
    const uint64_t first = ends_.size();
    const size_t count = file.rows_in_chunk(TableId::strings, first);
    file.read(TableId::strings, first, count, false, block);
    for (size_t i = 0; i < count; ++i) {
      const auto end = block.value<uint64_t>(0, i);
      if (end < (ends_.empty() ? 0 : ends_.back()) || end > file.rows(TableId::string_bytes))
        throw file.damaged(strings, strings.columns[0], first + i, "ends outside the texts");
      ends_.push_back(end);
    }
  }
}

void Texts::read_bytes(const TraceFile& file) {
  Block block;
  while (bytes_.size() < file.rows(TableId::string_bytes)) {
    const uint64_t first = bytes_.size();
    const size_t count = file.rows_in_chunk(TableId::string_bytes, first);
    file.read(TableId::string_bytes, first, count, false, block);
    bytes_.append(reinterpret_cast<const char*>(block.columns[0].data()), count);
  }
}

}  // namespace ulpscope::trace_detail
