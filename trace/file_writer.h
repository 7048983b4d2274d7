// Writes the HDF5 form of a trace: whole chunks into the columns' datasets, what is left over into tails, and commit records. One
// thread; throws Error. Internal to trace/.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "ulpscope/base/hdf5/hdf5.h"
#include "ulpscope/trace/closed_size.h"
#include "ulpscope/trace/commit.h"
#include "ulpscope/trace/table_buffer.h"

namespace ulpscope::trace_detail {

class TraceFileWriter {
 public:
  enum class Mode {
    live,  // readers may open the file at any time; has tails
    copy,  // readable once closed
  };

  // Creates `path`, which must not exist and which messages call `name`. A live file is locked: that is what tells readers that its
  // writer is alive.
  TraceFileWriter(const std::string& path, const std::string& name, Mode mode);
  ~TraceFileWriter();
  TraceFileWriter(const TraceFileWriter&) = delete;

  // Rows become visible with the next commit.
  void append(const TraceBuffer& rows);
  void append(TableId table, const TableBuffer& rows);
  void commit();
  // Commits, moves the tails into the columns' datasets and marks the trace as closed. `note` says why recording ended early, or
  // "".
  void close(const std::string& note);
  // After an error: leaves in the file what was committed, and says why it ends there. Never throws.
  void stop(const std::string& note) noexcept;

  uint64_t file_bytes() const;
  // After a commit.
  ClosedSize closed_size() const;
  // Committed rows.
  uint64_t rows(TableId table) const { return record_[table].rows; }

 private:
  struct TableFile {
    const TableSpec* spec = nullptr;
    std::vector<hdf5::Dataset> columns;
    std::vector<uint64_t> tail_offsets;  // in the file; of a live trace
    TableBuffer pending;                 // rows that no chunk holds yet
    uint64_t main_rows = 0;
    size_t tail_rows = 0;  // of `pending`, how many are in the tail
    explicit TableFile(const TableSpec& table) : spec(&table), pending(table) {}
  };

  void create_layout(Mode mode);
  // Throws where the file has become smaller: what was committed may be lost, and would look written.
  void check_not_cut();
  void write_chunk(TableFile& table);
  void write_tail(TableFile& table);
  // Over the older of the two, so that a write that fails half-way costs nothing.
  void write_record(CommitRecord record);
  void write_note(const std::string& note);
  void write_at(uint64_t offset, const void* bytes, size_t size) const;

  std::string name_;
  int descriptor_ = -1;  // our own: carries the lock, and writes where HDF5 is not needed
  hdf5::File file_;
  std::vector<TableFile> tables_;
  CommitRecord record_;  // the newest in the file
  uint64_t commit_offset_ = 0, note_offset_ = 0, closed_bytes_ = 0, seen_bytes_ = 0;
  bool unflushed_chunks_ = false;
};

// The lock of a live trace on an open file: whether some writer holds it. Nothing where locks are not supported.
std::optional<bool> writer_holds_lock(int descriptor);

}  // namespace ulpscope::trace_detail
