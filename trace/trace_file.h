// Reads the HDF5 form of a trace: one consistent set of committed rows, column by column, checked. Throws Error (unreadable).
// Internal to trace/.
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <ctime>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ulpscope/base/error.h"
#include "ulpscope/base/hdf5/hdf5.h"
#include "ulpscope/trace/commit.h"
#include "ulpscope/trace/snapshot.h"
#include "ulpscope/trace/table_buffer.h"

namespace ulpscope::trace_detail {

// Rows [first, first + rows) of a table, or those at `places` behind `first`, and of stats also their histograms' bytes.
struct Block {
  const TableSpec* table = nullptr;
  uint64_t first = 0;
  size_t rows = 0;
  std::vector<uint16_t> places;
  std::vector<std::vector<std::byte>> columns;  // empty where not asked for
  std::vector<uint8_t> histograms;
  uint64_t histograms_begin = 0;  // of the first row's bytes in the table

  template <typename T>
  T value(size_t column, size_t row) const {
    T value;
    std::memcpy(&value, columns[column].data() + row * sizeof(T), sizeof(T));
    return value;
  }
  // The bytes of a row's histogram, whose ends the column of that number has.
  std::span<const uint8_t> histogram(size_t column, size_t row) const {
    const uint64_t begin = row == 0 ? histograms_begin : value<uint64_t>(column, row - 1);
    return std::span(histograms).subspan(begin - histograms_begin, value<uint64_t>(column, row) - begin);
  }
  // In the table.
  uint64_t row_number(size_t row) const { return first + (places.empty() ? row : places[row]); }
};

// An HDF5 file that is open for reading, and its datasets, shared by all readers of it in this process: HDF5 would share its caches
// between them anyway, and refreshing a dataset that is open twice reads stale indices (measured with 1.10.8).
struct OpenTrace {
  struct Column {
    hdf5::Dataset dataset, tail;  // opened when first read
    uint64_t extent = 0;
    // Why it cannot be opened. HDF5 refuses a header whose checksum is wrong once, and has it in its cache the next time (1.10.8).
    std::optional<Error> refused;
  };
  // A column that a table has in this file.
  struct StoredColumn {
    std::string name;
    std::optional<size_t> place;  // among those that this program knows
    hdf5::Dataset unknown_tail;   // of one that it does not know; opened when first read
  };

  hdf5::File file;
  hdf5::Dataset commit, note;
  std::array<std::vector<Column>, kTables> columns;
  uint64_t minor = 0;                                     // of its schema
  size_t commit_words = 0;                                // of one commit record
  std::array<std::vector<StoredColumn>, kTables> stored;  // in their order in the file; none of a table that it does not have
  // Of the file once nobody writes it any more: it stays so.
  struct Stamp {
    off_t bytes = 0;
    timespec changed{};
  };
  std::optional<Stamp> ended;
  std::atomic<bool> is_changed = false;  // it did not: nothing is read any more
  std::mutex mutex;                      // of all the rest

  // Messages call the file `name`.
  static std::shared_ptr<OpenTrace> open(const std::string& path, const std::string& name);
};

inline constexpr uint64_t kLargestStep = uint64_t{1} << 62;

enum class OnDamage : uint8_t {
  refuse,       // a damaged tail is an error at once
  read_around,  // it is one when its rows are read
};

// What a trace file holds up to a commit. It never changes: rows that are committed stay as they are, and those that were in tails
// are held. Any number of threads may read it.
class TraceFile {
 public:
  // As committed now. `name`: what messages call the file.
  TraceFile(const std::string& path, const std::string& name, OnDamage on_damage = OnDamage::refuse);

  const std::string& path() const { return name_; }
  // The minor version of its schema, and whether this program knows less than that.
  uint64_t schema_minor() const { return open_->minor; }
  bool is_newer() const { return open_->minor > kSchemaMinor; }
  // A newer file has this and this program does not know it, as far as there are rows of it.
  struct Unread {
    uint64_t tables = 0, columns = 0;
  };
  Unread unread() const;
  // Whether the file is older than that column: its values are then ColumnSpec::absent.
  bool lacks(const TableSpec& table, size_t column) const { return table.columns[column].since > open_->minor; }
  uint64_t rows(TableId table) const { return record_[table].rows; }
  // Rows from `first` to the end of its chunk, or to the last one.
  size_t rows_in_chunk(TableId table, uint64_t first) const;
  // Throws Error (unreadable) where so many rows of the table are to be held in memory and are more than that.
  void check_count(TableId table, uint64_t rows, uint64_t most) const;
  void check_size(TableId table, uint64_t most) const { check_count(table, rows(table), most); }
  // How the writer stands now.
  WriterState writer_state() const;
  const std::string& note() const { return note_; }
  uint64_t file_bytes() const;
  // What was found to be missing and is read around, a line each.
  const std::vector<std::string>& losses() const { return losses_; }

  // Throws Error (unreadable) where its path no longer leads to it, and where it was changed after its writer had ended: then
  // nothing more can be read of it.
  void check_same_file() const;
  // The file as committed now, where that is more, or else nothing. Throws as check_same_file does.
  std::shared_ptr<const TraceFile> newer() const;

  // Rows [first, first + count), which are committed. `histograms`: with the bytes of stats' histograms, else without that column.
  void read(TableId table, uint64_t first, size_t count, bool histograms, Block& block) const;
  // Of one column.
  void read_column(TableId table, size_t column, uint64_t first, size_t count, std::byte* values) const;
  // The number after that of the last step, or 0.
  uint64_t steps_end() const;
  // Whether a row of `steps` is of it. Throws Error (unreadable) where those are not sorted.
  bool has_step(uint64_t step) const;
  // The rows of the steps in `range`, [first, last).
  std::pair<uint64_t, uint64_t> rows_of(TableId table, StepRange range) const;

  // Throws Error (unreadable) where the histogram of row `row` of stats cannot have the bytes [begin, end).
  void check_histogram(uint64_t row, uint64_t begin, uint64_t end) const;
  // An Error (unreadable) about a row whose step is too large, or behind that of the row before, or else one that `steps` does not
  // have.
  Error misplaced(const TableSpec& table, uint64_t row, uint64_t step, std::optional<uint64_t> before) const;
  // An Error (unreadable) about a place in this file.
  Error damaged(const TableSpec& table, const ColumnSpec& column, uint64_t row, const std::string& what) const;
  // An Error (unreadable) about an enumerator of a newer file, without which its row means nothing.
  Error unknown(const TableSpec& table, const ColumnSpec& column, uint64_t row, uint64_t value) const;

 private:
  // Takes over what has been committed since. True iff there is more.
  bool advance();
  // Finds out what the file has, by its minor version.
  void read_layout();
  std::vector<OpenTrace::StoredColumn> stored_columns(const TableSpec& table) const;
  void check_shape(const hdf5::Dataset& dataset, const std::vector<uint64_t>& expected) const;
  CommitRecord read_record() const;
  void check(const CommitRecord& record) const;
  // Whether the rows that are said to be in place are: by the extents of the columns' datasets, and by how many chunks were
  // written. Where one may read around damage, `record` keeps those that may be.
  void check_in_place(CommitRecord& record);
  // Of so many rows, those without the last ones that hold fill values in every column of the last chunk: nobody wrote those.
  uint64_t rows_written(const TableSpec& table, uint64_t rows) const;
  // How many of the chunks of the first `rows` rows are there, from the first on.
  uint64_t whole_chunks(const TableSpec& table, uint64_t rows) const;
  // The tails of a closed trace hold the rows of each last, unfilled chunk once more: takes those that are whole instead.
  void use_second_copies(CommitRecord& record) const;
  // The committed rows that are not in place; false where they did not stay as they were.
  bool read_tail(const CommitRecord& record, const TableSpec& table, TableBuffer& tail) const;
  // The tail of a column.
  hdf5::Dataset open_tail(const std::string& path, ElementType type, const TableSpec& table) const;
  // The column is one that this program does not know.
  const hdf5::Dataset& unknown_tail(const TableSpec& table, OpenTrace::StoredColumn& column) const;
  // With at least so many rows.
  const hdf5::Dataset& column(const TableSpec& table, size_t index, uint64_t rows) const;
  void read_rows(TableId table, size_t column, uint64_t first, size_t count, std::byte* values) const;
  void check_zeros(const hdf5::Dataset& column, const TableSpec& table, uint64_t first, size_t count,
                   const std::byte* values) const;
  uint64_t step_at(TableId table, uint64_t row) const;
  Error damaged_tail(const TableSpec& table) const;
  Error changed() const;
  // Throws where the file was changed after its writer had ended.
  void check_unchanged() const;
  template <typename Body>
  auto reading(Body&& body) const;

  std::string path_;
  std::string name_;
  std::string_view hint_;  // what errors end with
  OnDamage on_damage_;
  std::shared_ptr<OpenTrace> open_;
  CommitRecord record_;
  // The committed rows that are not in place; none of a damaged tail.
  std::shared_ptr<const TraceBuffer> tails_ = std::make_shared<TraceBuffer>();
  std::string note_;
  std::vector<std::string> losses_;
  // Of all that `newer` made of this one, as far as they were asked for: committed rows stay as they are.
  struct StepNumbers {
    std::mutex mutex;
    std::vector<uint64_t> numbers;
  };
  std::shared_ptr<StepNumbers> steps_ = std::make_shared<StepNumbers>();
};

}  // namespace ulpscope::trace_detail
