// The tensor rows of one file in memory, packed: for each column and segment of rows one value where all are the same, else small
// offsets from the smallest, or the values as they are, or in FP32 where that holds them. What is needed is read from the file, and
// kept as far as the run set's RowCache has room. Committed rows never change, so all snapshots of a run set share it. Internal to
// trace/.
#pragma once

#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "ulpscope/trace/row_cache.h"
#include "ulpscope/trace/trace_file.h"

namespace ulpscope::trace_detail {

// The values of a column in the rows of one segment.
struct PackedColumn : Cached {
  uint64_t base = 0;
  uint8_t width = 0;       // bytes of a stored offset; 0: all values are `base`
  bool is_single = false;  // offsets are values in FP32, of a column in FP64
  std::unique_ptr<std::byte[]> offsets;

  // The value in a row of a column of integers.
  uint64_t bits(size_t row) const {
    if (width == 0) return base;
    uint64_t offset = 0;
    std::memcpy(&offset, offsets.get() + row * width, width);
    return base + offset;
  }
};

// Where the rows of each tensor are within a segment.
struct SegmentIndex : Cached {
  std::vector<uint32_t> tensors;  // that have rows, ascending
  std::vector<uint16_t> begin;    // in `order`, of each, and the end
  std::vector<uint16_t> order;    // rows by tensor, ascending

  std::span<const uint16_t> rows_of(uint32_t tensor) const;
};

struct HistogramBytes : Cached {
  uint64_t begin = 0;  // of the first row's bytes in the table
  std::vector<uint8_t> bytes_of_rows;
};

class StatsStore {
 public:
  // `part`: a number for the file among those that share the cache.
  StatsStore(std::shared_ptr<RowCache> cache, uint32_t part) : cache_(std::move(cache)), part_(part) {}

  // As TraceFile::read of table stats.
  void read(const TraceFile& file, uint64_t first, size_t count, bool histograms, Block& block);
  // Some rows of one segment, ascending offsets in it.
  void gather(const TraceFile& file, uint64_t segment, std::span<const uint16_t> rows, bool histograms, Block& block);
  // The values of a column in rows [first, first + count).
  void read_column(const TraceFile& file, size_t column, uint64_t first, size_t count, std::byte* values);
  void gather_column(const TraceFile& file, size_t column, uint64_t segment, std::span<const uint16_t> rows, std::byte* values);
  // The rows of the steps in `range`, [first, last).
  std::pair<uint64_t, uint64_t> rows_of(const TraceFile& file, StepRange range);
  // Those of a tensor in one segment, which begins at row segment * kSegmentRows.
  std::shared_ptr<const SegmentIndex> index(const TraceFile& file, uint64_t segment);
  // Reads everything, until no more is kept.
  void load(const TraceFile& file);

  static constexpr uint64_t kSegmentRows = 8192;

 private:
  std::shared_ptr<const PackedColumn> column(const TraceFile& file, size_t column, uint64_t segment);
  std::shared_ptr<const HistogramBytes> histogram_bytes(const TraceFile& file, uint64_t segment);
  uint64_t step_at(const TraceFile& file, uint64_t row);

  std::shared_ptr<RowCache> cache_;
  uint32_t part_;
};

}  // namespace ulpscope::trace_detail
