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

class Decoder {
 public:
  explicit Decoder(const TraceFile& file) : file_(file) {}

  // Reads the texts that have been committed since. Throws Error (unreadable); the texts before the damage are kept.
  void load_texts();
  // How many rows of these tables other rows may refer to.
  void set_referable(uint64_t ops, uint64_t tensors) {
    ops_ = ops;
    tensors_ = tensors;
  }

  // Row `row` of the block. Throws Error (unreadable).
  template <typename Row>
  void decode(const Block& block, size_t row, Row& out) const;

 private:
  void load_ends();
  void load_bytes();
  std::string_view text(uint32_t id) const {
    const uint64_t begin = id == 0 ? 0 : string_ends_[id - 1];
    return std::string_view(string_bytes_).substr(begin, string_ends_[id] - begin);
  }

  const TraceFile& file_;
  uint64_t ops_ = 0, tensors_ = 0;
  std::vector<uint64_t> string_ends_;
  std::string string_bytes_;
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
      throw file_.damaged(*block.table, block.table->columns[index], block.first + row, what);
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
        if (value >= string_ends_.size() || string_ends_[value] > string_bytes_.size())
          fail(fmt::format("refers to text {} of {}", value, string_ends_.size()));
        if constexpr (std::is_same_v<Field, std::string>)
          field = text(value);
        else if (!parse_shape(text(value), field))
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
