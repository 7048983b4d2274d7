// Rows of one table in memory, column by column, in the form in which they are stored. Internal to trace/.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "ulpscope/trace/schema.h"

namespace ulpscope::trace_detail {

class TableBuffer {
 public:
  explicit TableBuffer(const TableSpec& table) : sizes_(table.columns.size()), columns_(table.columns.size()) {
    for (size_t i = 0; i < sizes_.size(); ++i) sizes_[i] = size_of(table.columns[i].type);
    row_bytes_ = table.row_bytes();
  }

  size_t rows() const { return rows_; }
  size_t bytes() const { return rows_ * row_bytes_; }
  void clear() { rows_ = 0; }

  // Makes room for `count` more rows.
  void reserve(size_t count) {
    if (rows_ + count <= capacity_) return;
    const size_t capacity = std::max({rows_ + count, capacity_ * 2, size_t{64}});
    for (size_t i = 0; i < columns_.size(); ++i) {
      auto grown = std::make_unique_for_overwrite<std::byte[]>(capacity * sizes_[i]);
      if (rows_ > 0) std::memcpy(grown.get(), columns_[i].get(), rows_ * sizes_[i]);
      columns_[i] = std::move(grown);
    }
    capacity_ = capacity;
  }

  // A row is reserved, set column by column, and ended.
  template <typename T>
  void set(size_t column, T value) {
    std::memcpy(columns_[column].get() + rows_ * sizeof(T), &value, sizeof(T));
  }
  void end_row() { ++rows_; }

  // Rows of a table of bytes.
  void append_bytes(const void* bytes, size_t count) {
    reserve(count);
    if (count > 0) std::memcpy(columns_[0].get() + rows_, bytes, count);
    rows_ += count;
  }

  // Rows [first, first + count) of `other`, a buffer of the same table.
  void append(const TableBuffer& other, size_t first, size_t count) {
    reserve(count);
    for (size_t i = 0; i < columns_.size(); ++i) {
      std::memcpy(columns_[i].get() + rows_ * sizes_[i], other.columns_[i].get() + first * sizes_[i], count * sizes_[i]);
    }
    rows_ += count;
  }

  // `count` more rows, to be filled in through `column`.
  void extend(size_t count) {
    reserve(count);
    rows_ += count;
  }

  std::byte* column(size_t index) { return columns_[index].get(); }
  const std::byte* column(size_t index) const { return columns_[index].get(); }
  size_t element_size(size_t column) const { return sizes_[column]; }
  size_t column_count() const { return columns_.size(); }

 private:
  std::vector<size_t> sizes_;
  std::vector<std::unique_ptr<std::byte[]>> columns_;
  size_t row_bytes_ = 0, rows_ = 0, capacity_ = 0;
};

// One buffer for each table.
class TraceBuffer {
 public:
  TraceBuffer() {
    tables_.reserve(kTables);
    for (const TableSpec& table : trace_schema()) tables_.emplace_back(table);
  }
  TableBuffer& operator[](TableId id) { return tables_[static_cast<size_t>(id)]; }
  const TableBuffer& operator[](TableId id) const { return tables_[static_cast<size_t>(id)]; }
  size_t bytes() const {
    size_t bytes = 0;
    for (const TableBuffer& table : tables_) bytes += table.bytes();
    return bytes;
  }
  void append(const TraceBuffer& other) {
    for (size_t i = 0; i < kTables; ++i) {
      if (other.tables_[i].rows() > 0) tables_[i].append(other.tables_[i], 0, other.tables_[i].rows());
    }
  }
  void clear() {
    for (TableBuffer& table : tables_) table.clear();
  }

 private:
  std::vector<TableBuffer> tables_;
};

}  // namespace ulpscope::trace_detail
