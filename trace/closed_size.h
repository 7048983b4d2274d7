// How large a trace will be once it is closed. Internal to trace/.
#pragma once

#include <array>
#include <cstdint>

#include "ulpscope/trace/table_buffer.h"

namespace ulpscope::trace_detail {

using RowCounts = std::array<uint64_t, kTables>;

// What a chunk takes beyond its values, about: an entry in its column's index, and the index.
inline constexpr uint64_t kBytesPerChunk = 640;

// True iff all `count` elements are the column's fill value: such a chunk need not exist.
bool is_all_fill(const std::byte* values, size_t count, const ColumnSpec& column);

// What the last, unfilled chunk of each column of a table takes in the file. Compresses it, as HDF5 would.
uint64_t last_chunk_bytes(const TableSpec& table, const TableBuffer& rows);

// Whether columns that are not compressed have a last, unfilled chunk: not where their rows hold fill values only.
bool has_plain_chunk(const TableSpec& table, const TableBuffer& rows);

// Of a trace that was measured when it had so many rows.
struct ClosedSize {
  uint64_t bytes = 0;       // without the free space in the file
  uint64_t file_bytes = 0;  // with it: it is never less
  RowCounts rows{};
  uint64_t magnitude_chunks = 0;  // of the columns of stats that are not compressed, as far as there are any

  // With rows added since, at most: as if they could not be compressed. `with_magnitudes`: how many rows of stats there are up to
  // the last that has them: what is not compressed there is magnitudes, and chunks of rows without any need not exist.
  uint64_t with(const RowCounts& rows_now, uint64_t with_magnitudes) const;
};

}  // namespace ulpscope::trace_detail
