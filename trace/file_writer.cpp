#include "ulpscope/trace/file_writer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "ulpscope/base/error.h"

namespace ulpscope::trace_detail {

namespace {

// An open-file-description lock: it goes away with the process, however that ends. One byte far beyond the file's end, so that
// locks of other programs on the file itself do not get in the way.
constexpr off_t kLockByte = off_t{1} << 62;

struct flock lock_of(short type) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = kLockByte;
  lock.l_len = 1;
  return lock;
}

// As a commit record has it.
uint32_t checksum(const TableBuffer& rows) {
  uint32_t crc = 0;
  for (size_t i = 0; i < rows.column_count(); ++i) crc = crc32({rows.column(i), rows.rows() * rows.element_size(i)}, crc);
  return crc;
}

// "strings,string_bytes,run": of tables or of columns.
template <typename Specs>
std::string names_of(const Specs& specs) {
  std::string names;
  for (const auto& spec : specs) names += (names.empty() ? "" : ",") + spec.name;
  return names;
}

}  // namespace

std::optional<bool> writer_holds_lock(int descriptor) {
  struct flock lock = lock_of(F_RDLCK);
  if (::fcntl(descriptor, F_OFD_GETLK, &lock) != 0) return std::nullopt;
  return lock.l_type != F_UNLCK;
}

TraceFileWriter::TraceFileWriter(const std::string& path, const std::string& name, Mode mode)
    : name_(name), file_(hdf5::File::create(path, name)) {
  try {
    descriptor_ = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (descriptor_ < 0) throw failed_error("cannot write '{}': {}", name, std::strerror(errno));
    struct flock lock = lock_of(F_WRLCK);
    // Where locks are not supported, readers take the writer for dead; all else works.
    if (mode == Mode::live) ::fcntl(descriptor_, F_OFD_SETLK, &lock);
    create_layout(mode);
    write_note("");
    write_record(record_);
    write_record(record_);
  } catch (...) {
    stop("");
    throw;
  }
}

TraceFileWriter::~TraceFileWriter() {
  if (file_) stop("");
}

void TraceFileWriter::create_layout(Mode mode) {
  file_.set_attribute("/", kFormatAttribute, std::string(kFormatName));
  file_.set_attribute("/", kSchemaAttribute, kSchemaMajor);
  file_.set_attribute("/", kSchemaMinorAttribute, kSchemaMinor);
  commit_offset_ = file_.create_fixed(kCommitDataset, ElementType::u64, {2, kCommitWords}).file_offset();
  file_.set_attribute(kCommitDataset, kTablesAttribute, names_of(trace_schema()));
  note_offset_ = file_.create_fixed(kNoteDataset, ElementType::u8, {kNoteBytes}).file_offset();
  tables_.reserve(kTables);
  for (const TableSpec& spec : trace_schema()) {
    TableFile& table = tables_.emplace_back(spec);
    file_.create_group(spec.name);
    file_.set_attribute(spec.name, kColumnsAttribute, names_of(spec.columns));
    for (const ColumnSpec& column : spec.columns) {
      const std::string path = column_path(spec, column);
      table.columns.push_back(
          file_.create_column(path, {column.type, spec.chunk_rows, column.compress || mode == Mode::copy, column.fill}));
      if (!column.values.empty()) {
        std::string values;
        for (const std::string& value : column.values) values += (values.empty() ? "" : ",") + value;
        file_.set_attribute(path, "values", values);
      }
      if (!column.refers_to.empty()) file_.set_attribute(path, "refers_to", column.refers_to);
    }
  }
  // Behind all that tells where rows are, the tails: of a file whose end is missing, as much as possible can be read. Before those
  // of the tables of many rows there is room for the first chunks.
  if (mode == Mode::live) {
    const std::string tails = std::string(kTailGroup) + "/", room = tails + "room";
    file_.create_group(kTailGroup);
    // What says where they are must not be scattered among them.
    for (const TableFile& table : tables_)
      if (has_tail(*table.spec)) file_.create_group(tails + table.spec->name);
    for (TableFile& table : tables_) {
      if (!has_tail(*table.spec)) continue;
      if (table.spec->id == TableId::stats) file_.create_fixed(room, ElementType::u8, {kRoomBytes});
      for (const ColumnSpec& column : table.spec->columns) {
        table.tail_offsets.push_back(
            file_.create_fixed(tail_path(*table.spec, column), column.type, {table.spec->chunk_rows}).file_offset());
      }
    }
    file_.remove(room);
    file_.start_swmr();
    // HDF5 reads where the chunks are now, and not when the file may have been cut.
    for (const TableFile& table : tables_)
      for (const hdf5::Dataset& column : table.columns) column.chunk_count();
  }
  file_.flush();
}

void TraceFileWriter::append(const TraceBuffer& rows) {
  // Rows lie behind the histograms that they need: what is before a cut is then of use.
  append(TableId::histograms, rows[TableId::histograms]);
  for (TableFile& table : tables_)
    if (table.spec->id != TableId::histograms) append(table.spec->id, rows[table.spec->id]);
}

void TraceFileWriter::append(TableId id, const TableBuffer& rows) {
  TableFile& table = tables_[static_cast<size_t>(id)];
  for (size_t first = 0; first < rows.rows();) {
    const size_t count = std::min(rows.rows() - first, static_cast<size_t>(table.spec->chunk_rows) - table.pending.rows());
    table.pending.append(rows, first, count);
    first += count;
    if (table.pending.rows() == table.spec->chunk_rows) write_chunk(table);
  }
}

void TraceFileWriter::check_not_cut() {
  const uint64_t bytes = file_bytes();
  if (bytes < seen_bytes_)
    throw failed_error("'{}' was truncated while it was written: it has {} of {} bytes", name_, bytes, seen_bytes_);
  seen_bytes_ = bytes;
}

void TraceFileWriter::write_chunk(TableFile& table) {
  check_not_cut();
  const size_t count = table.pending.rows();
  const uint64_t chunk = table.main_rows / table.spec->chunk_rows;
  try {
    for (size_t i = 0; i < table.columns.size(); ++i) {
      hdf5::Dataset& column = table.columns[i];
      column.set_rows(table.main_rows + count);
      // The index of a column gets its next block with a chunk that has its place there: all columns at once, so that where a file
      // is cut the blocks of those chunks are there that are. But no column of chunks that are not compressed has zeros in them
      // only.
      const ColumnSpec& spec = table.spec->columns[i];
      if (!is_all_fill(table.pending.column(i), count, spec) || (spec.compress && hdf5::begins_index_block(chunk)))
        column.write_rows(table.main_rows, count, table.pending.column(i));
    }
  } catch (const Error& error) {
    // HDF5 tells of the column only.
    throw failed_error("'{}': {}", name_, error.what());
  }
  table.main_rows += count;
  table.pending.clear();
  table.tail_rows = 0;
  unflushed_chunks_ = true;
}

void TraceFileWriter::write_tail(TableFile& table) {
  const size_t first = table.tail_rows, count = table.pending.rows() - first;
  if (count == 0) return;
  for (size_t i = 0; i < table.columns.size(); ++i) {
    const size_t size = table.pending.element_size(i);
    write_at(table.tail_offsets[i] + first * size, table.pending.column(i) + first * size, count * size);
  }
  table.tail_rows = table.pending.rows();
}

void TraceFileWriter::commit() {
  check_not_cut();
  if (unflushed_chunks_) {
    file_.flush();
    unflushed_chunks_ = false;
    // Before a tail is overwritten, readers must know that its rows have moved. The rows that are visible stay the same.
    CommitRecord moved = record_;
    for (size_t i = 0; i < kTables; ++i) {
      if (moved.tables[i].main_rows != tables_[i].main_rows) moved.tables[i] = {moved.tables[i].rows, tables_[i].main_rows, 0};
    }
    write_record(moved);
  }
  CommitRecord next = record_;
  for (size_t i = 0; i < kTables; ++i) {
    TableFile& table = tables_[i];
    if (!table.tail_offsets.empty()) write_tail(table);
    next.tables[i] = {table.main_rows + table.pending.rows(), table.main_rows, checksum(table.pending)};
  }
  write_record(next);
  check_not_cut();
}

void TraceFileWriter::close(const std::string& note) {
  check_not_cut();
  CommitRecord last = record_;
  for (size_t i = 0; i < kTables; ++i) {
    TableFile& table = tables_[i];
    // A tail stays as it is: a second copy of these rows, at the other end of the file.
    const bool in_tail = !table.tail_offsets.empty() && table.tail_rows == table.pending.rows();
    last.tables[i].tail_checksum = in_tail ? checksum(table.pending) : 0;
    if (table.pending.rows() > 0) write_chunk(table);
    last.tables[i].rows = last.tables[i].main_rows = table.main_rows;
  }
  file_.flush();
  write_record(last);
  write_note(note);
  for (TableFile& table : tables_) table.columns.clear();
  file_.close();
  // Only now is the file one that any HDF5 reader opens.
  last.state = RecordingState::closed;
  write_record(last);
  closed_bytes_ = file_bytes();
  ::close(descriptor_);
  descriptor_ = -1;
}

void TraceFileWriter::stop(const std::string& note) noexcept {
  file_.disconnect();
  for (TableFile& table : tables_) table.columns.clear();
  try {
    file_.close();
  } catch (const Error&) {
    // Nothing was written.
  }
  if (descriptor_ < 0) return;
  if (!note.empty()) {
    try {
      // Both places were reserved when the file was created: a full disk does not matter.
      write_note(note);
      CommitRecord last = record_;
      last.state = RecordingState::stopped;
      write_record(last);
    } catch (const Error&) {
      // The caller is about to report an error already.
    }
  }
  ::close(descriptor_);
  descriptor_ = -1;
}

void TraceFileWriter::write_record(CommitRecord record) {
  record.generation = record_.generation + 1;
  const CommitWords words = encode(record);
  write_at(commit_offset_ + (record.generation % 2) * sizeof(words), words.data(), sizeof(words));
  record_ = record;
}

void TraceFileWriter::write_note(const std::string& note) {
  char bytes[kNoteBytes] = {};
  std::memcpy(bytes, note.data(), std::min(note.size(), size_t{kNoteBytes - 1}));
  write_at(note_offset_, bytes, sizeof(bytes));
}

void TraceFileWriter::write_at(uint64_t offset, const void* bytes, size_t size) const {
  const char* at = static_cast<const char*>(bytes);
  while (size > 0) {
    const ssize_t written = ::pwrite(descriptor_, at, size, static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0)
      throw failed_error("cannot write '{}': {}", name_, written < 0 ? std::strerror(errno) : "nothing was written");
    at += written;
    offset += static_cast<uint64_t>(written);
    size -= static_cast<size_t>(written);
  }
}

ClosedSize TraceFileWriter::closed_size() const {
  ClosedSize size{file_bytes() - file_.free_bytes(), file_bytes(), {}, 0};
  for (size_t i = 0; i < kTables; ++i) {
    size.bytes += last_chunk_bytes(*tables_[i].spec, tables_[i].pending);
    size.rows[i] = tables_[i].main_rows + tables_[i].pending.rows();
  }
  const TableFile& stats = tables_[static_cast<size_t>(TableId::stats)];
  size.magnitude_chunks = stats.main_rows / stats.spec->chunk_rows + (has_plain_chunk(*stats.spec, stats.pending) ? 1 : 0);
  return size;
}

uint64_t TraceFileWriter::file_bytes() const {
  struct stat status {};
  if (descriptor_ < 0) return closed_bytes_;
  return ::fstat(descriptor_, &status) == 0 ? static_cast<uint64_t>(status.st_size) : 0;
}

}  // namespace ulpscope::trace_detail
