// Reads the HDF5 form of a trace: one consistent set of committed rows at a time, column by column, checked. Throws Error
// (unreadable). Internal to trace/.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "ulpscope/base/error.h"
#include "ulpscope/base/hdf5/hdf5.h"
#include "ulpscope/trace/commit.h"
#include "ulpscope/trace/reader.h"
#include "ulpscope/trace/table_buffer.h"

namespace ulpscope::trace_detail {

// Rows [first, first + rows) of a table, and of stats also their histograms' bytes.
struct Block {
  const TableSpec* table = nullptr;
  uint64_t first = 0;
  size_t rows = 0;
  std::vector<std::vector<std::byte>> columns;  // empty where not asked for
  std::vector<uint8_t> histograms;
  uint64_t histograms_begin = 0;  // of the first row's bytes in the table

  template <typename T>
  T value(size_t column, size_t row) const {
    T value;
    std::memcpy(&value, columns[column].data() + row * sizeof(T), sizeof(T));
    return value;
  }
};

// An HDF5 file that is open for reading, and its datasets, shared by all readers of it in this process: HDF5 would share its caches
// between them anyway, and refreshing a dataset that is open twice reads stale indices (measured with 1.10.8).
struct OpenTrace {
  struct Column {
    hdf5::Dataset dataset, tail;  // opened when first read
    uint64_t extent = 0;
  };

  hdf5::File file;
  hdf5::Dataset commit, note;
  std::array<std::vector<Column>, kTables> columns;
  std::mutex mutex;  // of all the rest

  static std::shared_ptr<OpenTrace> open(const std::string& path);
};

class TraceFile {
 public:
  explicit TraceFile(const std::string& path);

  const std::string& path() const { return path_; }
  uint64_t schema_version() const { return schema_version_; }
  uint64_t rows(TableId table) const { return record_[table].rows; }
  WriterState writer_state() const;
  const std::string& note() const { return note_; }
  uint64_t file_bytes() const;

  // Takes over what has been committed since. True iff there is more.
  bool refresh();

  // Rows [first, first + count), which are committed. `histograms`: with the bytes of stats' histograms, else without that column.
  void read(TableId table, uint64_t first, size_t count, bool histograms, Block& block) const;
  // The rows of the steps in `range`, [first, last).
  std::pair<uint64_t, uint64_t> rows_of(TableId table, StepRange range) const;

  // An Error (unreadable) about a place in this file.
  Error damaged(const TableSpec& table, const ColumnSpec& column, uint64_t row, const std::string& what) const;

 private:
  CommitRecord read_record() const;
  void check(const CommitRecord& record) const;
  // The committed rows that are not in place; false where they did not stay as they were.
  bool read_tail(const CommitRecord& record, const TableSpec& table, TableBuffer& tail) const;
  const hdf5::Dataset& column(const TableSpec& table, size_t index) const;
  void read_column(TableId table, size_t column, uint64_t first, size_t count, std::byte* values) const;
  uint64_t step_at(TableId table, uint64_t row) const;

  std::string path_;
  uint64_t schema_version_ = 0;
  std::shared_ptr<OpenTrace> open_;
  CommitRecord record_;
  TraceBuffer tails_;  // the committed rows that are not in place
  std::string note_;
};

}  // namespace ulpscope::trace_detail
