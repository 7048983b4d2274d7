// Traces whose checksums are right and whose contents are not: what a broken producer writes, or who changes a trace on purpose.
// Each is an error in one line that says where, found before anything is allocated or walked that the file does not hold, and
// `recover` saves the rest.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hdf5.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <limits>

#include "reading_error.h"
#include "sample_trace.h"
#include "tests/support/temporary_folder.h"
#include "ulpscope/base/error.h"
#include "ulpscope/base/hdf5/hdf5.h"
#include "ulpscope/base/text.h"
#include "ulpscope/trace/commit.h"
#include "ulpscope/trace/recover.h"

namespace ulpscope::trace_test {
namespace {

using testing::HasSubstr;
using trace_detail::CommitRecord;
using trace_detail::CommitWords;
using trace_detail::kCommitWords;

constexpr uint64_t kSteps = 6, kStepOfCaptures = 2;

// A run of two tensors, of which a test changes something before it is written.
struct Contents {
  RunInfo run;
  std::vector<OpInfo> ops;
  std::vector<TensorInfo> tensors;
  std::vector<GraphEdge> edges;
  std::vector<TensorRow> rows;  // two a step
  std::vector<StepRow> steps;
  std::vector<BatchRow> batches;  // of the last step, as the rows of the three tables behind
  std::vector<ParameterRow> parameters;
  std::vector<FingerprintRow> fingerprints;
  std::vector<SampleRow> samples;
  std::vector<EventRow> events;
  std::vector<CaptureRow> captures;  // of kStepOfCaptures
};

Contents good() {
  Contents contents;
  contents.run.run_id = "a";
  contents.ops.resize(2);
  contents.ops[0].id = 1;
  contents.ops[1].id = 2;
  contents.ops[0].name = "linear";
  contents.tensors.resize(2);
  contents.tensors[1].op = 1;
  contents.tensors[1].role = Role::weight_gradient;
  contents.edges.push_back({0, 1, 0, 0, 0});
  for (uint64_t step = 0; step < kSteps; ++step) {
    for (uint32_t tensor = 0; tensor < 2; ++tensor) {
      TensorRow row;
      row.step = step;
      row.sequence = tensor;
      row.tensor = tensor;
      row.known = StatisticsLevel::values;
      row.rounding_known = true;
      row.statistics.count = 10;
      row.statistics.nan = 1;
      row.statistics.zeros = 2;
      row.statistics.negatives = 3;
      row.statistics.histogram.bins[127] = 7;
      row.statistics.smallest = 1;
      row.statistics.largest = 1.5;
      row.statistics.sum_of_squares = 8;
      row.rounding = {.flushed = 1, .subnormal = 2, .inexact_subnormal = 1, .overflowed = 1, .rescued = 0, .saturated = 0};
      contents.rows.push_back(row);
    }
    StepRow ended;
    ended.step = step;
    contents.steps.push_back(ended);
  }
  // Two captures of four nodes, each an operand of the one before.
  for (uint32_t tensor = 0; tensor < 2; ++tensor) {
    for (uint32_t node = 0; node < 4; ++node) {
      CaptureRow& capture = contents.captures.emplace_back();
      capture.step = kStepOfCaptures;
      capture.tensor = tensor;
      capture.node = node;
      capture.parent = static_cast<int64_t>(node) - 1;
      capture.shape = {3, 4};
      capture.element = 11;
    }
  }
  return contents;
}

class Hostile : public testing::Test {
 protected:
  // Rows are given to the step that they are of by their place.
  void write(const Contents& contents) {
    std::filesystem::remove(path_);
    const auto sink = create_trace(path_, contents.run);
    for (const OpInfo& op : contents.ops) sink->add_op(op);
    for (const TensorInfo& tensor : contents.tensors) sink->add_tensor(tensor);
    for (const GraphEdge& edge : contents.edges) sink->add_edge(edge);
    for (const EventRow& event : contents.events) sink->add_event(event);
    const size_t a_step = contents.rows.size() / contents.steps.size();
    for (size_t i = 0; i < contents.rows.size(); ++i) {
      sink->add_row(contents.rows[i]);
      if (i == kStepOfCaptures * a_step)
        for (const CaptureRow& capture : contents.captures) sink->add_capture(capture);
      if (i + 1 == contents.rows.size()) {
        for (const BatchRow& row : contents.batches) sink->add_batch(row);
        for (const ParameterRow& row : contents.parameters) sink->add_parameter(row);
        for (const FingerprintRow& row : contents.fingerprints) sink->add_fingerprint(row);
        for (const SampleRow& row : contents.samples) sink->add_sample(row);
      }
      if ((i + 1) % a_step == 0) sink->end_step(contents.steps[i / a_step]);
    }
    ASSERT_TRUE(sink->close());
  }
  std::string error() const { return reading_error(path_); }
  RecoverResult recover() {
    std::filesystem::remove(saved_);
    const RecoverResult result = recover_trace(path_, saved_);
    const Snapshot saved(saved_);
    read_lines(saved);
    EXPECT_EQ(saved.step_count(), result.steps);
    EXPECT_EQ(saved.tensor_row_count(), result.tensor_rows);
    return result;
  }
  // Other bytes for a text of the trace that was written, as many.
  void replace_text(const std::string& text, const std::string& other) {
    ASSERT_EQ(text.size(), other.size());
    {
      const hdf5::Handle file(H5Fopen(path_.c_str(), H5F_ACC_RDWR, H5P_DEFAULT));
      const hdf5::Handle dataset(H5Dopen2(file.get(), "/string_bytes/byte", H5P_DEFAULT)), space(H5Dget_space(dataset.get()));
      std::string bytes(static_cast<size_t>(H5Sget_simple_extent_npoints(space.get())), '\0');
      ASSERT_GE(H5Dread(dataset.get(), H5T_NATIVE_UINT8, H5S_ALL, H5S_ALL, H5P_DEFAULT, bytes.data()), 0);
      ASSERT_NE(bytes.find(text), std::string::npos);
      bytes.replace(bytes.find(text), text.size(), other);
      ASSERT_GE(H5Dwrite(dataset.get(), H5T_NATIVE_UINT8, H5S_ALL, H5S_ALL, H5P_DEFAULT, bytes.data()), 0);
    }
    change_record([](CommitRecord& record) { record[TableId::string_bytes].tail_checksum = 0; });
  }
  // Of the trace that was written.
  void change_record(const std::function<void(CommitRecord&)>& body) {
    std::string bytes = read_file(path_);
    std::vector<uint64_t> words(2 * kCommitWords);
    for (size_t at = 0; at + words.size() * 8 <= bytes.size(); at += 8) {
      std::memcpy(words.data(), bytes.data() + at, words.size() * 8);
      if (words[1] >= trace_detail::kRecordingStates || words[0] == 0) continue;
      // The first of the two may be the older one, but is one.
      std::vector<uint64_t> first(words.begin(), words.begin() + kCommitWords);
      first.insert(first.end(), words.begin(), words.begin() + kCommitWords);
      auto record = trace_detail::decode(words);
      if (!record || record->generation == 0 || !trace_detail::decode(first)) continue;
      ++record->generation;
      body(*record);
      const CommitWords changed = trace_detail::encode(*record);
      std::memcpy(bytes.data() + at, changed.data(), sizeof(changed));
      std::memcpy(bytes.data() + at + sizeof(changed), changed.data(), sizeof(changed));
      return write_file(path_, bytes);
    }
    FAIL() << "no commit record was found";
  }

  TemporaryFolder folder_;
  const std::string path_ = folder_.file("run.h5"), saved_ = folder_.file("saved.h5");
};

TEST_F(Hostile, AnInconsistentTensorRowIsDamage) {
  struct Case {
    const char* column;
    std::function<void(TensorRow&)> change;
  };
  const double nan = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();
  const Case cases[] = {
      {"scale", [&](TensorRow& row) { row.scale = nan; }},
      {"scale", [&](TensorRow& row) { row.scale = 5e-324; }},
      {"scale", [&](TensorRow& row) { row.scale = -1; }},
      {"scale", [&](TensorRow& row) { row.scale = infinity; }},
      {"quantization_scale", [&](TensorRow& row) { row.quantization_scale = 0; }},
      {"count", [&](TensorRow& row) { row.statistics.count = UINT64_MAX; }},
      {"zeros", [&](TensorRow& row) { row.statistics.nan = UINT64_MAX; }},
      {"zeros", [&](TensorRow& row) { row.statistics.zeros = 10; }},
      {"negatives", [&](TensorRow& row) { row.statistics.negatives = 8; }},
      {"histogram", [&](TensorRow& row) { row.statistics.histogram.bins[127] = 8; }},
      {"histogram", [&](TensorRow& row) { row.statistics.histogram.bins[3] = UINT64_MAX; }},
      {"histogram", [&](TensorRow& row) { row.statistics.histogram.below_range = 1; }},
      {"smallest", [&](TensorRow& row) { row.statistics.smallest = 2; }},
      {"smallest", [&](TensorRow& row) { row.statistics.smallest = nan; }},
      {"largest", [&](TensorRow& row) { row.statistics.largest = infinity; }},
      {"largest", [&](TensorRow& row) { row.statistics.largest = 0; }},
      {"sum", [&](TensorRow& row) { row.statistics.sum = nan; }},
      {"sum", [&](TensorRow& row) { row.statistics.sum = -1e300; }},
      {"sum", [&](TensorRow& row) { row.statistics.sum = 11; }},
      {"sum_of_squares", [&](TensorRow& row) { row.statistics.sum_of_squares = -1; }},
      {"sum_of_squares", [&](TensorRow& row) { row.statistics.sum_of_squares = 2; }},
      {"sum_of_squares", [&](TensorRow& row) { row.statistics.sum_of_squares = nan; }},
      {"flushed", [&](TensorRow& row) { row.rounding.flushed = 8; }},
      {"flushed", [&](TensorRow& row) { row.rounding.overflowed = UINT64_MAX - 1; }},
      {"inexact_subnormal", [&](TensorRow& row) { row.rounding.inexact_subnormal = 3; }},
      {"rescued", [&](TensorRow& row) { row.rounding.rescued = 10; }},
      {"saturated", [&](TensorRow& row) { row.rounding.saturated = 2; }},
      {"input_flushed", [&](TensorRow& row) { row.input.flushed = 1; }},
      {"tensor", [&](TensorRow& row) { row.tensor = 2; }},
      {"known", [&](TensorRow& row) { row.known = static_cast<StatisticsLevel>(9); }},
  };
  write(good());
  EXPECT_EQ(error(), "no error");
  for (const Case& one : cases) {
    SCOPED_TRACE(one.column);
    Contents contents = good();
    one.change(contents.rows[5]);
    write(contents);
    EXPECT_THAT(error(), HasSubstr(std::string("' is damaged: 'stats/") + one.column + "' row 5 "));
    const RecoverResult result = recover();
    EXPECT_EQ(result.steps, kSteps - 1);
    EXPECT_EQ(result.tensor_rows, 2 * kSteps - 2);
    EXPECT_EQ(result.lost_steps, 1u);
    ASSERT_EQ(result.losses.size(), 1u);
    EXPECT_THAT(result.losses[0], HasSubstr("step 2 is lost"));
  }
}

TEST_F(Hostile, OtherRowsAreCheckedToo) {
  struct Case {
    const char* place;
    std::function<void(Contents&)> change;
  };
  const Case cases[] = {
      {"'steps/seconds' row 3 has the value -1; expected finite and at least 0", [](Contents& c) { c.steps[3].seconds = -1; }},
      {"'steps/scale_after' row 3 has the value nan; expected at least 0",
       [](Contents& c) { c.steps[3].scale_after = std::nan(""); }},
      {"'stats/scale' row 4 has the value 5e-324; expected a normal number above 0", [](Contents& c) { c.rows[4].scale = 5e-324; }},
      {"'stats/histogram' row 4 has 8 elements; expected the finite nonzero elements",
       [](Contents& c) { c.rows[4].statistics.histogram.bins[127] = 8; }},
      {"'ops/function' row 1 has the value exp; expected one of the op's kind, or other",
       [](Contents& c) { c.ops[1].kind = OpKind::product, c.ops[1].function = OpFunction::exp; }},
      {"'steps/level' row 3 has the unknown value 77", [](Contents& c) { c.steps[3].level = static_cast<RecordLevel>(77); }},
      {"'tensors/dtype' row 1 has the value i32; expected a floating-point type",
       [](Contents& c) { c.tensors[1].dtype = DType::i32; }},
      {"'tensors/role' row 0 has the unknown value 200", [](Contents& c) { c.tensors[0].role = static_cast<Role>(200); }},
      {"'tensors/op' row 0 refers to row 9 of 2", [](Contents& c) { c.tensors[0].op = 9; }},
      {"'edges/producer' row 0 refers to row 4000000000 of 2", [](Contents& c) { c.edges[0].producer = 4000000000; }},
      {"'ops/phase' row 1 has the unknown value 255", [](Contents& c) { c.ops[1].phase = static_cast<Phase>(255); }},
      {"'run/rank' row 0 has the value 3; expected from 0 to world_size - 1", [](Contents& c) { c.run.rank = 3; }},
      {"'events/tensor' row 0 refers to row 2 of 2", [](Contents& c) { c.events.emplace_back().tensor = 2; }},
      {"'events/count' row 0 has the value", [](Contents& c) { c.events.emplace_back().count = UINT64_MAX; }},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.place);
    Contents contents = good();
    one.change(contents);
    write(contents);
    EXPECT_THAT(error(), HasSubstr(one.place));
  }
}

// Steps that have one of many lost rows, and those that do not.
TEST_F(Hostile, EveryStepThatLostARowIsLostAndNoOther) {
  constexpr uint64_t kMany = 3000;
  Contents contents = good();
  const TensorRow row = contents.rows.front();
  contents.rows.clear();
  contents.steps.clear();
  uint64_t lost = 0;
  for (uint64_t step = 0; step < kMany; ++step) {
    const bool first = step % 3 == 1, second = step % 7 == 2;
    for (const bool is_damaged : {first, second}) {
      TensorRow& added = contents.rows.emplace_back(row);
      added.step = step;
      added.statistics.zeros += is_damaged;
    }
    contents.steps.emplace_back().step = step;
    lost += first || second;
  }
  write(contents);
  const RecoverResult result = recover();
  EXPECT_EQ(result.lost_steps, lost);
  EXPECT_EQ(result.tensor_rows, 2 * (kMany - lost));
  Snapshot(saved_).visit_steps({}, [](std::span<const StepRow> steps) {
    for (const StepRow& step : steps) EXPECT_FALSE(step.step % 3 == 1 || step.step % 7 == 2) << step.step;
    return true;
  });
}

// Where the bytes of a histogram end is where those of the next row begin: the two rows are lost, and no other of their chunk.
TEST_F(Hostile, AWrongEndOfAHistogramCostsTwoRows) {
  for (const uint64_t end : {uint64_t{0}, uint64_t{17}, uint64_t{1} << 62, UINT64_MAX}) {
    SCOPED_TRACE(end);
    write(good());
    {
      const hdf5::Handle file(H5Fopen(path_.c_str(), H5F_ACC_RDWR, H5P_DEFAULT));
      const hdf5::Handle ends(H5Dopen2(file.get(), "/stats/histogram", H5P_DEFAULT));
      std::vector<uint64_t> values(2 * kSteps);
      ASSERT_GE(H5Dread(ends.get(), H5T_NATIVE_UINT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()), 0);
      ASSERT_EQ(values[6], 21u);  // each has 3 bytes
      values[6] = end;
      ASSERT_GE(H5Dwrite(ends.get(), H5T_NATIVE_UINT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()), 0);
    }
    // The tails, a second copy, are no longer one.
    change_record([](CommitRecord& record) { record[TableId::stats].tail_checksum = 0; });
    EXPECT_THAT(error(), HasSubstr("is damaged: 'stats/histogram' row "));
    const RecoverResult result = recover();
    EXPECT_EQ(result.steps, kSteps - 1);
    EXPECT_EQ(result.tensor_rows, 2 * kSteps - 2);
    EXPECT_THAT(result.losses, testing::Each(testing::MatchesRegex("rows? [67].* of 'stats.*' cannot be read: step 3 is lost")));
  }
}

// A step may have more rows than fit into memory: they are not held.
TEST_F(Hostile, TheRowsOfAStepAreCopiedBlockByBlock) {
  constexpr size_t kRows = 40000;
  Contents contents = good();
  contents.captures.clear();
  contents.steps.resize(1);
  TensorRow row = contents.rows.front();
  {
    const auto sink = create_trace(path_, contents.run);
    for (const OpInfo& op : contents.ops) sink->add_op(op);
    for (const TensorInfo& tensor : contents.tensors) sink->add_tensor(tensor);
    for (row.sequence = 0; row.sequence < kRows; ++row.sequence) sink->add_row(row);
    sink->end_step(contents.steps.front());
    ASSERT_TRUE(sink->close());
  }
  // In a process of its own, since what is mapped here is that of all tests before.
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    std::ifstream pages("/proc/self/statm");
    rlim_t used = 0;
    pages >> used;
    const rlim_t most = used * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) + kRows * sizeof(TensorRow) / 2;
    const rlimit limit{most, most};
    setrlimit(RLIMIT_AS, &limit);
    try {
      _exit(recover_trace(path_, saved_).tensor_rows == kRows ? 0 : 1);
    } catch (...) {
      _exit(2);
    }
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// A capture is a tree: what cannot be one is damage, and what is left of it no capture.
TEST_F(Hostile, CapturesAreWholeOrDamage) {
  struct Case {
    const char* place;
    std::function<void(std::vector<CaptureRow>&)> change;
  };
  const Case cases[] = {
      {"'captures/element' row 2 has the value 12; expected one of its shape, or -1", [](auto& rows) { rows[2].element = 12; }},
      {"'captures/node' row 5 has the value 7; expected 0, or one more than the row before has",
       [](auto& rows) { rows[5].node = 7; }},
      {"'captures/node' row 0 has the value 1", [](auto& rows) { rows.erase(rows.begin()); }},
      {"'captures/node' row 2 has the value 3", [](auto& rows) { rows.erase(rows.begin() + 2); }},
      {"'captures/parent' row 6 has the value 2", [](auto& rows) { rows[6].parent = 2; }},
  };
  write(good());
  EXPECT_EQ(error(), "no error");
  EXPECT_EQ(Snapshot(path_).captures().size(), 8u);
  for (const Case& one : cases) {
    SCOPED_TRACE(one.place);
    Contents contents = good();
    one.change(contents.captures);
    write(contents);
    EXPECT_THAT(error(), HasSubstr(one.place));
    const RecoverResult result = recover();
    EXPECT_EQ(result.steps, kSteps);
    EXPECT_EQ(result.losses.back(), "1 capture lost rows and is left out");
    const std::vector<CaptureRow> saved = Snapshot(saved_).captures();
    ASSERT_EQ(saved.size(), 4u);
    for (uint32_t node = 0; node < saved.size(); ++node) EXPECT_EQ(saved[node].node, node);
  }
}

TEST_F(Hostile, TextsAreUtf8) {
  const auto write_name = [&](const std::string& name) {
    Contents contents = good();
    contents.ops[0].name = name;
    write(contents);
  };
  for (const std::string text :
       {"\xC3\x28", "\xC0\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\x80", "\xE2\x82", "\xFF", "\xF8\x88\x80\x80\x80"}) {
    const std::string marker = std::string("~~~~~").substr(0, text.size());
    write_name(marker);
    replace_text(marker, text);
    EXPECT_THAT(error(), HasSubstr("which is damaged"));
    // What a producer says is not written as it is.
    write_name(text);
    EXPECT_EQ(error(), "no error");
    EXPECT_EQ(Snapshot(path_).ops()[0].name, valid_utf8(text));
  }
  for (const char* text : {"", "plain", "\xC2\x80", "\xE2\x82\xAC", "\xED\x9F\xBF", "\xF0\x9F\x98\x80", "\xF4\x8F\xBF\xBF"}) {
    write_name(text);
    EXPECT_EQ(error(), "no error");
    EXPECT_EQ(Snapshot(path_).ops()[0].name, text);
  }
}

// What is wrong of a run costs no step, and nothing else of what the run is.
TEST_F(Hostile, ADamagedFieldOfTheRunCostsThatFieldOnly) {
  struct Case {
    const char* column;
    std::function<void(RunInfo&)> change;
  };
  const Case cases[] = {
      {"growth_factor", [](RunInfo& run) { run.growth_factor = std::nan(""); }},
      {"parent_step", [](RunInfo& run) { run.parent_step = -9; }},
      {"level", [](RunInfo& run) { run.level = static_cast<RecordLevel>(9); }},
      {"every", [](RunInfo& run) { run.every = -1; }},
      {"rank", [](RunInfo& run) { run.rank = 7; }},
      {"world_size", [](RunInfo& run) { run.world_size = 0; }},
      {"producer_version", [](RunInfo&) {}},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.column);
    Contents contents = good();
    contents.run.producer_version = "~~~~";
    contents.run.experiment_name = "name";
    contents.run.seed = 12345;
    one.change(contents.run);
    write(contents);
    if (one.column == std::string("producer_version")) replace_text("~~~~", "\xFF\xFF\xFF\xFF");
    EXPECT_THAT(error(), HasSubstr("may save a part of it"));
    const RecoverResult result = recover();
    EXPECT_EQ(result.steps, kSteps);
    EXPECT_EQ(result.tensor_rows, 2 * kSteps);
    EXPECT_THAT(result.losses, testing::Contains("'run/" + std::string(one.column) +
                                                 "' cannot be read: the copy has it as if it had not been told"));
    const Snapshot saved(saved_);
    EXPECT_EQ(saved.run().experiment_name, "name");
    EXPECT_EQ(saved.run().seed, 12345u);
  }
}

// Nor does a bit of it.
TEST_F(Hostile, ADamagedByteOfTheRunCostsThatFieldOnly) {
  Contents contents = good();
  contents.run.seed = 0x123456789ABCDEF0;
  write(contents);
  uint64_t at = 0;
  {
    const hdf5::Handle file(H5Fopen(path_.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT));
    const hdf5::Handle seed(H5Dopen2(file.get(), "/run/seed", H5P_DEFAULT));
    const hsize_t row = 0;
    unsigned filters = 0;
    haddr_t address = 0;
    hsize_t bytes = 0;
    ASSERT_GE(H5Dget_chunk_info_by_coord(seed.get(), &row, &filters, &address, &bytes), 0);
    at = address;
  }
  std::string bytes = read_file(path_);
  bytes[at + 4] = static_cast<char>(bytes[at + 4] ^ 1);
  write_file(path_, bytes);
  EXPECT_THAT(error(), HasSubstr("cannot read 'run/seed'"));
  const RecoverResult result = recover();
  EXPECT_EQ(result.steps, kSteps);
  EXPECT_EQ(Snapshot(saved_).run().seed, 0u);
  EXPECT_EQ(Snapshot(saved_).run().run_id, "a");
}

// Bytes that deflate makes a thousandth of, and a row of 4 bytes for each reference to them: every row has a copy in memory.
TEST_F(Hostile, TextsThatManyRowsReferToAreDamageBeforeTheyFillTheMemory) {
  const std::string longest(size_t{1} << 24, 'a');
  Contents contents = good();
  for (int i = 0; i < 16; ++i) contents.events.emplace_back().text = longest;
  write(contents);
  EXPECT_EQ(Snapshot(path_).events().size(), 16u);
  contents.events.emplace_back().text = "one";
  contents.events.insert(contents.events.end(), 3, contents.events.front());
  write(contents);
  EXPECT_THAT(error(), HasSubstr("is damaged: 'events/text' row 16 has, with the rows before it, texts of 268435459 bytes; "
                                 "expected at most 268435456"));
  // Some are left to what is said of losses.
  const RecoverResult result = recover_trace(path_, saved_);
  EXPECT_EQ(result.steps, kSteps);
  EXPECT_EQ(Snapshot(saved_).events().size(), 16u);
  EXPECT_THAT(result.losses, testing::ElementsAre("rows 15 to 19 of 'events' cannot be read: they are left out"));

  contents = good();
  const std::vector<CaptureRow> once = contents.captures;
  for (int i = 0; i < 2; ++i) contents.captures.insert(contents.captures.end(), once.begin(), once.end());
  for (CaptureRow& capture : contents.captures) capture.attributes = longest;
  write(contents);
  try {
    Snapshot(path_).captures();
    ADD_FAILURE();
  } catch (const Error& error) {
    // 16 shapes of 2 extents of 8 bytes.
    EXPECT_THAT(error.what(), HasSubstr("is damaged: 'captures/shape' row 15 has, with the rows before it, texts of 268435712 "
                                        "bytes; expected at most 268435456"));
  }
  EXPECT_EQ(recover_trace(path_, saved_, true).losses.back(), "1 capture lost rows and is left out");
  EXPECT_EQ(Snapshot(saved_).captures().size(), 12u);
}

// Where texts end is changed, so that one has the bytes of two.
TEST_F(Hostile, ATextThatIsTooLongIsDamage) {
  Contents contents = good();
  contents.ops[0].name = std::string(size_t{9} << 20, 'a');
  contents.ops[0].module = std::string(size_t{9} << 20, 'b');
  write(contents);
  EXPECT_EQ(error(), "no error");
  {
    const hdf5::Handle file(H5Fopen(path_.c_str(), H5F_ACC_RDWR, H5P_DEFAULT));
    const hdf5::Handle ends(H5Dopen2(file.get(), "/strings/end", H5P_DEFAULT)), space(H5Dget_space(ends.get()));
    std::vector<uint64_t> values(static_cast<size_t>(H5Sget_simple_extent_npoints(space.get())));
    ASSERT_GE(H5Dread(ends.get(), H5T_NATIVE_UINT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()), 0);
    for (size_t i = 1; i + 1 < values.size(); ++i)
      if (values[i] - values[i - 1] == size_t{9} << 20 && values[i + 1] - values[i] == size_t{9} << 20) values[i] = values[i - 1];
    ASSERT_GE(H5Dwrite(ends.get(), H5T_NATIVE_UINT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()), 0);
  }
  EXPECT_THAT(error(), testing::ContainsRegex("is damaged: 'ops/module' row 0 refers to text [0-9]+, of 18874368 bytes; expected "
                                              "at most 16777216"));
}

// What could not be read is not written.
TEST_F(Hostile, ATextThatIsTooLongIsNotRecorded) {
  RunInfo run;
  run.experiment = std::string((size_t{1} << 24) + 1, 'a');
  const std::string expected = "a text of 16777217 bytes cannot be recorded, expected at most 16777216";
  try {
    create_trace(path_, run);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.what(), expected);
  }
  EXPECT_FALSE(std::filesystem::exists(path_));
  const auto sink = create_trace(path_, RunInfo());
  StepRow step;
  sink->end_step(step);
  ASSERT_TRUE(sink->flush());
  OpInfo op;
  op.name = run.experiment;
  sink->add_op(op);
  step.step = 1;
  sink->end_step(step);
  EXPECT_FALSE(sink->close());
  EXPECT_EQ(sink->status().failure, "recording stopped after 1 step: " + expected);
}

// No graph has so many ops that its number were an index.
TEST_F(Hostile, NumbersOfGraphsAreNoSizes) {
  Contents contents = good();
  contents.edges[0].graph = UINT32_MAX;
  contents.edges.push_back({1u << 30, 0, 0, 1, 0});
  write(contents);
  const Snapshot snapshot(path_);
  EXPECT_EQ(snapshot.graph().inputs(1, UINT32_MAX).size(), 1u);
  EXPECT_EQ(snapshot.graph().inputs(1, 0).size(), 0u);
  EXPECT_EQ(snapshot.graph().uses(1).size(), 1u);
}

TEST_F(Hostile, StepsOutOfOrderAreDamageAndCostNoOthers) {
  Contents contents = good();
  contents.rows[5].step = 0;
  write(contents);
  EXPECT_THAT(error(), HasSubstr("is damaged: 'stats/step' row 5 is of step 0, behind step 2"));
  RecoverResult result = recover();
  EXPECT_EQ(result.steps, kSteps - 2);  // it may have been of step 2 or 3
  EXPECT_THAT(result.losses, testing::ElementsAre("row 5 of 'stats/step' cannot be read: steps 2 to 3 are lost"));

  contents = good();
  contents.rows[4].step = UINT64_MAX;
  write(contents);
  EXPECT_THAT(error(), HasSubstr("is damaged: 'stats/step' row 4 is of step 18446744073709551615, expected at most 2^62"));
  result = recover();
  EXPECT_EQ(result.steps, kSteps - 2);
  EXPECT_THAT(result.losses, testing::ElementsAre("row 4 of 'stats/step' cannot be read: steps 1 to 2 are lost"));

  contents = good();
  std::reverse(contents.steps.begin(), contents.steps.end());
  write(contents);
  EXPECT_THAT(error(), HasSubstr("is damaged: 'steps/step' row 1 is of step 4, behind step 5"));
  result = recover();
  EXPECT_EQ(result.steps, 1u);
  EXPECT_EQ(result.lost_steps, kSteps - 1);
  EXPECT_THAT(result.losses, testing::Contains("10 rows of 'stats' are of steps that 'steps' does not have: they are left out"));

  contents = good();
  contents.steps[4].step = 3;
  write(contents);
  EXPECT_THAT(error(), HasSubstr("is damaged: 'steps/step' row 4 is of step 3, behind step 3"));
  result = recover();
  EXPECT_EQ(result.lost_steps, kSteps - result.steps);
  EXPECT_GE(result.steps, kSteps - 3);
  EXPECT_FALSE(result.losses.empty());
}

// They are in order where they come last.
TEST_F(Hostile, RowsOfStepsThatThereAreNotAreLeftOutAndSaid) {
  for (const uint64_t step : {uint64_t{1000}, UINT64_MAX - 1}) {
    Contents contents = good();
    contents.batches.resize(3);
    contents.parameters.resize(2);
    contents.fingerprints.resize(2);
    contents.samples.resize(2);
    for (auto& row : contents.batches) row.step = kSteps - 1;
    contents.batches.back().step = contents.parameters.front().step = contents.parameters.back().step = step;
    contents.fingerprints.back().step = contents.samples.back().step = step;
    write(contents);
    const RecoverResult result = recover();
    EXPECT_EQ(result.steps, kSteps);
    EXPECT_THAT(result.losses,
                testing::UnorderedElementsAre("1 row of 'batches' is of a step that 'steps' does not have: it is left out",
                                              "2 rows of 'parameters' are of steps that 'steps' does not have: they are left out",
                                              "1 row of 'fingerprints' is of a step that 'steps' does not have: it is left out",
                                              "1 row of 'samples' is of a step that 'steps' does not have: it is left out"));
  }
}

// Whoever reads goes by steps: such a row would be in no figure that says so.
TEST_F(Hostile, RowsOfStepsThatThereAreNotAreDamageWhereTheyAreRead) {
  Contents contents = good();
  contents.rows[10].step = contents.rows[11].step = 7;
  write(contents);
  EXPECT_THAT(error(), HasSubstr("is damaged: 'stats/step' row 10 is of step 7, which 'steps' does not have"));
  EXPECT_THAT(recover().losses,
              testing::ElementsAre("2 rows of 'stats' are of steps that 'steps' does not have: they are left out"));
  contents = good();
  contents.fingerprints.resize(1);
  contents.fingerprints[0].step = kSteps;
  write(contents);
  EXPECT_THAT(error(), HasSubstr("is damaged: 'fingerprints/step' row 0 is of step 6, which 'steps' does not have"));
  // Where it is 'steps' that is wrong, that is what is told.
  contents = good();
  contents.steps.back().step = UINT64_MAX;
  write(contents);
  try {
    Snapshot(path_).visit_rows({}, [](std::span<const TensorRow>) { return true; });
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("is damaged: 'steps/step' row 5 is of step 18446744073709551615, expected at most 2^62"));
  }
  // What happened may have happened in none.
  contents = good();
  contents.events.emplace_back().step = 100;
  write(contents);
  EXPECT_EQ(error(), "no error");
}

// What refers to an op by its id would be of either.
TEST_F(Hostile, OpsWithOneIdAreDamage) {
  Contents contents = good();
  contents.ops[1].id = contents.ops[0].id;
  write(contents);
  EXPECT_THAT(error(), HasSubstr("is damaged: 'ops/id' row 1 has the value 1, as row 0; expected an id of its own"));
  const RecoverResult result = recover();
  EXPECT_EQ(result.steps, kSteps);
  EXPECT_THAT(result.losses, testing::ElementsAre("1 row of 'ops' has the id of another: it has none in the copy"));
  EXPECT_EQ(Snapshot(saved_).ops()[0].id, 1u);
  EXPECT_EQ(Snapshot(saved_).ops()[1].id, 0u);
}

// A commit record whose checksum is right, and that tells of rows that are not there.
class HostileCommit : public Hostile {
 protected:
  void change(const std::function<void(CommitRecord&)>& body) {
    write(good());
    change_record(body);
  }
  // All columns of the table, to rows that nobody wrote.
  void extend(TableId table, uint64_t rows) {
    const hdf5::Handle file(H5Fopen(path_.c_str(), H5F_ACC_RDWR, H5P_DEFAULT));
    const hsize_t extent = rows;
    for (const ColumnSpec& column : spec(table).columns) {
      const hdf5::Handle dataset(H5Dopen2(file.get(), column_path(spec(table), column).c_str(), H5P_DEFAULT));
      ASSERT_GE(H5Dset_extent(dataset.get(), &extent), 0);
    }
  }
};

TEST_F(HostileCommit, ThatTellsOfMoreRowsThanThereAre) {
  for (const TableId table : {TableId::stats, TableId::steps, TableId::ops, TableId::strings, TableId::string_bytes,
                              TableId::histograms, TableId::events, TableId::edges}) {
    for (const uint64_t rows : {uint64_t{1} << 22, uint64_t{1} << 30, uint64_t{1} << 40, (uint64_t{1} << 48) - 1}) {
      SCOPED_TRACE(spec(table).name + " " + std::to_string(rows));
      change([&](CommitRecord& record) { record[table] = {rows, rows, 0}; });
      EXPECT_THAT(error(), HasSubstr(spec(table).name));
      EXPECT_THAT(error(), HasSubstr("is damaged"));
      const RecoverResult result = recover();
      EXPECT_LE(result.steps, kSteps);
      EXPECT_THAT(result.losses, testing::Contains(HasSubstr("rows of '" + spec(table).name + "' are missing")));
    }
  }
}

TEST_F(HostileCommit, WithAnUnknownState) {
  for (const uint64_t state : {uint64_t{3}, uint64_t{99}, uint64_t{1} << 63}) {
    change([&](CommitRecord& record) { record.state = static_cast<trace_detail::RecordingState>(state); });
    EXPECT_THAT(error(), HasSubstr(fmt::format("'commit' is damaged: it has the unknown state {}; `ulpscope recover`", state)));
    EXPECT_EQ(recover().steps, kSteps);
  }
}

// Of a table without rows too, as captures of a run in which all is finite.
TEST_F(HostileCommit, ThatTellsOfRowsThatNobodyWrote) {
  change([](CommitRecord&) {});
  const RecoverResult whole = recover();
  for (const TableId table : {TableId::stats, TableId::events, TableId::captures, TableId::samples}) {
    SCOPED_TRACE(spec(table).name);
    const uint64_t rows = uint64_t{1} << 40;
    change([&](CommitRecord& record) { record[table] = {rows, rows, 0}; });
    extend(table, rows);
    EXPECT_THAT(error(),
                HasSubstr(fmt::format("{} rows of table '{}' are in place, and there are chunks for", rows, spec(table).name)));
    // Zeros are not taken for rows of step 0, of which there would be more than of all others.
    const RecoverResult result = recover();
    EXPECT_EQ(result.steps, whole.steps);
    EXPECT_EQ(result.tensor_rows, whole.tensor_rows);
    EXPECT_THAT(result.losses, testing::Contains(HasSubstr("rows of '" + spec(table).name + "' are missing")));
  }
}

}  // namespace
}  // namespace ulpscope::trace_test
