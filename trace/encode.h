// Turns row structs into stored rows: texts become rows of the string table, histograms bytes. Internal to trace/.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>

#include "ulpscope/trace/columns.h"
#include "ulpscope/trace/histogram_code.h"
#include "ulpscope/trace/table_buffer.h"

namespace ulpscope::trace_detail {

// In bytes. An experiment, the longest text there is, has a few kilobytes, and comes from a file of at most 4 MiB.
inline constexpr size_t kLongestText = size_t{1} << 24;

// "2,3,4", and back; false where the text is none.
std::string shape_text(std::span<const int64_t> shape);
bool parse_shape(std::string_view text, std::vector<int64_t>& shape);

class Encoder {
 public:
  // Appends `row` to its table in `buffer`, and to strings and histograms what it needs there. Throws Error (failed) of a text that
  // is longer than kLongestText; what is no UTF-8 in one is U+FFFD there.
  template <typename Row>
  void add(const Row& row, TraceBuffer& buffer) {
    TableBuffer& table = buffer[Table<Row>::id];
    table.reserve(1);
    for_each_column<Row>([&](const auto& column, auto index) {
      const auto& field = column.get(row);
      using Field = std::remove_cvref_t<decltype(field)>;
      using Type = typename Storage<Field>::Type;
      if constexpr (std::is_same_v<Field, std::string>)
        table.set<Type>(index, intern(field, buffer));
      else if constexpr (std::is_same_v<Field, std::vector<int64_t>>)
        table.set<Type>(index, intern(shape_text(field), buffer));
      else if constexpr (std::is_same_v<Field, ExponentHistogram>)
        table.set<Type>(index, add_histogram(field, buffer));
      else
        table.set<Type>(index, static_cast<Type>(field));
    });
    table.end_row();
  }

 private:
  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;
  };

  uint32_t intern(std::string_view text, TraceBuffer& buffer);
  uint64_t add_histogram(const ExponentHistogram& histogram, TraceBuffer& buffer);

  std::unordered_map<std::string, uint32_t, Hash, std::equal_to<>> strings_;
  uint64_t string_end_ = 0, histogram_end_ = 0;
};

}  // namespace ulpscope::trace_detail
