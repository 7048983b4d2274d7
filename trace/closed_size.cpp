#include "ulpscope/trace/closed_size.h"

#include <zlib.h>

#include <algorithm>
#include <string>

namespace ulpscope::trace_detail {

namespace {

std::string fill_pattern(const ColumnSpec& column) {
  const auto bytes = [&](auto value) { return std::string(reinterpret_cast<const char*>(&value), sizeof(value)); };
  switch (column.type) {
    case ElementType::u8:
      return bytes(static_cast<uint8_t>(column.fill));
    case ElementType::u32:
      return bytes(static_cast<uint32_t>(column.fill));
    case ElementType::i32:
      return bytes(static_cast<int32_t>(column.fill));
    case ElementType::u64:
      return bytes(static_cast<uint64_t>(column.fill));
    case ElementType::i64:
      return bytes(static_cast<int64_t>(column.fill));
    case ElementType::f32:
      return bytes(static_cast<float>(column.fill));
    default:
      return bytes(column.fill);
  }
}

// HDF5's filters shuffle and deflate, of a chunk of which `count` elements are given and the others are fill values.
uint64_t compressed_bytes(const std::byte* values, size_t count, size_t chunk_rows, const ColumnSpec& column) {
  const std::string fill = fill_pattern(column);
  const size_t size = fill.size();
  std::vector<Bytef> shuffled(chunk_rows * size);
  for (size_t i = 0; i < chunk_rows; ++i) {
    const char* const element = i < count ? reinterpret_cast<const char*>(values) + i * size : fill.data();
    for (size_t k = 0; k < size; ++k) shuffled[k * chunk_rows + i] = static_cast<Bytef>(element[k]);
  }
  uLongf bytes = compressBound(static_cast<uLong>(shuffled.size()));
  std::vector<Bytef> compressed(bytes);
  constexpr int kLevel = 1;
  if (compress2(compressed.data(), &bytes, shuffled.data(), static_cast<uLong>(shuffled.size()), kLevel) != Z_OK) {
    return shuffled.size();
  }
  return std::min<uint64_t>(bytes, shuffled.size());
}

uint64_t chunks(uint64_t rows, const TableSpec& table) { return (rows + table.chunk_rows - 1) / table.chunk_rows; }

}  // namespace

bool is_all_fill(const std::byte* values, size_t count, const ColumnSpec& column) {
  const std::string pattern = fill_pattern(column);
  const size_t bytes = count * pattern.size();
  // Equal to the pattern at the start, and to itself shifted by one element.
  return std::memcmp(values, pattern.data(), pattern.size()) == 0 &&
         std::memcmp(values, values + pattern.size(), bytes - pattern.size()) == 0;
}

uint64_t last_chunk_bytes(const TableSpec& table, const TableBuffer& rows) {
  if (rows.rows() == 0) return 0;
  uint64_t bytes = 0;
  for (size_t i = 0; i < table.columns.size(); ++i) {
    const ColumnSpec& column = table.columns[i];
    if (is_all_fill(rows.column(i), rows.rows(), column)) continue;
    bytes += kBytesPerChunk + (column.compress ? compressed_bytes(rows.column(i), rows.rows(), table.chunk_rows, column)
                                               : table.chunk_rows * size_of(column.type));
  }
  return bytes;
}

bool has_plain_chunk(const TableSpec& table, const TableBuffer& rows) {
  for (size_t i = 0; i < table.columns.size(); ++i)
    if (!table.columns[i].compress && rows.rows() > 0 && !is_all_fill(rows.column(i), rows.rows(), table.columns[i])) return true;
  return false;
}

uint64_t ClosedSize::with(const RowCounts& rows_now, uint64_t with_magnitudes) const {
  uint64_t sum = bytes;
  for (size_t t = 0; t < kTables; ++t) {
    const TableSpec& table = trace_schema()[t];
    const uint64_t added = rows_now[t] - rows[t], new_chunks = chunks(rows_now[t], table) - chunks(rows[t], table);
    uint64_t new_plain_chunks = new_chunks;
    if (table.id == TableId::stats)
      new_plain_chunks = with_magnitudes > rows[t] ? chunks(with_magnitudes, table) - magnitude_chunks : 0;
    for (const ColumnSpec& column : table.columns) {
      // What is not compressed takes whole chunks.
      sum += column.compress ? added * size_of(column.type) + new_chunks * kBytesPerChunk
                             : new_plain_chunks * (table.chunk_rows * size_of(column.type) + kBytesPerChunk);
    }
  }
  return std::max(sum, file_bytes);
}

}  // namespace ulpscope::trace_detail
