// Traces of other minor versions of the schema: what a newer program added is skipped and said, and what an older one did not write
// is not known.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "other_minor.h"
#include "reading_error.h"
#include "sample_trace.h"
#include "tests/support/temporary_folder.h"
#include "ulpscope/base/error.h"
#include "ulpscope/base/hdf5/hdf5.h"
#include "ulpscope/trace/op_semantics.h"
#include "ulpscope/trace/recover.h"
#include "ulpscope/trace/schema.h"

namespace ulpscope::trace_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr uint64_t kVersionSeed = 31, kVersionSteps = 70;  // a chunk of steps, and a part of one
constexpr uint64_t kNewer = kSchemaMinor + 3;
// One commit record.
constexpr size_t words_of(size_t tables) { return 3 + 3 * tables; }

class MinorVersion : public testing::Test {
 protected:
  void write() const {
    std::filesystem::remove(path_);
    const auto sink = create_trace(path_, sample_run(kVersionSeed));
    add_start(*sink, kVersionSeed);
    for (uint64_t step = 0; step < kVersionSteps; ++step) add_step(*sink, kVersionSeed, step);
    ASSERT_TRUE(sink->close());
  }
  std::string error() const { return reading_error(path_); }
  std::string damaged(const std::string& what) const { return "'" + path_ + "' is damaged: " + what; }
  // The rows of the last, unfilled chunk of a table are no longer in place, as in a trace whose writer was killed.
  void leave_in_tail(TableId table) const {
    const size_t place = place_in_commit(path_, spec(table).name);
    change_commit(path_, [&](std::vector<uint64_t>& record) {
      record[1] = 0;
      ASSERT_NE(record[place + 2], 0u);
      record[place + 1] -= record[place] % spec(table).chunk_rows;
    });
  }

  TemporaryFolder folder_;
  const std::string path_ = folder_.file("run.h5"), copy_ = folder_.file("copy.h5");
  const std::string lost_ = "; without it nothing can be recovered", hint_ = "; `ulpscope recover` may save a part of it";
};

TEST_F(MinorVersion, IsWrittenAndSaid) {
  write();
  const hdf5::File file = hdf5::File::open(path_, path_);
  EXPECT_EQ(file.signed_attribute("/", "schema_version"), int64_t{kSchemaMajor});
  EXPECT_EQ(file.signed_attribute("/", "schema_minor"), int64_t{kSchemaMinor});
  for (const TableSpec& table : trace_schema()) {
    std::vector<std::string> names;
    for (const ColumnSpec& column : table.columns) names.push_back(column.name);
    EXPECT_EQ(file.text_attribute(table.name, "columns"), fmt::format("{}", fmt::join(names, ",")));
  }
  const Snapshot reader(path_);
  EXPECT_EQ(reader.schema_version(), fmt::format("{}.{}", kSchemaMajor, kSchemaMinor));
  EXPECT_TRUE(reader.newer_traces().empty());
}

TEST_F(MinorVersion, WhatANewerOneAddsIsSkippedAndCounted) {
  write();
  set_minor(path_, kNewer);
  EXPECT_EQ(Snapshot(path_).schema_version(), fmt::format("{}.{}", kSchemaMajor, kNewer));
  EXPECT_TRUE(Snapshot(path_).newer_traces().empty());
  const auto counts = [&] {
    const std::vector<NewerTrace> traces = Snapshot(path_).newer_traces();
    EXPECT_EQ(traces.size(), 1u);
    EXPECT_EQ(traces.at(0).path, path_);
    EXPECT_EQ(traces.at(0).schema, fmt::format("{}.{}", kSchemaMajor, kNewer));
    return std::pair(traces.at(0).tables, traces.at(0).columns);
  };
  add_table(path_, "weather", 5);
  EXPECT_EQ(counts(), std::pair(uint64_t{1}, uint64_t{0}));
  add_table(path_, "empty", 0);
  add_column(path_, "steps", "mood");
  add_column(path_, "stats", "color");
  EXPECT_EQ(counts(), std::pair(uint64_t{1}, uint64_t{2}));
  EXPECT_EQ(read_lines(Snapshot(path_)), expected_lines(kVersionSeed, kVersionSteps));
}

// A table without rows has lost nothing.
TEST_F(MinorVersion, AColumnWithoutRowsIsNotMissed) {
  const auto sink = create_trace(path_, sample_run(kVersionSeed));
  ASSERT_TRUE(sink->close());
  set_minor(path_, kNewer);
  add_column(path_, "events", "mood");
  EXPECT_TRUE(Snapshot(path_).newer_traces().empty());
}

// The checksum of a tail is that of all its columns, also those that this program does not know.
TEST_F(MinorVersion, TailsOfANewerOneAreRead) {
  write();
  set_minor(path_, kNewer);
  add_column(path_, "steps", "mood");
  add_column(path_, "stats", "color");
  leave_in_tail(TableId::steps);
  leave_in_tail(TableId::stats);
  EXPECT_EQ(read_lines(Snapshot(path_)), expected_lines(kVersionSeed, kVersionSteps));
  const size_t place = place_in_commit(path_, "stats");
  change_commit(path_, [&](std::vector<uint64_t>& record) { record[place + 2] ^= 1; });
  EXPECT_EQ(error(), "'" + path_ + "': the tail of table 'stats' is damaged" + hint_);
}

TEST_F(MinorVersion, RecoverCopiesWhatIsKnownOfANewerOneAndSaysWhatIsNot) {
  write();
  set_minor(path_, kNewer);
  EXPECT_THAT(recover_trace(path_, copy_).losses, ElementsAre());
  add_table(path_, "weather", 5);
  EXPECT_THAT(recover_trace(path_, copy_, true).losses,
              ElementsAre(fmt::format("written by a newer ulpscope (schema {}.{}): 1 table was not read", kSchemaMajor, kNewer)));
  add_table(path_, "tides", 7);
  add_column(path_, "steps", "mood");
  const std::string expected =
      fmt::format("written by a newer ulpscope (schema {}.{}): 2 tables and 1 column were not read", kSchemaMajor, kNewer);
  const RecoverResult result = recover_trace(path_, copy_, true);
  EXPECT_THAT(result.losses, ElementsAre(expected));
  EXPECT_EQ(result.steps, kVersionSteps);
  const Snapshot copy(copy_);
  EXPECT_EQ(copy.schema_version(), fmt::format("{}.{}", kSchemaMajor, kSchemaMinor));
  TraceLines lines = read_lines(copy), original = expected_lines(kVersionSeed, kVersionSteps);
  EXPECT_THAT(copy.events(),
              testing::Contains(testing::Field(&EventRow::text, "recovered from a damaged or newer trace: " + expected)));
  EXPECT_EQ(lines.events.size(), original.events.size() + 1);
  lines.events.clear();
  original.events.clear();
  EXPECT_EQ(lines, original);
}

TEST_F(MinorVersion, AMinorVersionThatIsNoneIsDamage) {
  write();
  set_minor(path_, -1);
  EXPECT_EQ(error(), damaged("its attribute 'schema_minor' is -1; expected at least 0" + lost_));
  remove_minor(path_);
  EXPECT_EQ(error(), damaged("its attribute 'schema_minor' is missing" + lost_));
}

TEST_F(MinorVersion, CommitRecordsHaveTheTablesOfTheirVersion) {
  write();
  add_table(path_, "weather", 5);
  const size_t words = words_of(kTables);
  EXPECT_EQ(error(), damaged(fmt::format("expected 'commit' to have the shape [2, {}], found [2, {}]", words, words + 3) + lost_));
  set_minor(path_, kNewer);
  EXPECT_EQ(error(), "no error");
  const auto wrong = [&](size_t found) {
    return damaged(
        fmt::format("expected 'commit' to have two records of {} to 1024 tables, found the shape [2, {}]", kTables, found) + lost_);
  };
  change_commit(path_, [&](std::vector<uint64_t>& record) { record.push_back(0); });
  EXPECT_EQ(error(), wrong(words + 4));
  change_commit(path_, [&](std::vector<uint64_t>& record) { record.resize(words - 4); });
  EXPECT_EQ(error(), wrong(words - 3));
  change_commit(path_, [&](std::vector<uint64_t>& record) { record.resize(words_of(1025) - 1); });
  EXPECT_EQ(error(), wrong(words_of(1025)));
}

TEST_F(MinorVersion, ColumnsOfANewerOneAreNamedInTheirOrder) {
  write();
  set_minor(path_, kNewer);
  const std::string columns = read_text_attribute(path_, "edges", "columns");
  EXPECT_EQ(columns, "graph,consumer,input,producer,slot");
  replace_text_attribute(path_, "edges", "columns", "graph,input,consumer,producer,slot");
  EXPECT_EQ(error(), damaged("the attribute 'columns' of table 'edges' does not name 'input' in its place" + lost_));
  replace_text_attribute(path_, "edges", "columns", "graph,consumer,input,producer");
  EXPECT_EQ(error(), damaged("the attribute 'columns' of table 'edges' does not name 'slot' in its place" + lost_));
  replace_text_attribute(path_, "edges", "columns", "");
  EXPECT_EQ(error(), damaged("the attribute 'columns' of table 'edges' is missing" + lost_));
}

// A newer version has all columns of this one.
TEST_F(MinorVersion, AKnownColumnThatANewerOneLacksIsDamage) {
  write();
  set_minor(path_, kNewer);
  remove_object(path_, "steps/seconds");
  EXPECT_EQ(error(), "'" + path_ + "': dataset 'steps/seconds' is missing" + hint_);
}

// Enumerators behind those of this version.
class NewEnumerators : public MinorVersion {
 protected:
  void write_one(
      const std::function<void(OpInfo&, TensorInfo&, SettingInfo&, EventRow&, CaptureRow&, StepRow&, TensorRow&)>& change) {
    OpInfo op;
    op.id = 1;
    op.name = "new";
    TensorInfo tensor;
    SettingInfo setting{"lr", "0.1", SettingKind::learning_rate, true};
    EventRow event;
    event.text = "what happened";
    CaptureRow capture;
    StepRow step;
    TensorRow row;
    change(op, tensor, setting, event, capture, step, row);
    std::filesystem::remove(path_);
    const auto sink = create_trace(path_, sample_run(kVersionSeed));
    sink->add_setting(setting);
    sink->add_op(op);
    sink->add_tensor(tensor);
    sink->add_event(event);
    sink->add_row(row);
    sink->add_capture(capture);
    sink->end_step(step);
    ASSERT_TRUE(sink->close());
  }
};

TEST_F(NewEnumerators, AreReadAsOtherWhereThatSaysEnough) {
  write_one([](OpInfo& op, TensorInfo&, SettingInfo& setting, EventRow& event, CaptureRow& capture, StepRow&, TensorRow&) {
    op.kind = static_cast<OpKind>(kOpKinds);
    op.function = static_cast<OpFunction>(kOpFunctions);
    setting.kind = static_cast<SettingKind>(255);
    event.kind = static_cast<EventKind>(kEventKinds);
    event.metric = static_cast<MetricKind>(kMetricKinds);
    capture.follow = static_cast<CaptureFollow>(kCaptureFollows + 1);
  });
  EXPECT_THAT(error(), HasSubstr("has the unknown value"));
  set_minor(path_, kNewer);
  const auto check = [](const Snapshot& reader, size_t event) {
    EXPECT_EQ(reader.ops().at(0).kind, OpKind::other);
    EXPECT_EQ(reader.ops().at(0).function, OpFunction::other);
    EXPECT_EQ(reader.ops().at(0).name, "new");
    EXPECT_EQ(reader.settings().at(0).kind, SettingKind::other);
    EXPECT_EQ(reader.settings().at(0).name, "lr");
    EXPECT_EQ(reader.events().at(event).kind, EventKind::note);
    EXPECT_EQ(reader.events().at(event).metric, MetricKind::other);
    EXPECT_EQ(reader.events().at(event).text, "what happened");
    EXPECT_EQ(reader.captures().at(0).follow, CaptureFollow::none);
  };
  check(Snapshot(path_), 0);
  // Who has the copy cannot see it any more.
  EXPECT_THAT(recover_trace(path_, copy_).losses,
              ElementsAre(fmt::format("written by a newer ulpscope (schema {}.{})", kSchemaMajor, kNewer),
                          "'captures/follow' has 1 value that this ulpscope does not know: the copy has 'none' instead",
                          "'events/kind' has 1 value that this ulpscope does not know: the copy has 'note' instead",
                          "'events/metric' has 1 value that this ulpscope does not know: the copy has 'other' instead",
                          "'ops/function' has 1 value that this ulpscope does not know: the copy has 'other' instead",
                          "'ops/kind' has 1 value that this ulpscope does not know: the copy has 'other' instead",
                          "'settings/kind' has 1 value that this ulpscope does not know: the copy has 'other' instead"));
  check(Snapshot(copy_), 0);
}

TEST_F(NewEnumerators, AreRefusedWhereARowMeansNothingWithoutThem) {
  using Change = std::function<void(OpInfo&, TensorInfo&, SettingInfo&, EventRow&, CaptureRow&, StepRow&, TensorRow&)>;
  const auto refused = [&](const std::string& column, uint64_t value, const Change& change) {
    write_one(change);
    EXPECT_EQ(error(), damaged(fmt::format("'{}' row 0 has the unknown value {}{}", column, value, hint_)));
    set_minor(path_, kNewer);
    EXPECT_EQ(error(),
              fmt::format("'{}': '{}' row 0 has the value {}, which this ulpscope does not know: the trace has schema {}.{}, "
                          "newer than {}.{}",
                          path_, column, value, kSchemaMajor, kNewer, kSchemaMajor, kSchemaMinor));
  };
  refused("ops/phase", kPhases, [](OpInfo& op, auto&&...) { op.phase = static_cast<Phase>(kPhases); });
  refused("tensors/role", kRoles, [](OpInfo&, TensorInfo& tensor, auto&&...) { tensor.role = static_cast<Role>(kRoles); });
  refused("tensors/dtype", kDTypes.size(),
          [](OpInfo&, TensorInfo& tensor, auto&&...) { tensor.dtype = static_cast<DType>(kDTypes.size()); });
  refused("tensors/rounding", kRoundingModes,
          [](OpInfo&, TensorInfo& tensor, auto&&...) { tensor.rounding = static_cast<RoundingMode>(kRoundingModes); });
  refused("steps/level", 4, [](OpInfo&, TensorInfo&, SettingInfo&, EventRow&, CaptureRow&, StepRow& step, TensorRow&) {
    step.level = static_cast<RecordLevel>(4);
  });
  refused("stats/known", 3, [](OpInfo&, TensorInfo&, SettingInfo&, EventRow&, CaptureRow&, StepRow&, TensorRow& row) {
    row.known = static_cast<StatisticsLevel>(3);
  });
}

// Makes this program one in which columns and tables came later than they did.
class Since {
 public:
  Since(TableId table, std::initializer_list<const char*> columns) {
    for (ColumnSpec& column : declared(table).columns) {
      if (std::find(columns.begin(), columns.end(), column.name) != columns.end()) set(column.since);
    }
  }
  ~Since() {
    for (uint64_t* since : changed_) *since = 0;
  }
  Since(const Since&) = delete;

 private:
  static TableSpec& declared(TableId table) { return const_cast<TableSpec&>(spec(table)); }
  void set(uint64_t& since) {
    EXPECT_EQ(since, 0u);
    since = kSchemaMinor + 1;
    changed_.push_back(&since);
  }

  std::vector<uint64_t*> changed_;
};

TEST_F(MinorVersion, WhatAnOlderOneDidNotWriteIsNotKnown) {
  write();
  const Since of_steps(TableId::steps, {"learning_rate", "level"}),
      of_tensors(TableId::tensors, {"shape", "name", "gradient_input"}),
      of_stats(TableId::stats, {"quantization_scale", "input_flushed"}), of_captures(TableId::captures, {"made_by", "partial_sum"});
  // Tails that do not have them have other checksums.
  for (const TableId table : {TableId::steps, TableId::stats}) {
    const size_t place = place_in_commit(path_, spec(table).name);
    change_commit(path_, [&](std::vector<uint64_t>& record) { record[place + 2] = 0; });
  }
  size_t removed = 0;
  for (const TableSpec& table : trace_schema()) {
    for (const ColumnSpec& column : table.columns) {
      if (column.since <= kSchemaMinor) continue;
      remove_object(path_, column_path(table, column));
      remove_object(path_, tail_path(table, column));
      ++removed;
    }
  }
  EXPECT_EQ(removed, 9u);
  const Snapshot reader(path_);
  EXPECT_TRUE(reader.newer_traces().empty());
  const auto check = [&](const Snapshot& read) {
    uint64_t seen = 0;
    read.visit_steps({}, [&](std::span<const StepRow> rows) {
      for (const StepRow& row : rows) {
        StepRow expected = sample_step(kVersionSeed, row.step).row;
        expected.learning_rate = kUnknown;
        expected.level = RecordLevel::off;
        EXPECT_EQ(line(row), line(expected));
        ++seen;
      }
      return true;
    });
    EXPECT_EQ(seen, kVersionSteps);
    std::vector<TensorInfo> tensors = sample_tensors(kVersionSeed);
    ASSERT_EQ(read.tensors().size(), tensors.size());
    for (size_t i = 0; i < tensors.size(); ++i) {
      EXPECT_TRUE(read.tensors()[i].shape.empty());
      EXPECT_EQ(read.tensors()[i].name, "");
      EXPECT_EQ(read.tensors()[i].gradient_input, -1);
      EXPECT_EQ(read.tensors()[i].parameter, tensors[i].parameter);
      EXPECT_EQ(read.tensors()[i].shard_offset, tensors[i].shard_offset);
    }
    Lines found, expected;
    read.visit_rows({}, [&](std::span<const TensorRow> rows) {
      for (const TensorRow& row : rows) found.push_back(line(row));
      return true;
    });
    for (uint64_t step = 0; step < kVersionSteps; ++step) {
      for (TensorRow row : sample_step(kVersionSeed, step).rows) {
        row.quantization_scale = 1;
        row.input.flushed = 0;
        expected.push_back(line(row));
      }
    }
    EXPECT_EQ(found, expected);
    EXPECT_FALSE(read.captures().empty());
    for (const CaptureRow& row : read.captures()) {
      EXPECT_EQ(row.made_by, -1);
      EXPECT_TRUE(std::isnan(row.partial_sum));
    }
  };
  check(reader);
  EXPECT_THAT(reader.column<double>("quantization_scale"), testing::Each(1.0));
  EXPECT_EQ(reader.column<double>("quantization_scale").size(), reader.tensor_row_count());
  EXPECT_THAT(reader.history<double>(0, "quantization_scale"), testing::Each(1.0));
  EXPECT_THAT(recover_trace(path_, copy_).losses, ElementsAre());
}

TEST_F(MinorVersion, TheCopyOfAnOlderOneIsWhole) {
  write();
  {
    const Since steps(TableId::steps, {"learning_rate"}), runs(TableId::run, {"producer", "seed"});
    remove_object(path_, "steps/learning_rate");
    remove_object(path_, "run/producer");
    remove_object(path_, "run/seed");
    const size_t place = place_in_commit(path_, "steps");
    change_commit(path_, [&](std::vector<uint64_t>& record) { record[place + 2] = 0; });
    EXPECT_THAT(recover_trace(path_, copy_).losses, ElementsAre());
  }
  const Snapshot copy(copy_);
  EXPECT_EQ(copy.step_count(), kVersionSteps);
  copy.visit_steps({}, [](std::span<const StepRow> rows) {
    for (const StepRow& row : rows) EXPECT_TRUE(std::isnan(row.learning_rate));
    return true;
  });
  EXPECT_EQ(copy.run().producer, "");
  EXPECT_EQ(copy.run().seed, 0u);
  EXPECT_EQ(copy.run().machine, sample_run(kVersionSeed).machine);
}

TEST_F(MinorVersion, TailsOfAnOlderOneAreRead) {
  write();
  const Since steps(TableId::steps, {"level"});
  const size_t place = place_in_commit(path_, "steps");
  uint64_t checksum = 0;
  {
    const hdf5::File file = hdf5::File::open(path_, path_);
    const TableSpec& table = spec(TableId::steps);
    const uint64_t rows = kVersionSteps % table.chunk_rows;
    std::vector<std::byte> tail;
    for (const ColumnSpec& column : table.columns) {
      if (column.since > 0) continue;
      tail.resize(rows * size_of(column.type));
      file.open_dataset(tail_path(table, column), column.type).read_rows(0, rows, tail.data());
      checksum = crc_of(checksum, tail.data(), tail.size());
    }
  }
  remove_object(path_, "steps/level");
  remove_object(path_, "tail/steps/level");
  change_commit(path_, [&](std::vector<uint64_t>& record) { record[place + 2] = checksum; });
  leave_in_tail(TableId::steps);
  const Snapshot reader(path_);
  EXPECT_EQ(reader.step_count(), kVersionSteps);
  reader.visit_steps({}, [](std::span<const StepRow> rows) {
    for (const StepRow& row : rows) {
      StepRow expected = sample_step(kVersionSeed, row.step).row;
      expected.level = RecordLevel::off;
      EXPECT_EQ(line(row), line(expected));
    }
    return true;
  });
}

// Leaves out the tables that a minor version did not have yet; they are the last ones.
void leave_out_newer_tables(const std::string& path, uint64_t minor) {
  for (const TableSpec& table : trace_schema()) {
    if (table.since <= minor) continue;
    change_commit(path, [&](std::vector<uint64_t>& record) { record.resize(record.size() - 3); });
    remove_object(path, table.name);
    remove_object(path, fmt::format("tail/{}", table.name));
  }
}

TEST_F(MinorVersion, WhereOpsFirstRanIsNotKnownOfAnOlderOne) {
  write();
  for (const char* column : {"first_step", "first_sequence"}) {
    remove_object(path_, fmt::format("ops/{}", column));
    remove_object(path_, tail_path(spec(TableId::ops), column));
  }
  EXPECT_EQ(error(), "'" + path_ + "': dataset 'ops/first_step' is missing" + hint_);
  leave_out_newer_tables(path_, 1);
  set_minor(path_, 1);
  const Snapshot reader(path_);
  for (const OpInfo& op : reader.ops()) EXPECT_EQ(std::pair(op.first_step, op.first_sequence), std::pair(int64_t{-1}, 0u));
}

// A column that the version of a file has, and the file does not.
TEST_F(MinorVersion, AColumnThatAVersionPromisesIsDamageWhereItIsMissing) {
  write();
  const Since steps(TableId::steps, {"learning_rate"});
  remove_object(path_, "steps/learning_rate");
  EXPECT_EQ(error(), "no error");
  set_minor(path_, kSchemaMinor + 1);
  EXPECT_EQ(error(), "'" + path_ + "': dataset 'steps/learning_rate' is missing" + hint_);
}

TEST_F(MinorVersion, ATableThatAnOlderOneDidNotHaveHasNoRows) {
  write();
  set_minor(path_, 2);
  const size_t words = words_of(kTables);
  EXPECT_EQ(error(), damaged(fmt::format("expected 'commit' to have the shape [2, {}], found [2, {}]", words - 6, words) + lost_));
  leave_out_newer_tables(path_, 2);
  TraceLines expected = expected_lines(kVersionSeed, kVersionSteps);
  EXPECT_FALSE(expected.sums.empty() || expected.bits.empty());
  expected.sums.clear();
  expected.bits.clear();
  EXPECT_EQ(read_lines(Snapshot(path_)), expected);
  EXPECT_EQ(Snapshot(path_).row_count("sums"), 0u);
  EXPECT_EQ(recover_trace(path_, copy_).steps, kVersionSteps);
}

TEST(SchemaMarkdown, SaysSinceWhenATableOrAColumnIsThere) {
  TableSpec table;
  table.name = "weather";
  table.meaning = "What it was like.";
  table.since = 2;
  table.columns.resize(2);
  table.columns[0].name = "rain";
  table.columns[0].meaning = "how much";
  table.columns[0].since = 2;
  table.columns[1].name = "snow";
  table.columns[1].meaning = "how deep";
  table.columns[1].since = 4;
  const std::string text = schema_markdown(std::span(&table, 1));
  EXPECT_THAT(text, HasSubstr(fmt::format("What it was like. 1024 rows a chunk. Since {}.2.\n", kSchemaMajor)));
  EXPECT_THAT(text, HasSubstr("| how much |\n"));
  EXPECT_THAT(text, HasSubstr(fmt::format("| how deep: since {}.4 |\n", kSchemaMajor)));
}

}  // namespace
}  // namespace ulpscope::trace_test
