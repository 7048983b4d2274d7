#include "ulpscope/trace/decode.h"

namespace ulpscope::trace_detail {

namespace {

// Tables that are held in memory are refused beyond this.
constexpr uint64_t kMostTexts = uint64_t{1} << 24;
constexpr uint64_t kMostBytes = uint64_t{1} << 30;

}  // namespace

void Decoder::load_texts() {
  file_.check_size(TableId::strings, kMostTexts);
  file_.check_size(TableId::string_bytes, kMostBytes);
  try {
    load_ends();
  } catch (const Error&) {
    load_bytes();
    throw;
  }
  load_bytes();
}

void Decoder::load_ends() {
  const TableSpec& strings = spec(TableId::strings);
  Block block;
  while (string_ends_.size() < file_.rows(TableId::strings)) {
    const uint64_t first = string_ends_.size();
    const size_t count = file_.rows_in_chunk(TableId::strings, first);
    file_.read(TableId::strings, first, count, false, block);
    for (size_t i = 0; i < count; ++i) {
      const auto end = block.value<uint64_t>(0, i);
      if (end < (string_ends_.empty() ? 0 : string_ends_.back()) || end > file_.rows(TableId::string_bytes))
        throw file_.damaged(strings, strings.columns[0], first + i, "ends outside the texts");
      string_ends_.push_back(end);
    }
  }
}

void Decoder::load_bytes() {
  Block block;
  while (string_bytes_.size() < file_.rows(TableId::string_bytes)) {
    const uint64_t first = string_bytes_.size();
    const size_t count = file_.rows_in_chunk(TableId::string_bytes, first);
    file_.read(TableId::string_bytes, first, count, false, block);
    string_bytes_.append(reinterpret_cast<const char*>(block.columns[0].data()), count);
  }
}

}  // namespace ulpscope::trace_detail
