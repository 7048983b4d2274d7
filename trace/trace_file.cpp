#include "ulpscope/trace/trace_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include "ulpscope/base/text.h"
#include "ulpscope/trace/encode.h"
#include "ulpscope/trace/file_writer.h"

namespace ulpscope::trace_detail {

namespace {

// No table is longer; a number beyond it is damage.
constexpr uint64_t kLargestTable = uint64_t{1} << 48;

// It may not: what it cannot do without can be damaged, too.
constexpr std::string_view kRecoverHint = "; `ulpscope recover` may save a part of it";
constexpr std::string_view kLostHint = "; without it nothing can be recovered";

}  // namespace

// Calls body(), with the errors of HDF5 turned into errors about this file.
template <typename Body>
auto TraceFile::reading(Body&& body) const {
  if (open_->is_changed) throw changed();
  try {
    return body();
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::unreadable) throw;
    throw unreadable_error("'{}': {}{}", name_, error.what(), hint_);
  }
}

// A file is known by its device and inode.
std::shared_ptr<OpenTrace> OpenTrace::open(const std::string& path, const std::string& name) {
  using Key = std::pair<dev_t, ino_t>;
  struct Entry {
    std::unique_ptr<OpenTrace> trace;
    int users = 0;
  };
  struct Registry {
    std::mutex mutex;
    std::map<Key, Entry> entries;
  };
  static Registry& registry = *new Registry;  // outlives every reader
  const auto key_of = [&](int descriptor) {
    struct stat status {};
    if (::fstat(descriptor, &status) != 0) throw unreadable_error("cannot open '{}': {}", name, std::strerror(errno));
    return Key(status.st_dev, status.st_ino);
  };

  std::lock_guard lock(registry.mutex);
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) throw unreadable_error("cannot open '{}': {}", name, std::strerror(errno));
  Key key = key_of(descriptor);
  ::close(descriptor);
  if (!registry.entries.contains(key)) {
    auto trace = std::make_unique<OpenTrace>();
    trace->file = hdf5::File::open(path, name);
    for (const TableSpec& table : trace_schema()) trace->columns[static_cast<size_t>(table.id)].resize(table.columns.size());
    // Another file may have taken the name since.
    key = key_of(trace->file.descriptor());
    if (!registry.entries.contains(key)) registry.entries[key].trace = std::move(trace);
  }
  Entry& entry = registry.entries[key];
  ++entry.users;
  return std::shared_ptr<OpenTrace>(entry.trace.get(), [key](OpenTrace*) {
    // Closed under the lock, so that it is never open twice.
    std::lock_guard closing(registry.mutex);
    const auto found = registry.entries.find(key);
    if (--found->second.users == 0) registry.entries.erase(found);
  });
}

TraceFile::TraceFile(const std::string& path, const std::string& name, OnDamage on_damage)
    : path_(path), name_(name), on_damage_(on_damage) {
  if (const auto truncation = hdf5::check_signature(path, "trace")) {
    throw unreadable_error("'{}' is truncated: it has {} of {} bytes{}", name, truncation->bytes, truncation->expected,
                           kRecoverHint);
  }
  try {
    open_ = OpenTrace::open(path, name);
  } catch (const Error& error) {
    throw unreadable_error("{}", error.what());
  }
  hint_ = kLostHint;
  reading([&] {
    std::lock_guard lock(open_->mutex);
    const hdf5::File& file = open_->file;
    const auto major = file.signed_attribute("/", kSchemaAttribute);
    if (!major) throw unreadable_error("'{}' is not a trace: an HDF5 file of other contents", name_);
    if (std::cmp_greater(*major, kSchemaMajor)) {
      throw unreadable_error("'{}' has schema version {}, newer than {}, which this ulpscope reads", name_, *major, kSchemaMajor);
    }
    if (std::cmp_less(*major, kSchemaMajor)) {
      throw unreadable_error("'{}' has schema version {}, older than {}, which this ulpscope reads: record again", name_, *major,
                             kSchemaMajor);
    }
    if (!open_->commit) read_layout();
  });
  reading([&] {
    std::lock_guard lock(open_->mutex);
    read_record();
  });
  hint_ = on_damage == OnDamage::refuse ? kRecoverHint : std::string_view();
  advance();
  check_unchanged();
}

Error TraceFile::changed() const { return unreadable_error("'{}' was changed while it was read: expected the same file", name_); }

void TraceFile::check_same_file() const {
  struct stat opened {
  }, named{};
  const bool is_there = ::stat(path_.c_str(), &named) == 0;
  if (!is_there || ::fstat(open_->file.descriptor(), &opened) != 0 || opened.st_dev != named.st_dev ||
      opened.st_ino != named.st_ino)
    throw unreadable_error("'{}' was {} while it was read: expected the same file", name_,
                           is_there ? "replaced by another file" : "removed");
  check_unchanged();
}

void TraceFile::check_unchanged() const {
  struct stat opened {};
  std::lock_guard lock(open_->mutex);
  if (open_->is_changed) throw changed();
  // First the end: nothing is written after it. Where locks are not supported, a writer that goes on is no dead one.
  const bool has_ended = record_.state == RecordingState::closed || !writer_holds_lock(open_->file.descriptor()).value_or(true);
  if (!has_ended || ::fstat(open_->file.descriptor(), &opened) != 0) return;
  const OpenTrace::Stamp now{opened.st_size, opened.st_mtim};
  if (!open_->ended) open_->ended = now;
  const OpenTrace::Stamp& ended = *open_->ended;
  if (now.bytes == ended.bytes && now.changed.tv_sec == ended.changed.tv_sec && now.changed.tv_nsec == ended.changed.tv_nsec)
    return;
  open_->is_changed = true;
  if (now.bytes >= ended.bytes) throw changed();
  throw unreadable_error("'{}' was truncated while it was read: it has {} of {} bytes", name_, now.bytes, ended.bytes);
}

std::shared_ptr<const TraceFile> TraceFile::newer() const {
  check_same_file();
  auto next = std::make_shared<TraceFile>(*this);
  return next->advance() ? next : nullptr;
}

void TraceFile::read_layout() {
  const hdf5::File& file = open_->file;
  const auto minor = file.signed_attribute("/", kSchemaMinorAttribute);
  if (!minor) throw unreadable_error("'{}' is damaged: its attribute '{}' is missing{}", name_, kSchemaMinorAttribute, hint_);
  if (*minor < 0) {
    throw unreadable_error("'{}' is damaged: its attribute '{}' is {}; expected at least 0{}", name_, kSchemaMinorAttribute, *minor,
                           hint_);
  }
  open_->minor = static_cast<uint64_t>(*minor);
  hdf5::Dataset commit = file.open_dataset(kCommitDataset, ElementType::u64),
                note = file.open_dataset(kNoteDataset, ElementType::u8);
  if (is_newer()) {
    const std::vector<uint64_t> shape = commit.shape();
    const bool is_of_tables = shape.size() == 2 && shape[0] == 2 && shape[1] >= kCommitWords &&
                              shape[1] <= commit_words(kMostTables) && (shape[1] - commit_words(0)) % 3 == 0;
    if (!is_of_tables) {
      throw unreadable_error("'{}' is damaged: expected '{}' to have two records of {} to {} tables, found the shape [{}]{}", name_,
                             kCommitDataset, kTables, kMostTables, fmt::join(shape, ", "), hint_);
    }
    open_->commit_words = shape[1];
  } else {
    const auto& tables = trace_schema();
    open_->commit_words = commit_words(static_cast<size_t>(
        std::count_if(tables.begin(), tables.end(), [&](const TableSpec& table) { return table.since <= open_->minor; })));
    check_shape(commit, {2, open_->commit_words});
  }
  check_shape(note, {kNoteBytes});
  for (const TableSpec& table : trace_schema()) open_->stored[static_cast<size_t>(table.id)] = stored_columns(table);
  open_->commit = std::move(commit);
  open_->note = std::move(note);
}

std::vector<OpenTrace::StoredColumn> TraceFile::stored_columns(const TableSpec& table) const {
  std::vector<OpenTrace::StoredColumn> stored;
  if (!is_newer()) {
    for (size_t i = 0; i < table.columns.size(); ++i)
      if (!lacks(table, i)) stored.push_back({table.columns[i].name, i, {}});
    return stored;
  }
  const auto fail = [&](const std::string& what) {
    throw unreadable_error("'{}' is damaged: the attribute '{}' of table '{}' {}{}", name_, kColumnsAttribute, table.name, what,
                           hint_);
  };
  const auto names = open_->file.text_attribute(table.name, kColumnsAttribute);
  if (!names) fail("is missing");
  size_t known = 0;
  for (size_t begin = 0; begin <= names->size();) {
    const size_t end = std::min(names->find(',', begin), names->size());
    OpenTrace::StoredColumn& column = stored.emplace_back();
    column.name = names->substr(begin, end - begin);
    // New columns come behind those that there were.
    if (known < table.columns.size() && table.columns[known].name == column.name) column.place = known++;
    begin = end + 1;
  }
  if (known < table.columns.size()) fail(fmt::format("does not name '{}' in its place", table.columns[known].name));
  return stored;
}

TraceFile::Unread TraceFile::unread() const {
  Unread unread{record_.unknown_tables, 0};
  for (const TableSpec& table : trace_schema()) {
    if (rows(table.id) == 0) continue;
    for (const OpenTrace::StoredColumn& column : open_->stored[static_cast<size_t>(table.id)]) unread.columns += !column.place;
  }
  return unread;
}

void TraceFile::check_shape(const hdf5::Dataset& dataset, const std::vector<uint64_t>& expected) const {
  const std::vector<uint64_t> shape = dataset.shape();
  if (shape == expected) return;
  throw unreadable_error("'{}' is damaged: expected '{}' to have the shape [{}], found [{}]{}", name_, dataset.name(),
                         fmt::join(expected, ", "), fmt::join(shape, ", "), hint_);
}

CommitRecord TraceFile::read_record() const {
  // A record is read while the other one may be written; only if the reader was asleep for a whole commit are both in motion.
  for (int attempt = 0; attempt < 100; ++attempt) {
    std::vector<uint64_t> words(2 * open_->commit_words);
    open_->commit.read_all(words.data());
    if (const auto record = decode(words)) return *record;
  }
  throw unreadable_error("'{}': '{}' is damaged", name_, kCommitDataset);
}

size_t TraceFile::rows_in_chunk(TableId table, uint64_t first) const {
  const uint64_t chunk = spec(table).chunk_rows;
  return static_cast<size_t>(std::min(chunk - first % chunk, rows(table) - first));
}

void TraceFile::check_count(TableId table, uint64_t rows, uint64_t most) const {
  if (rows > most)
    throw unreadable_error("'{}': table '{}' has {} rows that are held in memory, over {}", name_, spec(table).name, rows, most);
}

void TraceFile::check(const CommitRecord& record) const {
  if (const auto state = static_cast<uint64_t>(record.state); state >= kRecordingStates)
    throw unreadable_error("'{}': '{}' is damaged: it has the unknown state {}{}", name_, kCommitDataset, state, hint_);
  for (size_t i = 0; i < kTables; ++i) {
    const CommitRecord::Table& table = record.tables[i];
    const TableSpec& spec = trace_schema()[i];
    const bool tail_fits = table.rows <= table.main_rows || (has_tail(spec) && table.rows - table.main_rows <= spec.chunk_rows);
    if (table.rows > kLargestTable || table.main_rows > kLargestTable || !tail_fits || table.rows < record_.tables[i].rows) {
      throw unreadable_error("'{}': '{}' is damaged: table '{}' has {} rows, {} of them in place", name_, kCommitDataset, spec.name,
                             table.rows, table.main_rows);
    }
  }
}

uint64_t TraceFile::whole_chunks(const TableSpec& table, uint64_t rows) const {
  // Most columns have them all.
  const uint64_t wanted = rows / table.chunk_rows;
  for (size_t i = 0; i < table.columns.size(); ++i)
    if (!lacks(table, i) && column(table, i, rows).chunk_count() >= wanted) return wanted;
  // A chunk that holds fill values only is not written, but no chunk of rows does in every column.
  const auto is_there = [&](uint64_t chunk) {
    for (size_t i = 0; i < table.columns.size(); ++i)
      if (!lacks(table, i) && column(table, i, rows).has_chunk(chunk * table.chunk_rows)) return true;
    return false;
  };
  uint64_t chunks = 0;
  while (chunks < wanted && is_there(chunks)) ++chunks;
  return chunks;
}

uint64_t TraceFile::rows_written(const TableSpec& table, uint64_t rows) const {
  if (rows == 0) return 0;
  const uint64_t first = (rows - 1) / table.chunk_rows * table.chunk_rows;
  uint64_t written = first;
  std::vector<std::byte> values;
  for (size_t i = 0; i < table.columns.size(); ++i) {
    if (lacks(table, i)) continue;
    const size_t size = size_of(table.columns[i].type);
    values.resize((rows - first) * size);
    try {
      column(table, i, rows).read_rows(first, rows - first, values.data());
    } catch (const Error&) {
      return rows;
    }
    while (written < rows && !is_all_fill(values.data() + (written - first) * size, rows - written, table.columns[i])) ++written;
  }
  return written;
}

void TraceFile::check_in_place(CommitRecord& record) {
  for (const TableSpec& table : trace_schema()) {
    CommitRecord::Table& committed = record[table.id];
    const uint64_t rows = committed.main_rows;
    if (rows <= record_[table.id].main_rows) continue;
    std::optional<uint64_t> found;
    try {
      const uint64_t chunks = whole_chunks(table, rows);
      if (chunks == rows / table.chunk_rows) continue;
      found = chunks * table.chunk_rows;
      throw unreadable_error("'{}' is damaged: '{}' says that {} rows of table '{}' are in place, and there are chunks for {}{}",
                             name_, kCommitDataset, rows, table.name, *found, hint_);
    } catch (const Error& error) {
      // What HDF5 cannot read is said where it is read.
      if (error.kind() != ErrorKind::unreadable) continue;
      if (on_damage_ == OnDamage::refuse) throw;
      const uint64_t kept =
          found ? rows_written(table, *found) : std::min(open_->columns[static_cast<size_t>(table.id)][0].extent, rows);
      losses_.push_back(fmt::format("{} of '{}' are missing", count_of(committed.rows - kept, "row"), table.name));
      committed = {kept, kept, 0};
    }
  }
}

bool TraceFile::advance() {
  return reading([&] {
    std::lock_guard lock(open_->mutex);
    CommitRecord record = read_record();
    if (record.generation == record_.generation) return false;
    for (int attempt = 0; attempt < 1000; ++attempt) {
      if (on_damage_ == OnDamage::read_around && static_cast<uint64_t>(record.state) >= kRecordingStates)
        record.state = RecordingState::open;
      check(record);
      const CommitRecord before = record;
      check_in_place(record);
      auto tails = std::make_shared<TraceBuffer>();
      if (on_damage_ == OnDamage::read_around && record.state == RecordingState::closed) use_second_copies(record);
      const TableSpec* damaged = nullptr;
      for (const TableSpec& table : trace_schema()) {
        if (!read_tail(record, table, (*tails)[table.id])) damaged = &table;
      }
      const CommitRecord after = read_record();
      bool moved = false;
      for (size_t i = 0; i < kTables; ++i) moved = moved || after.tables[i].main_rows != before.tables[i].main_rows;
      if (!moved) {
        if (damaged && on_damage_ == OnDamage::refuse) throw damaged_tail(*damaged);
        bool more = false;
        for (size_t i = 0; i < kTables; ++i) more = more || record.tables[i].rows != record_.tables[i].rows;
        record_ = record;
        tails_ = std::move(tails);
        uint8_t note[kNoteBytes];
        open_->note.read_all(note);
        note_ = one_line({reinterpret_cast<const char*>(note), strnlen(reinterpret_cast<const char*>(note), kNoteBytes)});
        return more;
      }
      record = after;
    }
    throw unreadable_error("'{}' changes faster than it can be read", name_);
  });
}

void TraceFile::use_second_copies(CommitRecord& record) const {
  for (const TableSpec& table : trace_schema()) {
    const CommitRecord::Table in_place = record[table.id];
    TableBuffer tail(table);
    record[table.id].main_rows -= in_place.rows % table.chunk_rows;
    if (!has_tail(table) || in_place.tail_checksum == 0 || !read_tail(record, table, tail)) record[table.id] = in_place;
  }
}

bool TraceFile::read_tail(const CommitRecord& record, const TableSpec& table, TableBuffer& tail) const {
  const CommitRecord::Table& committed = record[table.id];
  if (committed.rows <= committed.main_rows) return true;
  const size_t count = committed.rows - committed.main_rows;
  tail.extend(count);
  uint32_t checksum = 0;
  std::vector<std::byte> unknown;
  try {
    for (OpenTrace::StoredColumn& stored : open_->stored[static_cast<size_t>(table.id)]) {
      if (!stored.place) {
        const hdf5::Dataset& dataset = unknown_tail(table, stored);
        unknown.resize(count * size_of(dataset.type()));
        dataset.read_rows(0, count, unknown.data());
        checksum = crc32(unknown, checksum);
        continue;
      }
      const ColumnSpec& column = table.columns[*stored.place];
      hdf5::Dataset& dataset = open_->columns[static_cast<size_t>(table.id)][*stored.place].tail;
      if (!dataset) dataset = open_tail(tail_path(table, column), column.type, table);
      dataset.read_rows(0, count, tail.column(*stored.place));
      checksum = crc32({tail.column(*stored.place), count * size_of(column.type)}, checksum);
    }
  } catch (const Error&) {
    if (on_damage_ == OnDamage::refuse) throw;
    tail.clear();
    return false;
  }
  if (checksum == committed.tail_checksum) return true;
  tail.clear();
  return false;
}

hdf5::Dataset TraceFile::open_tail(const std::string& path, ElementType type, const TableSpec& table) const {
  hdf5::Dataset opened = open_->file.open_dataset(path, type);
  check_shape(opened, {table.chunk_rows});
  return opened;
}

const hdf5::Dataset& TraceFile::unknown_tail(const TableSpec& table, OpenTrace::StoredColumn& column) const {
  if (column.unknown_tail) return column.unknown_tail;
  const std::string path = tail_path(table, column.name);
  const auto type = std::find_if(std::begin(kElementTypes), std::end(kElementTypes),
                                 [&](ElementType candidate) { return open_->file.holds(path, candidate); });
  if (type == std::end(kElementTypes)) throw failed_error("'{}' is missing, or its elements are of an unknown type", path);
  return column.unknown_tail = open_tail(path, *type, table);
}

const hdf5::Dataset& TraceFile::column(const TableSpec& table, size_t index, uint64_t rows) const {
  OpenTrace::Column& column = open_->columns[static_cast<size_t>(table.id)][index];
  const std::string path = column_path(table, table.columns[index]);
  const auto rows_of_dataset = [&](const hdf5::Dataset& dataset) {
    const std::vector<uint64_t> shape = dataset.shape();
    if (shape.size() != 1) {
      throw unreadable_error("'{}' is damaged: expected '{}' to have 1 dimension, found {}{}", name_, path, shape.size(), hint_);
    }
    return shape[0];
  };
  if (!column.dataset) {
    if (column.refused) throw Error(*column.refused);
    hdf5::Dataset opened;
    try {
      opened = open_->file.open_dataset(path, table.columns[index].type);
    } catch (const Error& error) {
      if (on_damage_ == OnDamage::read_around || record_.state == RecordingState::closed) column.refused = error;
      throw;
    }
    if (opened.chunk_rows() != table.chunk_rows)
      throw unreadable_error("'{}' is damaged: expected '{}' in chunks of {} rows, found {}{}", name_, path, table.chunk_rows,
                             opened.chunk_rows(), hint_);
    column.extent = rows_of_dataset(opened);
    column.dataset = std::move(opened);
  }
  if (column.extent < rows) {
    column.dataset.refresh();
    column.extent = rows_of_dataset(column.dataset);
    if (column.extent < rows) {
      throw unreadable_error("'{}' is damaged: expected at least {} rows in '{}', found {}{}", name_, rows, path, column.extent,
                             hint_);
    }
  }
  return column.dataset;
}

// Beyond the end of a truncated file HDF5 reads zeros, and the checksum of zeros is zero. But no chunk is written that holds zeros
// only: where one that exists reads so, it is damaged. Compression does not take zeros for its own.
void TraceFile::check_zeros(const hdf5::Dataset& column, const TableSpec& table, uint64_t first, size_t count,
                            const std::byte* values) const {
  const size_t size = size_of(column.type());
  const auto all_zero = [](const std::byte* bytes, size_t n) {
    return std::all_of(bytes, bytes + n, [](std::byte byte) { return byte == std::byte{0}; });
  };
  for (uint64_t row = first; row < first + count;) {
    const uint64_t chunk_begin = row - row % table.chunk_rows;
    const uint64_t chunk_end = std::min(chunk_begin + table.chunk_rows, record_[table.id].main_rows);
    const uint64_t end = std::min(chunk_end, first + count);
    if (all_zero(values + (row - first) * size, (end - row) * size) && column.has_chunk(row)) {
      std::vector<std::byte> chunk((chunk_end - chunk_begin) * size);
      column.read_rows(chunk_begin, chunk_end - chunk_begin, chunk.data());
      if (all_zero(chunk.data(), chunk.size()))
        throw failed_error("cannot read '{}', rows {} to {}: damaged", column.name(), chunk_begin, chunk_end - 1);
    }
    row = end;
  }
}

void TraceFile::read_rows(TableId id, size_t index, uint64_t first, size_t count, std::byte* values) const {
  const TableSpec& table = spec(id);
  const uint64_t main_rows = record_[id].main_rows;
  const size_t size = size_of(table.columns[index].type);
  if (lacks(table, index)) {
    for (size_t i = 0; i < count; ++i) std::memcpy(values + i * size, table.columns[index].absent.data(), size);
    return;
  }
  if (first < main_rows) {
    const size_t in_place = static_cast<size_t>(std::min<uint64_t>(count, main_rows - first));
    const hdf5::Dataset& dataset = column(table, index, first + in_place);
    dataset.read_rows(first, in_place, values);
    if (!table.columns[index].compress) check_zeros(dataset, table, first, in_place, values);
    first += in_place;
    count -= in_place;
    values += in_place * size;
  }
  if (count == 0) return;
  if ((*tails_)[id].rows() == 0) throw damaged_tail(table);
  std::memcpy(values, (*tails_)[id].column(index) + (first - main_rows) * size, count * size);
}

void TraceFile::read_column(TableId table, size_t column, uint64_t first, size_t count, std::byte* values) const {
  std::lock_guard lock(open_->mutex);
  reading([&] { read_rows(table, column, first, count, values); });
}

void TraceFile::read(TableId id, uint64_t first, size_t count, bool histograms, Block& block) const {
  std::lock_guard lock(open_->mutex);
  reading([&] {
    const TableSpec& table = spec(id);
    block.table = &table;
    block.first = first;
    block.places.clear();
    block.rows = count;
    block.columns.resize(table.columns.size());
    block.histograms.clear();
    for (size_t i = 0; i < table.columns.size(); ++i) {
      block.columns[i].clear();
      const bool is_histogram = table.columns[i].kind == ValueKind::histogram;
      if (count == 0 || (is_histogram && !histograms)) continue;
      block.columns[i].resize(count * size_of(table.columns[i].type));
      read_rows(id, i, first, count, block.columns[i].data());
      if (!is_histogram) continue;
      uint64_t begin = 0;
      if (first > 0) read_rows(id, i, first - 1, 1, reinterpret_cast<std::byte*>(&begin));
      uint64_t end = begin;
      for (size_t row = 0; row < count; ++row) {
        const auto next = block.value<uint64_t>(i, row);
        check_histogram(first + row, end, next);
        end = next;
      }
      block.histograms_begin = begin;
      block.histograms.resize(end - begin);
      if (end > begin) read_rows(TableId::histograms, 0, begin, end - begin, reinterpret_cast<std::byte*>(block.histograms.data()));
    }
  });
}

uint64_t TraceFile::step_at(TableId table, uint64_t row) const {
  uint64_t step = 0;
  read_rows(table, static_cast<size_t>(spec(table).step_column), row, 1, reinterpret_cast<std::byte*>(&step));
  return step;
}

uint64_t TraceFile::steps_end() const {
  std::lock_guard lock(open_->mutex);
  return reading([&] { return rows(TableId::steps) == 0 ? 0 : step_at(TableId::steps, rows(TableId::steps) - 1) + 1; });
}

bool TraceFile::has_step(uint64_t step) const {
  const uint64_t all = rows(TableId::steps);
  std::lock_guard lock(steps_->mutex);
  std::vector<uint64_t>& numbers = steps_->numbers;
  if (const uint64_t read = numbers.size(); read < all) {
    std::vector<uint64_t> more(all - read);
    read_column(TableId::steps, static_cast<size_t>(spec(TableId::steps).step_column), read, more.size(),
                reinterpret_cast<std::byte*>(more.data()));
    for (const uint64_t number : more) {
      const std::optional<uint64_t> before = numbers.empty() ? std::nullopt : std::optional(numbers.back());
      if (number > kLargestStep || (before && number <= *before))
        throw misplaced(spec(TableId::steps), numbers.size(), number, before);
      numbers.push_back(number);
    }
  }
  return std::binary_search(numbers.begin(), numbers.begin() + static_cast<ptrdiff_t>(all), step);
}

std::pair<uint64_t, uint64_t> TraceFile::rows_of(TableId table, StepRange range) const {
  std::lock_guard lock(open_->mutex);
  return reading([&] {
    const auto lower_bound = [&](uint64_t step, uint64_t low, uint64_t high) {
      while (low < high) {
        const uint64_t middle = low + (high - low) / 2;
        if (step_at(table, middle) < step)
          low = middle + 1;
        else
          high = middle;
      }
      return low;
    };
    const uint64_t all = rows(table);
    const uint64_t first = range.first == 0 ? 0 : lower_bound(range.first, 0, all);
    const uint64_t last = range.last == UINT64_MAX ? all : lower_bound(range.last, first, all);
    return std::pair(first, last);
  });
}

WriterState TraceFile::writer_state() const {
  if (record_.state == RecordingState::closed) return WriterState::closed;
  return reading([&] {
    std::lock_guard lock(open_->mutex);
    if (writer_holds_lock(open_->file.descriptor()).value_or(false)) return WriterState::alive;
    // It may have been closed since.
    return read_record().state == RecordingState::closed ? WriterState::closed : WriterState::dead;
  });
}

uint64_t TraceFile::file_bytes() const {
  struct stat status {};
  return ::fstat(open_->file.descriptor(), &status) == 0 ? static_cast<uint64_t>(status.st_size) : 0;
}

void TraceFile::check_histogram(uint64_t row, uint64_t begin, uint64_t end) const {
  if (end >= begin && end <= rows(TableId::histograms) && end - begin <= kLargestHistogram) return;
  const TableSpec& stats = spec(TableId::stats);
  const auto column = std::find_if(stats.columns.begin(), stats.columns.end(),
                                   [](const ColumnSpec& candidate) { return candidate.kind == ValueKind::histogram; });
  throw damaged(stats, *column, row, "ends outside the histograms");
}

Error TraceFile::misplaced(const TableSpec& table, uint64_t row, uint64_t step, std::optional<uint64_t> before) const {
  const bool is_behind = before && (step < *before || (table.id == TableId::steps && step == *before));
  const std::string what = step > kLargestStep ? "expected at most 2^62"
                           : is_behind         ? fmt::format("behind step {}", *before)
                                               : "which 'steps' does not have";
  return damaged(table, table.columns[static_cast<size_t>(table.step_column)], row, fmt::format("is of step {}, {}", step, what));
}

Error TraceFile::damaged(const TableSpec& table, const ColumnSpec& column, uint64_t row, const std::string& what) const {
  return unreadable_error("'{}' is damaged: '{}' row {} {}{}", name_, column_path(table, column), row, what, hint_);
}

Error TraceFile::unknown(const TableSpec& table, const ColumnSpec& column, uint64_t row, uint64_t value) const {
  return unreadable_error(
      "'{}': '{}' row {} has the value {}, which this ulpscope does not know: the trace has schema {}, newer than {}", name_,
      column_path(table, column), row, value, schema_version_text(open_->minor), schema_version_text(kSchemaMinor));
}

Error TraceFile::damaged_tail(const TableSpec& table) const {
  return unreadable_error("'{}': the tail of table '{}' is damaged{}", name_, table.name, hint_);
}

}  // namespace ulpscope::trace_detail
