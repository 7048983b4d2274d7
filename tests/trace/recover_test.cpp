// What `recover` saves of damaged and truncated traces: only whole steps, each as it was written, and as many as the damage leaves.
#include "ulpscope/trace/recover.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hdf5.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>

#include "sample_trace.h"
#include "tests/support/temporary_folder.h"
#include "ulpscope/base/error.h"
#include "ulpscope/base/hdf5/hdf5.h"
#include "ulpscope/base/philox.h"
#include "ulpscope/trace/schema.h"
#include "ulpscope/trace/sink.h"
#include "writer_control.h"

namespace ulpscope::trace_test {
namespace {

using testing::HasSubstr;

constexpr uint64_t kRecoveredSeed = 61, kRecoveredSteps = 200, kRowsPerStep = 41, kRecoveredChunk = 2048;

struct StepLines {
  std::string row;
  Lines stats;
};

const std::vector<StepLines>& written() {
  static const std::vector<StepLines> steps = [] {
    std::vector<StepLines> lines;
    for (uint64_t number = 0; number < kRecoveredSteps; ++number) {
      const Step step = sample_step(kRecoveredSeed, number);
      lines.push_back({line(step.row), {}});
      for (const TensorRow& row : step.rows) lines.back().stats.push_back(line(row));
    }
    return lines;
  }();
  return steps;
}

// The steps of a trace, each of which must be as it was written.
std::vector<uint64_t> whole_steps(const Snapshot& reader) {
  std::vector<uint64_t> steps;
  reader.visit_steps({}, [&](std::span<const StepRow> rows) {
    for (const StepRow& row : rows) {
      EXPECT_EQ(line(row), written().at(row.step).row);
      steps.push_back(row.step);
    }
    return true;
  });
  Lines expected, found;
  for (const uint64_t step : steps) expected.insert(expected.end(), written()[step].stats.begin(), written()[step].stats.end());
  reader.visit_rows({}, [&](std::span<const TensorRow> rows) {
    for (const TensorRow& row : rows) found.push_back(line(row));
    return true;
  });
  EXPECT_TRUE(found == expected) << found.size() << " rows of " << expected.size();
  return steps;
}

class Recover : public testing::Test {
 protected:
  enum class Made { closed, dead, alive };
  // A closed trace, one whose writer was killed, or what a file is while it is written.
  std::string make(Made made, uint64_t steps = kRecoveredSteps) {
    const std::string path = folder_.file("run.h5");
    std::filesystem::remove(path);
    WriterProcess writer(path, kRecoveredSeed);
    writer.wait_for("ready");
    writer.call("steps " + std::to_string(steps));
    if (made == Made::closed) {
      writer.call("close");
      writer.finish();
    } else if (made == Made::alive) {
      const std::string bytes = read_file(path);
      writer.kill();
      return bytes;
    } else {
      writer.kill();
    }
    return read_file(path);
  }
  std::string make(bool closed) { return make(closed ? Made::closed : Made::dead); }

  // Recovers these bytes. The steps that were saved; none where nothing can be read.
  std::vector<uint64_t> recover(const std::string& bytes) {
    write_file(damaged_, bytes);
    std::filesystem::remove(saved_);
    std::vector<uint64_t> steps;
    try {
      result_ = recover_trace(damaged_, saved_);
      const Snapshot reader(saved_);
      EXPECT_EQ(reader.writer_state(), WriterState::closed);
      steps = whole_steps(reader);
      EXPECT_EQ(result_.steps, steps.size());
      EXPECT_EQ(result_.tensor_rows, reader.tensor_row_count());
      // Where the newer commit record is damaged, the older one counts.
      EXPECT_LE(result_.steps + result_.lost_steps, kRecoveredSteps);
      EXPECT_TRUE(result_.lost_steps == 0 || !result_.losses.empty());
      // The new trace says it, too.
      const auto warnings = std::count_if(reader.events().begin(), reader.events().end(), [](const EventRow& event) {
        return event.kind == EventKind::warning && event.text.starts_with("recovered from a damaged trace: ");
      });
      EXPECT_LE(result_.losses.size(), static_cast<size_t>(warnings) + 1);  // that the file is truncated is said beside
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::unreadable) << error.what();
      EXPECT_THAT(error.what(), HasSubstr(damaged_));
      EXPECT_FALSE(std::filesystem::exists(saved_));
      result_ = {};
    }
    EXPECT_EQ(read_file(damaged_), bytes);
    size_t files = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder_.path())) ++files;
    EXPECT_LE(files, 3u);  // nothing else is left behind
    return steps;
  }

  // Where the chunk of /stats/sum with that number begins: its numbers are stored as they are, and stand nowhere else.
  static size_t find_sums(const std::string& bytes, uint64_t chunk) {
    std::string stored;
    for (uint64_t row = chunk * kRecoveredChunk; row < (chunk + 1) * kRecoveredChunk; ++row) {
      const double sum = sample_step(kRecoveredSeed, row / kRowsPerStep).rows[row % kRowsPerStep].statistics.sum;
      stored.append(reinterpret_cast<const char*>(&sum), sizeof(sum));
    }
    return bytes.find(stored);
  }

  // Cuts a trace at random points: what lies before the cut is saved, so more where more is left.
  void truncate(uint32_t first, uint32_t last) {
    for (const Made made : {Made::closed, Made::dead, Made::alive}) {
      const std::string good = make(made);
      const Philox random(kRecoveredSeed, static_cast<uint64_t>(made));
      std::set<size_t> sizes;
      for (uint32_t trial = first; trial < last; ++trial) sizes.insert(random.below(trial, static_cast<uint32_t>(good.size())));
      size_t before = 0;
      for (const size_t size : sizes) {
        SCOPED_TRACE(testing::Message() << "trace " << static_cast<int>(made) << ", " << size << " of " << good.size() << " bytes");
        const size_t steps = recover(good.substr(0, size)).size();
        // A tail that was saved has the last steps, whose chunks are at the end.
        EXPECT_GE(steps, before);
        before = steps;
      }
      EXPECT_EQ(recover(good).size(), kRecoveredSteps);
    }
  }

  void flip_bits(uint32_t first, uint32_t last) {
    for (const bool closed : {true, false}) {
      const std::string good = make(closed);
      const Philox random(kRecoveredSeed, 2 + closed);
      size_t some = 0;
      for (uint32_t trial = first; trial < last; ++trial) {
        std::string bytes = good;
        const uint32_t position = random.below(2 * trial, static_cast<uint32_t>(bytes.size()));
        bytes[position] = static_cast<char>(bytes[position] ^ (1 << random.below(2 * trial + 1, 8)));
        SCOPED_TRACE(testing::Message() << (closed ? "closed, bit of byte " : "dead, bit of byte ") << position);
        const size_t steps = recover(bytes).size();
        some += steps > 0 && steps < kRecoveredSteps;
      }
      EXPECT_GT(some, 0u);
    }
  }

  std::string error_of_reading(const std::string& path) {
    try {
      whole_steps(Snapshot(path));
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  TemporaryFolder folder_;
  const std::string damaged_ = folder_.file("damaged.h5"), saved_ = folder_.file("saved.h5");
  RecoverResult result_;
};

TEST_F(Recover, TruncatedTracesGiveTheStepsThatAreWhole) { truncate(0, 12); }
TEST_F(Recover, SlowTruncatedTracesGiveTheStepsThatAreWhole) { truncate(12, 212); }

// A step is saved once its chunks lie before the cut: that of its rows, and that of its row in 'steps'. Chunks of all columns are
// written together; that of the histograms' bytes which the last rows need may follow, and holds those of less than a chunk of
// rows.
TEST_F(Recover, ACutTraceKeepsTheStepsWhoseChunksLieBeforeTheCut) {
  for (const Made made : {Made::closed, Made::dead, Made::alive}) {
    const std::string good = make(made);
    uint64_t before = 0;
    for (uint64_t chunk = 1; chunk < kRecoveredSteps * kRowsPerStep / kRecoveredChunk; ++chunk) {
      const size_t at = find_sums(good, chunk);
      ASSERT_NE(at, std::string::npos);
      const size_t steps = recover(good.substr(0, at)).size();
      EXPECT_GE(steps, before);
      const uint64_t ended = (chunk - 1) * kRecoveredChunk / kRowsPerStep;
      EXPECT_GE(steps, ended - ended % spec(TableId::steps).chunk_rows) << chunk;
      EXPECT_LT(steps, kRecoveredSteps);
      before = steps;
    }
    EXPECT_GT(before, 0u);
  }
}

// Up to where in the file lie the chunk of that number of each of the table's columns.
uint64_t end_of_chunk(const std::string& path, TableId table, uint64_t chunk) {
  const hdf5::Handle file(H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT));
  uint64_t end = 0;
  for (const ColumnSpec& column : spec(table).columns) {
    const hdf5::Handle dataset(H5Dopen2(file.get(), column_path(spec(table), column).c_str(), H5P_DEFAULT));
    const hsize_t row = chunk * spec(table).chunk_rows;
    unsigned filters = 0;
    haddr_t address = HADDR_UNDEF;
    hsize_t bytes = 0;
    EXPECT_GE(H5Dget_chunk_info_by_coord(dataset.get(), &row, &filters, &address, &bytes), 0);
    if (address != HADDR_UNDEF) end = std::max<uint64_t>(end, address + bytes);
  }
  return end;
}

// Where the parts of a closed trace lie, found with HDF5 alone, and what of them a cut leaves.
class Places {
 public:
  explicit Places(const std::string& path) : bytes_(read_file(path)) {
    const hdf5::Handle file(H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT));
    tables_.resize(kTables);
    for (const TableSpec& table : trace_schema()) {
      for (const ColumnSpec& column : table.columns) {
        Column& places = tables_[static_cast<size_t>(table.id)].emplace_back();
        const hdf5::Handle dataset(H5Dopen2(file.get(), column_path(table, column).c_str(), H5P_DEFAULT));
        const hdf5::Handle space(H5Dget_space(dataset.get()));
        hsize_t rows = 0, chunks = 0;
        H5Sget_simple_extent_dims(space.get(), &rows, nullptr);
        H5Dget_num_chunks(dataset.get(), space.get(), &chunks);
        places.rows = rows;
        for (hsize_t i = 0; i < chunks; ++i) {
          hsize_t row = 0, size = 0;
          unsigned filters = 0;
          haddr_t address = 0;
          EXPECT_GE(H5Dget_chunk_info(dataset.get(), space.get(), i, &row, &filters, &address, &size), 0);
          places.chunks[row / table.chunk_rows] = {address, size};
        }
        if (!has_tail(table)) continue;
        const hdf5::Handle tail(H5Dopen2(file.get(), tail_path(table, column).c_str(), H5P_DEFAULT));
        places.tail = {H5Dget_offset(tail.get()), rows % table.chunk_rows * size_of(column.type)};
      }
    }
  }

  const std::string& bytes() const { return bytes_; }
  uint64_t rows(TableId table) const { return of(table)[0].rows; }
  // The beginnings and ends of all parts, ascending.
  std::set<uint64_t> borders() const {
    std::set<uint64_t> borders;
    for (const auto& table : tables_) {
      for (const Column& column : table) {
        for (const auto& [number, chunk] : column.chunks) borders.insert({chunk.begin, chunk.begin + chunk.size});
        if (column.tail.size > 0) borders.insert({column.tail.begin, column.tail.begin + column.tail.size});
      }
    }
    return borders;
  }
  bool can_be_read(uint64_t cut, TableId table, size_t column, uint64_t row) const {
    const uint64_t chunk_rows = spec(table).chunk_rows;
    const Column& places = of(table)[column];
    const bool in_tail = has_tail(spec(table)) && row >= places.rows - places.rows % chunk_rows;
    if (in_tail && std::all_of(of(table).begin(), of(table).end(), [&](const Column& any) { return is_left(cut, any.tail); }))
      return true;
    const auto chunk = places.chunks.find(row / chunk_rows);
    return chunk == places.chunks.end() || is_left(cut, chunk->second);
  }
  bool can_be_read(uint64_t cut, TableId table, uint64_t row) const {
    for (size_t i = 0; i < of(table).size(); ++i)
      if (!can_be_read(cut, table, i, row)) return false;
    return true;
  }

 private:
  struct Place {
    uint64_t begin = 0, size = 0;
  };
  struct Column {
    uint64_t rows = 0;
    std::map<uint64_t, Place> chunks;  // those that were written
    Place tail;
  };
  const std::vector<Column>& of(TableId table) const { return tables_[static_cast<size_t>(table)]; }
  // Zeros stand for what is missing: where there were zeros, nothing is.
  bool is_left(uint64_t cut, const Place& place) const {
    const auto at = [&](uint64_t offset) { return bytes_.begin() + static_cast<ptrdiff_t>(offset); };
    const uint64_t end = place.begin + place.size;
    return std::all_of(at(std::min(end, std::max(cut, place.begin))), at(end), [](char byte) { return byte == 0; });
  }

  std::string bytes_;
  std::vector<std::vector<Column>> tables_;
};

// A step is whole where its row in steps is there, its rows in stats and the bytes of their histograms, the end of those before
// them, and the number of the step that the rows before and behind belong to.
TEST_F(Recover, ACutTraceKeepsExactlyItsWholeSteps) {
  constexpr size_t kBytesPerRow = 20;                                        // of histograms, at least
  constexpr uint64_t kFewerSteps = 190, kRows = kFewerSteps * kRowsPerStep;  // the tails hold some whole ones
  write_file(damaged_, make(Made::closed, kFewerSteps));
  const Places places(damaged_);
  ASSERT_EQ(places.rows(TableId::stats), kRows);
  ASSERT_GT(places.rows(TableId::histograms), kRows * kBytesPerRow);
  std::vector<uint64_t> ends(kRows);
  hdf5::File::open(damaged_, damaged_).open_dataset("stats/histogram", ElementType::u64).read_all(ends.data());

  const auto whole = [&](uint64_t cut) {
    const auto is_there = [&](TableId table, uint64_t row) { return places.can_be_read(cut, table, row); };
    const auto column_is_there = [&](const char* name, uint64_t row) {
      const auto& columns = spec(TableId::stats).columns;
      const auto found =
          std::find_if(columns.begin(), columns.end(), [&](const ColumnSpec& column) { return column.name == name; });
      return places.can_be_read(cut, TableId::stats, static_cast<size_t>(found - columns.begin()), row);
    };
    std::vector<uint64_t> steps;
    for (uint64_t step = 0; step < kFewerSteps; ++step) {
      const uint64_t first = step * kRowsPerStep, last = first + kRowsPerStep - 1;
      bool is_whole = is_there(TableId::steps, step);
      if (first > 0) is_whole &= column_is_there("step", first - 1) && column_is_there("histogram", first - 1);
      if (last + 1 < kRows) is_whole &= column_is_there("step", last + 1);
      for (uint64_t row = first; row <= last; ++row) is_whole &= is_there(TableId::stats, row);
      const uint64_t chunk = spec(TableId::histograms).chunk_rows;
      for (uint64_t byte = first == 0 ? 0 : ends[first - 1]; byte < ends[last]; byte = (byte / chunk + 1) * chunk)
        is_whole &= is_there(TableId::histograms, byte);
      if (is_whole) steps.push_back(step);
    }
    return steps;
  };
  std::set<uint64_t> cuts;
  const Philox random(kRecoveredSeed, 5);
  for (uint32_t i = 0; i < 15; ++i) cuts.insert(random.below(i, static_cast<uint32_t>(places.bytes().size())));
  const std::set<uint64_t> borders = places.borders();
  size_t number = 0;
  for (const uint64_t border : borders)
    if (++number % 31 == 0) cuts.insert({border - 1, border, border + 1});
  size_t some = 0, with_gap = 0;
  for (const uint64_t cut : cuts) {
    // What tells where the parts are lies before them; without ops and tensors there are no rows.
    bool is_described = cut >= *borders.begin();
    for (const TableId table : {TableId::run, TableId::strings, TableId::string_bytes, TableId::ops, TableId::tensors})
      for (uint64_t row = 0; row < places.rows(table); ++row) is_described = is_described && places.can_be_read(cut, table, row);
    if (!is_described) continue;
    SCOPED_TRACE(testing::Message() << cut << " of " << places.bytes().size() << " bytes");
    const std::vector<uint64_t> expected = whole(cut), found = recover(places.bytes().substr(0, cut));
    EXPECT_EQ(found, expected);
    some += !expected.empty() && expected.size() < kFewerSteps;
    with_gap += !expected.empty() && expected.back() - expected.front() + 1 > expected.size();
  }
  EXPECT_GT(some, 20u);
  EXPECT_GT(with_gap, 5u);
}

// Columns that hold nothing but their fill values for long, as micro_batch before the first evaluation, keep nothing from being
// saved: neither in the chunks that were never written nor in those behind.
TEST_F(Recover, ACutTraceKeepsItsStepsWhereColumnsBeginLate) {
  constexpr uint64_t kManySteps = 1500, kFewRows = 45;
  const std::string path = folder_.file("late.h5");
  const Philox random(kRecoveredSeed, 0);
  {
    const auto sink = create_trace(path, RunInfo());
    sink->add_op({1, 0, "op", "", Phase::forward, "", {}});
    const uint32_t tensor = sink->add_tensor({});
    for (uint64_t step = 0; step < kManySteps; ++step) {
      for (uint64_t i = 0; i < kFewRows; ++i) {
        TensorRow row;
        row.step = step;
        row.sequence = static_cast<uint32_t>(i);
        row.tensor = tensor;
        row.known = StatisticsLevel::health;
        row.statistics.count = uint64_t{1} << 40;
        row.statistics.zeros = random.below(static_cast<uint32_t>(step * kFewRows + i), UINT32_MAX);
        if (step % 250 == 249) row.micro_batch = 1;
        if (step > 1200) row.statistics.nan = 1;
        sink->add_row(row);
      }
      StepRow ended;
      ended.step = step;
      ended.skipped = step % 700 == 699;
      sink->end_step(ended);
    }
    ASSERT_TRUE(sink->close());
  }
  const std::string good = read_file(path);

  uint64_t most = 0;
  for (const size_t percent : {20, 30, 40, 50, 60, 70, 80, 90, 95, 99}) {
    SCOPED_TRACE(percent);
    const uint64_t cut = good.size() * percent / 100;
    const auto whole = [&](TableId table, uint64_t rows) {
      uint64_t chunks = 0;
      const uint64_t all = rows / spec(table).chunk_rows;
      while (chunks < all && end_of_chunk(path, table, chunks) <= cut) ++chunks;
      return chunks * spec(table).chunk_rows;
    };
    const uint64_t expected = std::min(whole(TableId::steps, kManySteps), whole(TableId::stats, kManySteps * kFewRows) / kFewRows);
    most = std::max(most, expected);
    write_file(damaged_, good.substr(0, cut));
    if (expected == 0) continue;
    EXPECT_GE(recover_trace(damaged_, saved_, true).steps, expected);
  }
  EXPECT_GT(most, kManySteps / 2);
}

TEST_F(Recover, DamagedTracesGiveTheStepsThatAreWhole) { flip_bits(0, 20); }
TEST_F(Recover, SlowDamagedTracesGiveTheStepsThatAreWhole) { flip_bits(20, 400); }

// HDF5 refuses the continued header of a dataset whose checksum is wrong at first, and later takes it from its cache: what a
// damaged one says is not to be read the second time. The ops fill a chunk, which no tail has a second copy of.
TEST_F(Recover, ADamagedHeaderOfADatasetIsNotBelievedTheSecondTime) {
  const std::string path = folder_.file("run.h5");
  RunInfo run;
  run.run_id = "a";
  const auto sink = create_trace(path, run);
  for (uint32_t i = 0; i < spec(TableId::ops).chunk_rows; ++i) {
    sink->add_op({i + 1, 0, fmt::format("op{}", i), "", Phase::forward, "", {}});
    TensorInfo tensor;
    tensor.op = i;
    sink->add_tensor(tensor);
  }
  sink->end_step({});
  ASSERT_TRUE(sink->close());
  const std::string good = read_file(path);
  size_t damaged = 0;
  for (size_t at = good.find("OCHK"); at != std::string::npos; at = good.find("OCHK", at + 1)) {
    std::string bytes = good;
    bytes[at + 12] = static_cast<char>(bytes[at + 12] ^ 1);
    write_file(damaged_, bytes);
    std::string error;
    try {
      error = fmt::format("{} ops", Snapshot(damaged_).ops().size());
    } catch (const Error& refusal) {
      error = refusal.what();
    }
    if (!error.starts_with(fmt::format("'{}': cannot open 'ops/", damaged_))) continue;
    ++damaged;
    SCOPED_TRACE(error);
    try {
      EXPECT_FALSE(recover_trace(damaged_, saved_, true).losses.empty());
    } catch (const Error& refusal) {
      EXPECT_THAT(refusal.what(), HasSubstr("of 'ops/"));
    }
  }
  EXPECT_GE(damaged, 2u);
}

TEST_F(Recover, OfATraceThatIsCutTooEarlyItSaysThat) {
  const std::string good = make(true);
  for (const size_t kept : {good.size() / 50, good.size() / 10}) {
    SCOPED_TRACE(kept);
    write_file(damaged_, good.substr(0, kept));
    try {
      recover_trace(damaged_, saved_, true);
      ADD_FAILURE() << "it was recovered";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::unreadable);
      EXPECT_EQ(std::string(error.what()),
                fmt::format("'{}' is truncated: it has {} of {} bytes, and no step is whole in them", damaged_, kept, good.size()));
    }
  }
}

TEST_F(Recover, ATruncatedTraceSaysHowMuchIsThere) {
  const std::string good = make(true);
  write_file(damaged_, good.substr(0, good.size() - 1000));
  EXPECT_EQ(error_of_reading(damaged_),
            fmt::format("'{}' is truncated: it has {} of {} bytes; `ulpscope recover` may save a part of it", damaged_,
                        good.size() - 1000, good.size()));
}

TEST_F(Recover, ADamagedTailCostsTheStepsInIt) {
  std::string bytes = make(false);
  constexpr uint64_t kRows = kRecoveredSteps * kRowsPerStep, kTail = kRows - kRows % kRecoveredChunk;
  std::string stored;
  for (uint64_t row = kTail; row < kRows; ++row) {
    const double sum = sample_step(kRecoveredSeed, row / kRowsPerStep).rows[row % kRowsPerStep].statistics.sum;
    stored.append(reinterpret_cast<const char*>(&sum), sizeof(sum));
  }
  const size_t at = bytes.find(stored);
  ASSERT_NE(at, std::string::npos);
  bytes[at] = static_cast<char>(bytes[at] ^ 1);
  write_file(damaged_, bytes);
  EXPECT_EQ(error_of_reading(damaged_),
            fmt::format("'{}': the tail of table 'stats' is damaged; `ulpscope recover` may save a part of it", damaged_));
  EXPECT_EQ(recover(bytes).size(), kTail / kRowsPerStep);
}

// One damaged chunk of one column costs the steps that have rows in it, and no other.
TEST_F(Recover, ADamagedChunkCostsItsStepsOnly) {
  const std::string good = make(true);
  // The second chunk of /stats/sum is stored as it is, and its numbers stand nowhere else.
  std::string stored;
  for (uint64_t row = kRecoveredChunk; row < 2 * kRecoveredChunk; ++row) {
    const double sum = sample_step(kRecoveredSeed, row / kRowsPerStep).rows[row % kRowsPerStep].statistics.sum;
    stored.append(reinterpret_cast<const char*>(&sum), sizeof(sum));
  }
  const size_t at = good.find(stored);
  ASSERT_NE(at, std::string::npos);
  std::string bytes = good;
  bytes[at + 100] = static_cast<char>(bytes[at + 100] ^ 1);
  write_file(damaged_, bytes);
  EXPECT_EQ(error_of_reading(damaged_), fmt::format("'{}': cannot read 'stats/sum', rows 0 to 8191: damaged; `ulpscope recover` "
                                                    "may save a part of it",
                                                    damaged_));
  const std::vector<uint64_t> steps = recover(bytes);
  const uint64_t first = kRecoveredChunk / kRowsPerStep, last = (2 * kRecoveredChunk - 1) / kRowsPerStep;
  std::vector<uint64_t> expected;
  for (uint64_t step = 0; step < kRecoveredSteps; ++step) {
    if (step < first || step > last) expected.push_back(step);
  }
  EXPECT_EQ(steps, expected);
  EXPECT_EQ(result_.lost_steps, last - first + 1);
  EXPECT_THAT(result_.losses,
              testing::ElementsAre(fmt::format("rows {} to {} of 'stats/sum' cannot be read: steps {} to {} are lost",
                                               kRecoveredChunk, 2 * kRecoveredChunk - 1, first, last)));
  // Of the other tables the rows of the saved steps are all there.
  const Snapshot reader(saved_);
  uint64_t samples = 0;
  reader.visit_samples({}, [&](std::span<const SampleRow> rows) {
    samples += rows.size();
    return true;
  });
  EXPECT_EQ(samples, 16 * expected.size());
}

// HDF5 reads zeros beyond the end of a file, and the checksum of zeros is zero.
TEST_F(Recover, ZerosAreNotTakenForValues) {
  const std::string good = make(true);
  std::string stored;
  for (uint64_t row = 0; row < kRecoveredChunk; ++row) {
    const double sum = sample_step(kRecoveredSeed, row / kRowsPerStep).rows[row % kRowsPerStep].statistics.sum;
    stored.append(reinterpret_cast<const char*>(&sum), sizeof(sum));
  }
  const size_t at = good.find(stored);
  ASSERT_NE(at, std::string::npos);
  std::string bytes = good;
  std::fill_n(bytes.begin() + static_cast<ptrdiff_t>(at), stored.size() + 4, '\0');  // and its checksum
  write_file(damaged_, bytes);
  EXPECT_THROW(whole_steps(Snapshot(damaged_)), Error);
  EXPECT_EQ(recover(bytes).front(), (kRecoveredChunk - 1) / kRowsPerStep + 1);
}

TEST_F(Recover, WhereNothingCanBeReadNothingIsWritten) {
  const std::string good = make(true);
  EXPECT_TRUE(recover(good.substr(0, 2000)).empty());
  EXPECT_TRUE(recover(good.substr(0, 20)).empty());
  std::string no_root = good;
  std::fill(no_root.begin() + 8, no_root.begin() + 400, '\xFF');
  EXPECT_TRUE(recover(no_root).empty());
}

}  // namespace
}  // namespace ulpscope::trace_test
