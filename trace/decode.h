// Turns stored rows into row structs. Every value is checked before it is believed: enumerators, references to other tables, texts,
// histograms. Internal to trace/.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ulpscope/trace/columns.h"
#include "ulpscope/trace/encode.h"
#include "ulpscope/trace/trace_file.h"

namespace ulpscope::trace_detail {

// The texts of a trace.
class Texts {
 public:
  // Reads those that `file` has beyond these. Throws Error (unreadable); the texts before the damage are kept.
  void read(const TraceFile& file);
  size_t size() const { return ends_.size(); }
  // Whether there is a text of this number, all bytes of it.
  bool has(uint32_t id) const { return id < ends_.size() && ends_[id] <= bytes_.size(); }
  std::string_view operator[](uint32_t id) const {
    const uint64_t begin = id == 0 ? 0 : ends_[id - 1];
    return std::string_view(bytes_).substr(begin, ends_[id] - begin);
  }

 private:
  void read_ends(const TraceFile& file);
  void read_bytes(const TraceFile& file);

  std::vector<uint64_t> ends_;
  std::string bytes_;
};

class Decoder {
 public:
  // `ops`, `tensors`: how many rows of these tables other rows may refer to.
  Decoder(const TraceFile& file, const Texts& texts, uint64_t ops, uint64_t tensors)
      : file_(file), texts_(texts), ops_(ops), tensors_(tensors) {}

  // Row `row` of the block. Throws Error (unreadable).
  template <typename Row>
  void decode(const Block& block, size_t row, Row& out) const;

 private:
  const TraceFile& file_;
  const Texts& texts_;
  uint64_t ops_, tensors_;
};

template <typename Row>
void Decoder::decode(const Block& block, size_t row, Row& out) const {
  for_each_column<Row>([&](const auto& column, auto index) {
    auto& field = column.get(out);
    using Field = std::remove_cvref_t<decltype(field)>;
    using Type = typename Storage<Field>::Type;
    if (column.since > file_.schema_version()) {
      if constexpr (Storage<Field>::kind == ValueKind::number && std::is_arithmetic_v<Field>)
        field = static_cast<Field>(column.fill);
      else
        field = Field();
      return;
    }
    const auto fail = [&](const std::string& what) {
      throw file_.damaged(*block.table, block.table->columns[index], block.row_number(row), what);
    };
    if constexpr (std::is_same_v<Field, ExponentHistogram>) {
      field.bins.fill(0);
      if (block.columns[index].empty()) return;
      const uint64_t begin = row == 0 ? block.histograms_begin : block.value<uint64_t>(index, row - 1);
      const uint64_t end = block.value<uint64_t>(index, row);
      const std::span bytes = std::span(block.histograms).subspan(begin - block.histograms_begin, end - begin);
      if (!decode_histogram(bytes, field)) fail("has a damaged histogram");
    } else {
      const Type value = block.value<Type>(index, row);
      if constexpr (Storage<Field>::kind == ValueKind::text) {
        if (!texts_.has(value)) fail(fmt::format("refers to text {} of {}", value, texts_.size()));
        if constexpr (std::is_same_v<Field, std::string>)
          field = texts_[value];
        else if (!parse_shape(texts_[value], field))
          fail("has a damaged shape");
      } else {
        if constexpr (std::is_enum_v<Field>) {
          if (value >= enumerators<Field>()) fail(fmt::format("has the unknown value {}", value));
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
  });
}

}  // namespace ulpscope::trace_detail
