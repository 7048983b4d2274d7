// The samples of batches, where they come from, and the settings of a run: what of them reaches the trace.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "memory_sink.h"
#include "tests/support/temporary_folder.h"
#include "ulpscope/trace/snapshot.h"

namespace ulpscope {
namespace {

using ::testing::ElementsAre;

SettingInfo setting(const std::string& name) {
  SettingInfo setting;
  setting.name = name;
  return setting;
}
SourceInfo source(uint32_t number) {
  SourceInfo source;
  source.source = number;
  return source;
}

// A step of two passes of training and one of evaluation.
void record_passes(Recorder& recorder, uint64_t step) {
  recorder.begin_step(step);
  recorder.add_batch(Phase::forward, 0, 0, std::vector<int64_t>{7, 2});
  record(recorder, {.id = 1});
  recorder.end_pass();
  recorder.add_batch(Phase::forward, 1, 0, std::vector<int64_t>{5});
  record(recorder, {.id = 1, .micro_batch = 1});
  recorder.end_pass();
  recorder.add_batch(Phase::evaluation, 0, 3, std::vector<int64_t>{0, 1});
  record(recorder, {.id = 2, .phase = Phase::evaluation});
  recorder.end_step({});
}

std::vector<uint64_t> samples_of(const MemorySink& sink) {
  std::vector<uint64_t> samples;
  for (const BatchRow& row : sink.batches) samples.push_back(row.sample);
  return samples;
}

TEST(RecordedBatches, AreThoseOfTheirPass) {
  MemorySink sink;
  Recorder recorder(sink, {.level = RecordLevel::health});
  recorder.add_setting(setting("lr"));
  recorder.add_product({"4 x 8 x 16", "algorithm 1"});
  recorder.add_source(source(3));
  record_passes(recorder, 4);
  EXPECT_EQ(sink.settings.at(0).name, "lr");
  EXPECT_EQ(sink.sources.at(0).source, 3u);
  EXPECT_EQ(sink.products.at(0).algorithm, "algorithm 1");
  EXPECT_THAT(samples_of(sink), ElementsAre(7, 2, 5, 0, 1));
  EXPECT_EQ(sink.batches[0].step, 4u);
  EXPECT_EQ(sink.batches[1].micro_batch, 0u);
  EXPECT_EQ(sink.batches[2].micro_batch, 1u);
  EXPECT_EQ(sink.batches[2].phase, Phase::forward);
  EXPECT_EQ(sink.batches[2].source, 0u);
  EXPECT_EQ(sink.batches[3].phase, Phase::evaluation);
  EXPECT_EQ(sink.batches[3].source, 3u);
}

TEST(RecordedBatches, LevelOffHasNone) {
  MemorySink sink;
  Recorder recorder(sink, {.level = RecordLevel::off});
  recorder.add_setting(setting("lr"));
  recorder.add_product({"4 x 8 x 16", "algorithm 1"});
  recorder.add_source(source(0));
  record_passes(recorder, 0);
  EXPECT_TRUE(sink.batches.empty() && sink.settings.empty() && sink.sources.empty() && sink.products.empty());
}

// Rows of any op are easier to explain with the samples; those of an evaluation that is not recorded explain nothing.
TEST(RecordedBatches, FollowNoFilterButThatOfEvaluation) {
  for (const bool with_evaluation : {false, true}) {
    MemorySink sink;
    RecorderOptions options{.level = RecordLevel::health, .modules = {"head"}, .ops = {"linear"}, .phases = {Phase::optimizer}};
    if (with_evaluation) options.phases.push_back(Phase::evaluation);
    Recorder recorder(sink, options);
    record_passes(recorder, 0);
    EXPECT_EQ(sink.batches.size(), with_evaluation ? 5u : 3u);
    EXPECT_TRUE(sink.rows.empty());
  }
}

// With rows that cost nothing, batches alone reach the limit: before it is passed they end.
TEST(RecordedBatches, EndAtTheSizeLimit) {
  MemorySink sink;
  sink.batch_bytes = 10;
  const uint64_t room = 100000;
  Recorder recorder(sink, {.level = RecordLevel::health, .max_bytes = empty_trace_bytes() + room});
  std::vector<int64_t> numbers(600);
  std::iota(numbers.begin(), numbers.end(), 0);
  for (uint64_t step = 0; step < 40; ++step) {
    recorder.begin_step(step);
    recorder.add_batch(Phase::forward, 0, 0, numbers);
    recorder.end_step({});
  }
  const double most = 0.92 * static_cast<double>(room);  // LevelControl::kRowsShare
  EXPECT_LE(static_cast<double>(sink.batches.size() * sink.batch_bytes), most);
  EXPECT_GT(static_cast<double>((sink.batches.size() + numbers.size()) * sink.batch_bytes), most);
  EXPECT_EQ(sink.batches.size() % numbers.size(), 0u);
  EXPECT_FALSE(sink.events_of(EventKind::cut_short).empty());
}

// The same with a file: numbers that do not compress well.
TEST(RecordedBatches, KeepTheFileWithinItsLimit) {
  const TemporaryFolder folder;
  const std::string path = folder.file("trace.h5");
  const uint64_t limit = empty_trace_bytes() + 200000;
  RunInfo run;
  run.run_id = std::string(32, '0');
  const std::unique_ptr<TraceSink> sink = create_trace(path, run);
  Recorder recorder(*sink, {.level = RecordLevel::stats, .max_bytes = limit});
  std::vector<int64_t> numbers(5000);
  uint64_t state = 1, steps = 200;
  for (uint64_t step = 0; step < steps; ++step) {
    for (int64_t& number : numbers) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      number = static_cast<int64_t>(state >> 24);
    }
    recorder.begin_step(step);
    recorder.add_batch(Phase::forward, 0, 0, numbers);
    recorder.end_step({});
  }
  sink->close();
  const Snapshot trace(path);
  EXPECT_LE(trace.file_bytes(), limit);
  uint64_t rows = 0;
  trace.visit_batches({}, [&](std::span<const BatchRow> some) {
    rows += some.size();
    return true;
  });
  EXPECT_GT(rows, 0u);
  EXPECT_LT(rows, steps * numbers.size());
}

}  // namespace
}  // namespace ulpscope
