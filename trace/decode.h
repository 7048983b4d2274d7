// Turns stored rows into row structs. Every value is checked before it is believed: enumerators, references to other tables, texts,
// histograms, and what must hold of a row as a whole (row_checks.h). Internal to trace/.
#pragma once

#include <algorithm>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ulpscope/trace/columns.h"
#include "ulpscope/trace/encode.h"
#include "ulpscope/trace/row_checks.h"
#include "ulpscope/trace/trace_file.h"

namespace ulpscope::trace_detail {

// The texts of a trace.
class Texts {
 public:
  // Reads those that `file` has beyond these. Throws Error (unreadable); the texts before the damage are kept.
  void read(const TraceFile& file);
  size_t size() const { return ends_.size(); }
  // Whether there is a text of this number, all bytes of it, and it is one: UTF-8, and not too long.
  bool has(uint32_t id) const {
    return id < ends_.size() && ends_[id] <= bytes_.size() && length(id) <= kLongestText && !broken_.contains(id);
  }
  // What a reference to a text that is not there refers to.
  std::string what_is_wrong(uint32_t id) const;
  std::string_view operator[](uint32_t id) const { return std::string_view(bytes_).substr(begin(id), length(id)); }

 private:
  void read_ends(const TraceFile& file);
  void read_bytes(const TraceFile& file);
  void check_new();
  uint64_t begin(uint32_t id) const { return id == 0 ? 0 : ends_[id - 1]; }
  uint64_t length(uint32_t id) const { return ends_[id] - begin(id); }

  std::vector<uint64_t> ends_;
  std::string bytes_;
  uint32_t checked_ = 0;       // texts before it were looked at
  std::set<uint32_t> broken_;  // that are no UTF-8
};

// Where a row's column of that name is among them.
template <typename Row>
constexpr size_t column_named(std::string_view name) {
  size_t found = 0;
  for_each_column<Row>([&](const auto& column, auto index) {
    if (column.name == name) found = index;
  });
  return found;
}

// Says as which enumerator one that a newer program added is read. Nothing: a row means nothing without it.
template <typename Enum>
constexpr std::optional<Enum> in_place_of_unknown() {
  if constexpr (std::is_same_v<Enum, OpKind> || std::is_same_v<Enum, OpFunction> || std::is_same_v<Enum, SettingKind> ||
                std::is_same_v<Enum, MetricKind>)
    return Enum::other;
  else if constexpr (std::is_same_v<Enum, EventKind>)
    return Enum::note;
  else if constexpr (std::is_same_v<Enum, CaptureFollow>)
    return Enum::none;
  else
    return std::nullopt;
}

// What the row's texts and shapes take in memory, each row having a copy.
template <typename Row>
uint64_t text_bytes(const Row& row) {
  uint64_t bytes = 0;
  for_each_column<Row>([&](const auto& column, auto) {
    const auto& field = column.get(row);
    using Field = std::remove_cvref_t<decltype(field)>;
    if constexpr (std::is_same_v<Field, std::string> || std::is_same_v<Field, std::vector<int64_t>>)
      bytes += field.size() * sizeof(field[0]);
  });
  return bytes;
}

// Rows of which readers hold a whole table in memory, and that have texts.
template <typename Row>
inline constexpr bool kIsHeldWithTexts =
    std::is_same_v<Row, OpInfo> || std::is_same_v<Row, TensorInfo> || std::is_same_v<Row, SettingInfo> ||
    std::is_same_v<Row, SourceInfo> || std::is_same_v<Row, ProductInfo> || std::is_same_v<Row, EventRow> ||
    std::is_same_v<Row, CaptureRow>;

// Counts what the texts of such a table's rows take.
class HeldTexts {
 public:
  // `bytes`: what others take beside them.
  explicit HeldTexts(uint64_t bytes = 0) : bytes_(bytes) {}
  // Throws Error (unreadable) where it is too much.
  template <typename Row>
  void add(const TraceFile& file, uint64_t number, const Row& row) {
    if constexpr (kIsHeldWithTexts<Row>) {
      bytes_ += text_bytes(row);
      if (bytes_ <= kMost) return;
      const TableSpec& table = spec(Table<Row>::id);
      const auto is_text = [](const ColumnSpec& column) { return column.kind == ValueKind::text; };
      throw file.damaged(table, *std::find_if(table.columns.begin(), table.columns.end(), is_text), number,
                         fmt::format("has, with the rows before it, texts of {} bytes; expected at most {}", bytes_, kMost));
    }
  }

 private:
  static constexpr uint64_t kMost = uint64_t{1} << 28;

  uint64_t bytes_;
};

// Where TensorRow's histogram is among its columns.
inline constexpr size_t kHistogramColumn = column_named<TensorRow>("histogram");
// UINT64_MAX where it is more. `begin`, `end`: the bins outside of which all are 0.
uint64_t total_of(const ExponentHistogram& histogram, size_t begin = 0, size_t end = ExponentHistogram::kBins);

class Decoder {
 public:
  // `ops`, `tensors`: how many rows of these tables other rows may refer to.
  Decoder(const TraceFile& file, const Texts& texts, uint64_t ops, uint64_t tensors)
      : file_(file), texts_(texts), ops_(ops), tensors_(tensors) {}

  // Row `row` of the block, whose histogram stays as it is where the block has none. Throws Error (unreadable).
  template <typename Row>
  void decode(const Block& block, size_t row, Row& out) const {
    decode_rows(block, row, std::span(&out, 1));
  }
  // Decodes the rows from `first` on, column by column.
  template <typename Row>
  void decode_rows(const Block& block, size_t first, std::span<Row> out) const;
  // The same, but what cannot be of a column is the value of a new row instead, and so are columns that are `lost`, of which the
  // block has some bytes. `lost` has then all of them.
  template <typename Row>
  void decode_around(const Block& block, size_t row, std::vector<bool>& lost, Row& out) const;

 private:
  template <typename Row, typename Column>
  void decode_column(const Block& block, size_t row, const Column& column, size_t index, Row& out) const;
  // Throws: the row's column of that name is not as expected.
  template <typename Row>
  [[noreturn, gnu::noinline, gnu::cold]] void fail_rule(const Block& block, size_t row, const Row& out, const char* name,
                                                        const char* expected) const;
  // Throws where fields of the row do not fit together.
  template <typename Row>
  void check_rules(const Block& block, size_t row, const Row& out) const;
  // Of table captures: the node that comes after that of the row before; 0 where there is none.
  uint32_t next_node(const Block& block, size_t row) const;

  const TraceFile& file_;
  const Texts& texts_;
  uint64_t ops_, tensors_;
};

template <typename Row, typename Column>
inline void Decoder::decode_column(const Block& block, size_t row, const Column& column, size_t index, Row& out) const {
  auto& field = column.get(out);
  using Field = std::remove_cvref_t<decltype(field)>;
  using Type = typename Storage<Field>::Type;
  const auto fail = [&](const std::string& what) {
    throw file_.damaged(*block.table, block.table->columns[index], block.row_number(row), what);
  };
  if constexpr (std::is_same_v<Field, ExponentHistogram>) {
    if (block.columns[index].empty()) return;
    field.bins.fill(0);
    if (!decode_histogram(block.histogram(index, row), field)) fail("has a damaged histogram");
  } else {
    const Type value = block.value<Type>(index, row);
    if constexpr (Storage<Field>::kind == ValueKind::text) {
      if (!texts_.has(value)) {
        if (!file_.lacks(*block.table, index)) fail(texts_.what_is_wrong(value));
        const Row unread{};
        field = column.get(unread);
        return;
      }
      if constexpr (std::is_same_v<Field, std::string>)
        field = texts_[value];
      else if (!parse_shape(texts_[value], field))
        fail("has a damaged shape");
    } else {
      if constexpr (std::is_enum_v<Field>) {
        if (value >= enumerators<Field>()) {
          if (!file_.is_newer()) fail(fmt::format("has the unknown value {}", value));
          if (!in_place_of_unknown<Field>())
            throw file_.unknown(*block.table, block.table->columns[index], block.row_number(row), value);
          field = *in_place_of_unknown<Field>();
          return;
        }
      }
      if constexpr (std::is_same_v<Field, bool>) {
        if (value > 1) fail(fmt::format("has the value {}; expected 0 or 1", value));
      }
      field = static_cast<Field>(value);
    }
  }
  if constexpr (std::is_integral_v<Field> && !std::is_same_v<Field, bool>) {
    if (column.refers == Refers::ops || column.refers == Refers::tensors) {
      const uint64_t limit = column.refers == Refers::ops ? ops_ : tensors_;
      const bool none = std::is_signed_v<Field> && field == static_cast<Field>(-1);
      if (!none && static_cast<uint64_t>(field) >= limit) fail(fmt::format("refers to row {} of {}", field, limit));
    }
  }
}

template <typename Row>
void Decoder::decode_around(const Block& block, size_t row, std::vector<bool>& lost, Row& out) const {
  const Row unread{};
  for_each_column<Row>([&](const auto& column, auto index) {
    try {
      if (!lost[index]) return decode_column(block, row, column, index, out);
    } catch (const Error&) {
      lost[index] = true;
    }
    column.get(out) = column.get(unread);
  });
  const auto keep_to = [&](const auto& rule) {
    if (rule.holds(out)) return;
    for_each_column<Row>([&](const auto& column, auto index) {
      if (column.name != std::string_view(rule.column)) return;
      lost[index] = true;
      column.get(out) = column.get(unread);
    });
  };
  std::apply([&](const auto&... rule) { (keep_to(rule), ...); }, Rules<Row>::all);
}

template <typename Row>
void Decoder::decode_rows(const Block& block, size_t first, std::span<Row> out) const {
  for_each_column<Row>([&](const auto& column, auto index) {
    for (size_t i = 0; i < out.size(); ++i) decode_column(block, first + i, column, index, out[i]);
  });
  for (size_t i = 0; i < out.size(); ++i) check_rules(block, first + i, out[i]);
}

template <typename Row>
void Decoder::fail_rule(const Block& block, size_t row, const Row& out, const char* name, const char* expected) const {
  const auto& columns = block.table->columns;
  const auto column = std::find_if(columns.begin(), columns.end(), [&](const ColumnSpec& spec) { return spec.name == name; });
  std::string value;
  for_each_column<Row>([&](const auto& candidate, auto) {
    const auto& field = candidate.get(out);
    using Field = std::remove_cvref_t<decltype(field)>;
    if (candidate.name != std::string_view(name)) return;
    if constexpr (std::is_arithmetic_v<Field>) value = fmt::format("has the value {}; ", field);
    if constexpr (std::is_enum_v<Field>) value = fmt::format("has the value {}; ", column->values[static_cast<size_t>(field)]);
    if constexpr (std::is_same_v<Field, ExponentHistogram>) value = fmt::format("has {} elements; ", total_of(field));
  });
  throw file_.damaged(*block.table, *column, block.row_number(row), fmt::format("{}expected {}", value, expected));
}

template <typename Row>
void Decoder::check_rules(const Block& block, size_t row, const Row& out) const {
  const auto check = [&](const char* name, const char* expected, bool holds) {
    if (!holds) fail_rule(block, row, out, name, expected);
  };
  std::apply([&](const auto&... rule) { (check(rule.column, rule.expected, rule.holds(out)), ...); }, Rules<Row>::all);
  if constexpr (std::is_same_v<Row, TensorRow>) {
    // Without histograms their column was not read.
    if (out.known == StatisticsLevel::values && !block.columns[kHistogramColumn].empty()) {
      const auto [begin, end] = encoded_bins(block.histogram(kHistogramColumn, row));
      check("histogram", "the finite nonzero elements",
            total_of(out.statistics.histogram, begin, end) == out.statistics.finite_nonzero());
    }
  }
  if constexpr (std::is_same_v<Row, CaptureRow>)
    check("node", "0, or one more than the row before has", out.node == 0 || out.node == next_node(block, row));
}

}  // namespace ulpscope::trace_detail
