// How much is asked for and written: levels, intervals, filters, the size limit, a slow writer and one that failed.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "memory_sink.h"

namespace ulpscope {
namespace {

using ::testing::HasSubstr;

// What the recorder asks of one op's output at `step`.
OutputRecord request(Recorder& recorder, uint64_t step, const FakeOp& op = {.id = 1}) {
  OutputRecord seen;
  recorder.begin_step(step);
  FakeOp looking = op;
  looking.fill = [&](OutputRecord& record) { seen = record; };
  record(recorder, looking);
  recorder.end_step({});
  return seen;
}

TEST(RecorderLevels, OffDoesNothing) {
  MemorySink sink;
  Recorder recorder(sink, {.level = RecordLevel::off, .stop_on = StopOn::nan});
  recorder.begin_step(0);
  const OutputDescription output = float_output(Role::activation);
  OpDescription op;
  op.id = 1;
  op.outputs = {&output, 1};
  EXPECT_TRUE(recorder.before(op).empty());
  EXPECT_EQ(recorder.after(), std::nullopt);
  recorder.add_warning("w");
  recorder.add_metric("m", MetricKind::other, 1);
  recorder.end_step({});
  EXPECT_TRUE(sink.ops.empty() && sink.rows.empty() && sink.events.empty() && sink.steps.empty());
}

TEST(RecorderLevels, MeasuresStandBesideRowsOfTheirOutputs) {
  const auto measured = [](RecorderOptions options, const ValueKey& output) {
    MemorySink sink;
    Recorder recorder(sink, std::move(options));
    recorder.begin_step(3);
    record(recorder, {.id = 1, .module = "a"});
    record(recorder, {.id = 2, .module = "b", .micro_batch = 4, .loss_index = 5});
    recorder.add_measure(output, "error", 0.5);
    recorder.end_step({});
    return sink.measures;
  };
  const std::vector<MeasureRow> rows = measured({}, {2, 0});
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].step, 3u);
  EXPECT_EQ(rows[0].micro_batch, 4u);
  EXPECT_EQ(rows[0].loss_index, 5);
  EXPECT_EQ(rows[0].tensor, 1u);
  EXPECT_EQ(rows[0].name, "error");
  EXPECT_EQ(rows[0].value, 0.5);
  // An op that ran before, an output that there is none of, and outputs whose rows nobody asked for.
  EXPECT_TRUE(measured({}, {1, 0}).empty());
  EXPECT_TRUE(measured({}, {2, 1}).empty());
  EXPECT_TRUE(measured({.modules = {"a"}}, {2, 0}).empty());
  EXPECT_TRUE(measured({.level = RecordLevel::off}, {2, 0}).empty());
}

// Integers have them too, and steps between those of every=N; filters leave them out, as they leave out rows.
TEST(RecorderLevels, HashesOfBitsAreRecordedOfEveryOutput) {
  const auto recorded = [](RecorderOptions options) {
    MemorySink sink;
    Recorder recorder(sink, std::move(options));
    OutputDescription integers = float_output(Role::input, "", DType::i64);
    for (uint64_t step = 0; step < 2; ++step)
      record_step(recorder, step,
                  {{.id = 1, .module = "a", .outputs = {integers}},
                   {.id = 2, .module = "a", .micro_batch = 4, .loss_index = 5},
                   {.id = 3, .module = "b", .outputs = {float_output(Role::activation), integers}}});
    std::vector<std::string> rows;
    for (const BitsRow& row : sink.bits)
      rows.push_back(fmt::format("{} {} {} {} {}", row.step, row.micro_batch, row.loss_index, row.tensor, row.hash));
    EXPECT_EQ(sink.steps.size(), 2u);
    return rows;
  };
  using testing::ElementsAre;
  EXPECT_THAT(recorded({.level = RecordLevel::health, .bits = true, .every = 2}),
              ElementsAre("0 0 0 0 1001", "0 4 5 1 1002", "0 0 0 2 1003", "0 0 0 3 1003", "1 0 0 0 1001", "1 4 5 1 1002",
                          "1 0 0 2 1003", "1 0 0 3 1003"));
  EXPECT_THAT(recorded({.bits = true, .modules = {"b"}}),
              ElementsAre("0 0 0 2 1003", "0 0 0 3 1003", "1 0 0 2 1003", "1 0 0 3 1003"));
  EXPECT_THAT(recorded({}), ElementsAre());
}

// A recorder that shares records with another one that wants hashes writes none itself.
TEST(RecorderLevels, HashesThatAnotherWantedAreNotRecorded) {
  MemorySink sink;
  Recorder recorder(sink, {});
  recorder.begin_step(0);
  record(recorder, {.id = 1, .fill = [](OutputRecord& out) { out.bits = {true, true, 7}; }});
  recorder.end_step({});
  EXPECT_TRUE(sink.bits.empty());
  EXPECT_EQ(sink.rows.size(), 1u);
}

TEST(RecorderLevels, AskForWhatTheyRecord) {
  const struct {
    RecordLevel level;
    StatisticsLevel wanted;
    int samples;
  } cases[] = {{RecordLevel::health, StatisticsLevel::health, 0},
               {RecordLevel::stats, StatisticsLevel::values, 0},
               {RecordLevel::full, StatisticsLevel::values, 16}};
  for (const auto& expected : cases) {
    MemorySink sink;
    Recorder recorder(sink, {.level = expected.level});
    const OutputRecord seen = request(recorder, 0, {.id = 1, .scale = 256});
    EXPECT_EQ(seen.wanted, expected.wanted);
    EXPECT_EQ(seen.samples_wanted, expected.samples);
    EXPECT_EQ(seen.scale, 256);
    ASSERT_EQ(sink.rows.size(), 1u);
    EXPECT_EQ(sink.rows[0].known, expected.wanted);
    EXPECT_EQ(sink.rows[0].statistics.count, 8u);
    EXPECT_EQ(sink.rows[0].statistics.histogram.total(), expected.wanted == StatisticsLevel::values ? 8u : 0u);
    EXPECT_EQ(sink.samples.size(), static_cast<size_t>(expected.samples));
    EXPECT_EQ(sink.steps.at(0).level, expected.level);
  }
}

// A record is reused: nothing of a full one may show through a later one.
TEST(RecorderLevels, IntervalsThinHistogramsOnly) {
  MemorySink sink;
  Recorder recorder(sink, {.level = RecordLevel::full, .every = 3});
  for (uint64_t step = 0; step < 7; ++step) {
    const FakeOp op{.id = 1, .fill = [&](OutputRecord& record) {
                      record.rounding_known = true;
                      record.rounding.flushed = step;
                    }};
    record_step(recorder, step, {op});
  }
  ASSERT_EQ(sink.rows.size(), 7u);
  for (const TensorRow& row : sink.rows) {
    const bool whole = row.step % 3 == 0;
    EXPECT_EQ(row.known, whole ? StatisticsLevel::values : StatisticsLevel::health);
    EXPECT_EQ(row.statistics.histogram.total(), whole ? 8u : 0u);
    EXPECT_EQ(row.statistics.sum, whole ? 4 : 0);
    EXPECT_EQ(row.statistics.count, 8u);
    EXPECT_TRUE(row.rounding_known);
    EXPECT_EQ(row.rounding.flushed, row.step);
  }
  EXPECT_EQ(sink.samples.size(), 3u * 16);
  for (const StepRow& row : sink.steps) EXPECT_EQ(row.level, row.step % 3 == 0 ? RecordLevel::full : RecordLevel::health);
}

// Backends add to what they find.
TEST(RecorderLevels, RecordsComeCleared) {
  MemorySink sink;
  Recorder recorder(sink, {.level = RecordLevel::full, .every = 2});
  const FakeOp dirty{.id = 1, .fill = [](OutputRecord& record) {
                       if (record.known == StatisticsLevel::values) {
                         record.statistics.sum_of_squares = record.statistics.smallest = record.statistics.largest = 5;
                         record.statistics.histogram.bins[3] = record.statistics.histogram.below_range = 5;
                         record.statistics.negatives = 5;
                       }
                       record.statistics.zeros = record.statistics.nan = 5;
                       record.rounding = {1, 2, 3, 4, 5};
                       record.update = {1, 2, 3, 4};
                       record.fingerprint = {true, true, 7};
                       record.before_rounding = record.rounding_known = record.update_known = true;
                     }};
  const OutputDescription output = float_output(Role::activation);
  for (uint64_t step = 0; step < 4; ++step) {
    record_step(recorder, 2 * step + step % 2, {dirty});  // 0, 3, 4, 7: after whole ones and after thinned ones
    recorder.begin_step(1000);
    OpDescription op;
    op.id = 1;
    op.outputs = {&output, 1};
    const OutputRecord& record = *recorder.before(op)[0];
    EXPECT_EQ(record.known, StatisticsLevel::none);
    EXPECT_EQ(record.statistics, TensorStatistics{});
    EXPECT_EQ(record.rounding, RoundingCounts{});
    EXPECT_EQ(record.update.nonzero + record.update.lost + record.update.lost_to_decay, 0u);
    EXPECT_EQ(record.update.learning_rate, 0);
    EXPECT_FALSE(record.fingerprint.wanted || record.fingerprint.known);
    EXPECT_FALSE(record.before_rounding || record.rounding_known || record.update_known);
    EXPECT_EQ(record.samples, 0);
    recorder.end_step({});
  }
}

TEST(RecorderLevels, WhatABackendDoesNotKnowStaysUnknown) {
  MemorySink sink;
  Recorder recorder(sink, {});
  const FakeOp known{.id = 1};
  const FakeOp unknown{.id = 2, .fill = [](OutputRecord& record) {
                         record.known = StatisticsLevel::none;
                         record.rounding.flushed = 3;  // without rounding_known it means nothing
                       }};
  record_step(recorder, 0, {known, unknown});
  ASSERT_EQ(sink.rows.size(), 2u);
  EXPECT_EQ(sink.rows[1].known, StatisticsLevel::none);
  EXPECT_FALSE(sink.rows[1].rounding_known);
  EXPECT_EQ(sink.rows[1].rounding, RoundingCounts{});
  EXPECT_EQ(sink.rows[1].statistics, TensorStatistics{});
}

// Another observer may ask for more or for less: neither changes what is recorded.
TEST(RecorderLevels, SharedRecordsAreRecordedAsFarAsAskedFor) {
  for (const RecordLevel level : {RecordLevel::health, RecordLevel::stats, RecordLevel::full}) {
    MemorySink alone, beside;
    Recorder first(alone, {.level = level}), second(beside, {.level = level});
    record_step(first, 0, {{.id = 1}});

    OutputRecord records[2];
    OutputRecord* const shared[] = {&records[0], &records[1]};
    for (OutputRecord& record : records) {
      record.wanted = StatisticsLevel::values;
      record.samples_wanted = 16;
    }
    const OutputDescription outputs[] = {float_output(Role::activation), float_output(Role::activation, "", DType::u8)};
    OpDescription op;
    op.name = "add";
    op.id = 1;
    op.outputs = outputs;
    second.begin_step(0);
    second.before(op, shared);
    EXPECT_EQ(records[0].wanted, StatisticsLevel::values);
    EXPECT_EQ(records[0].samples_wanted, 16);
    for (OutputRecord& record : records) fill(record, {});
    second.after();
    second.end_step({});

    ASSERT_EQ(beside.rows.size(), 1u) << "integers have no rows, whoever asks";
    EXPECT_EQ(beside.rows[0].known, alone.rows.at(0).known);
    EXPECT_EQ(beside.rows[0].statistics, alone.rows[0].statistics);
    EXPECT_EQ(beside.samples.size(), alone.samples.size());
  }
}

// The batches of an evaluation: the records of one are enough for all.
TEST(RecorderPasses, EachIsWrittenWhenItEndsAndBelongsToItsStep) {
  MemorySink sink, whole_sink;
  Recorder recorder(sink, {.stop_on = StopOn::nan}), whole(whole_sink, {.stop_on = StopOn::nan});
  std::vector<FakeOp> all;
  recorder.begin_step(4);
  for (uint32_t pass = 0; pass < 3; ++pass) {
    for (uint64_t id = 1; id <= 40; ++id) {
      all.push_back({.id = 100 * pass + id, .nan = pass == 1 && id > 20 ? id : 0, .micro_batch = pass});
      record(recorder, all.back());
    }
    EXPECT_EQ(sink.rows.size(), 40 * pass);
    recorder.end_pass();
    EXPECT_EQ(sink.rows.size(), 40 * (pass + 1));
  }
  recorder.end_step({});
  record_step(whole, 4, all);
  ASSERT_EQ(sink.rows.size(), whole_sink.rows.size());
  for (size_t i = 0; i < sink.rows.size(); ++i) {
    EXPECT_EQ(sink.rows[i].step, 4u);
    EXPECT_EQ(sink.rows[i].sequence, i);
    EXPECT_EQ(sink.rows[i].tensor, whole_sink.rows[i].tensor);
    EXPECT_EQ(sink.rows[i].micro_batch, whole_sink.rows[i].micro_batch);
    EXPECT_EQ(sink.rows[i].statistics, whole_sink.rows[i].statistics);
  }
  ASSERT_EQ(sink.steps.size(), 1u);
  ASSERT_EQ(sink.events.size(), whole_sink.events.size());
  for (size_t i = 0; i < sink.events.size(); ++i) {
    EXPECT_EQ(sink.events[i].tensor, whole_sink.events[i].tensor);
    EXPECT_EQ(sink.events[i].text, whole_sink.events[i].text);
  }
  EXPECT_EQ(recorder.stop_reason(), whole.stop_reason());
}

TEST(RecorderPasses, OneTakesTheRecordsOfTheOneBefore) {
  MemorySink sink;
  Recorder recorder(sink, {});
  std::set<const OutputRecord*> records;
  recorder.begin_step(0);
  for (int pass = 0; pass < 100; ++pass) {
    for (uint64_t id = 1; id <= 8; ++id)
      record(recorder, {.id = id, .fill = [&](OutputRecord& record) { records.insert(&record); }});
    recorder.end_pass();
  }
  recorder.end_step({});
  EXPECT_EQ(records.size(), 8u);
  EXPECT_EQ(sink.rows.size(), 800u);
}

TEST(RecorderPasses, TheSizeLimitHoldsWithinAStep) {
  MemorySink sink;
  sink.row_bytes = 100;
  Recorder recorder(sink, {.max_bytes = empty_trace_bytes() + 100000});
  recorder.begin_step(0);
  for (int pass = 0; pass < 2000; ++pass) {
    record(recorder, {.id = 1});
    recorder.end_pass();
  }
  recorder.end_step({});
  EXPECT_EQ(sink.rows.size(), 920u);  // 920 * 100 bytes are 92% of the room
  EXPECT_EQ(sink.steps.size(), 1u) << "what the step says itself is still written";
  record_step(recorder, 1, {{.id = 1}});
  EXPECT_EQ(sink.rows.size(), 920u);
}

std::vector<uint64_t> recorded_ids(const RecorderOptions& options, const std::vector<FakeOp>& ops) {
  MemorySink sink;
  Recorder recorder(sink, options);
  record_step(recorder, 0, ops);
  EXPECT_EQ(sink.ops.size(), ops.size());  // described, whether they have rows or not
  std::vector<uint64_t> ids;
  for (const TensorRow& row : sink.rows) ids.push_back(sink.ops[sink.tensors[row.tensor].op].id);
  return ids;
}

TEST(RecorderFilters, ThinRowsByModuleOpAndPhase) {
  const std::vector<FakeOp> ops{{.id = 1, .name = "conv2d", .module = "features.0"},
                                {.id = 2, .name = "relu", .module = "features.1"},
                                {.id = 3, .name = "linear", .module = "classifier"},
                                {.id = 4, .name = "conv2d_backward_input", .module = "features.0", .phase = Phase::backward}};
  using Ids = std::vector<uint64_t>;
  EXPECT_EQ(recorded_ids({}, ops), (Ids{1, 2, 3, 4}));
  EXPECT_EQ(recorded_ids({.modules = {"features.*"}}, ops), (Ids{1, 2, 4}));
  EXPECT_EQ(recorded_ids({.modules = {"classifier", "features.1"}}, ops), (Ids{2, 3}));
  EXPECT_EQ(recorded_ids({.ops = {"conv2d*"}}, ops), (Ids{1, 4}));
  EXPECT_EQ(recorded_ids({.ops = {"conv2d"}}, ops), (Ids{1}));
  EXPECT_EQ(recorded_ids({.phases = {Phase::backward, Phase::loss}}, ops), (Ids{4}));
  EXPECT_EQ(recorded_ids({.modules = {"features.*"}, .phases = {Phase::forward}}, ops), (Ids{1, 2}));
}

TEST(RecorderFilters, WhatTheyLeaveOutIsStillWatched) {
  MemorySink sink;
  Recorder recorder(sink, {.ops = {"linear"}});
  EXPECT_EQ(request(recorder, 0, {.id = 2, .name = "relu"}).wanted, StatisticsLevel::health);
  EXPECT_TRUE(sink.rows.empty());
  record_step(recorder, 1, {{.id = 2, .name = "relu", .nan = 3}, {.id = 1, .name = "linear"}});
  ASSERT_EQ(sink.rows.size(), 2u);
  EXPECT_EQ(sink.rows[0].statistics.nan, 3u);
  EXPECT_EQ(sink.rows[0].known, StatisticsLevel::health);
  ASSERT_EQ(sink.events_of(EventKind::nonfinite).size(), 1u);
  // The whole way that a NaN takes through the step.
  record_step(recorder, 2, {{.id = 2, .name = "relu", .nan = 3}, {.id = 3, .name = "add", .nan = 1}, {.id = 4, .name = "mul"}});
  EXPECT_EQ(sink.rows_of(2).size(), 2u);
}

TEST(RecorderLimits, SizeLimitLowersThenStops) {
  MemorySink sink;
  const uint64_t limit = empty_trace_bytes() + 1000000;
  Recorder recorder(sink, {.level = RecordLevel::full, .max_bytes = limit});
  const auto step = [&](uint64_t number, uint64_t bytes) {
    sink.state.bytes = bytes;
    const size_t rows = sink.rows.size();
    record_step(recorder, number, {{.id = 1}});
    return sink.rows.size() - rows;
  };
  EXPECT_EQ(step(0, 500000), 1u);
  EXPECT_TRUE(sink.events.empty());
  EXPECT_EQ(step(1, 800001), 1u);  // seen at the end of the step, so the level of the next
  ASSERT_EQ(sink.events.size(), 1u);
  EXPECT_EQ(sink.events[0].kind, EventKind::level_lowered);
  EXPECT_EQ(sink.events[0].step, 1u);
  EXPECT_THAT(sink.events[0].text, HasSubstr("is used: level full lowered to health"));
  EXPECT_EQ(recorder.limits_met(), fmt::format("level health from step 2 on: the size limit is {} bytes", limit));
  EXPECT_EQ(step(2, 810000), 1u);
  EXPECT_EQ(sink.rows.back().known, StatisticsLevel::health);
  EXPECT_EQ(sink.steps.back().level, RecordLevel::health);
  EXPECT_EQ(step(3, 920001), 0u);
  ASSERT_EQ(sink.events.size(), 2u);
  EXPECT_EQ(sink.events[1].kind, EventKind::cut_short);
  EXPECT_EQ(step(4, 960000), 0u);
  EXPECT_EQ(sink.steps.size(), 5u);  // step rows go on
  EXPECT_EQ(step(5, 980001), 0u);
  EXPECT_EQ(sink.steps.size(), 6u);  // with the message
  EXPECT_THAT(sink.events.back().text, HasSubstr("nothing but metrics is recorded from step 6 on"));
  for (uint64_t number = 6; number < 100; ++number) EXPECT_EQ(step(number, 980001), 0u);
  EXPECT_EQ(sink.steps.size(), 6u);
  EXPECT_EQ(sink.events.size(), 3u);
  EXPECT_EQ(recorder.limits_met(), fmt::format("level health from step 2 on, no tensor rows from step 3 on, nothing but metrics "
                                               "from step 6 on: the size limit is {} bytes",
                                               limit));
  const auto metric = [&](uint64_t number) {
    recorder.begin_step(number);
    recorder.add_warning("not written any more");
    recorder.add_metric("test_accuracy", MetricKind::evaluation_accuracy, 0.5);
    recorder.end_step({});
  };
  metric(100);
  EXPECT_EQ(sink.events.size(), 4u);
  EXPECT_EQ(sink.steps.back().step, 100u);  // a metric is worth a step
  record_step(recorder, 101, {{.id = 1}});
  EXPECT_EQ(sink.steps.back().step, 100u);
  sink.state.bytes = 1000001;
  metric(102);
  EXPECT_EQ(sink.events.size(), 4u) << "the limit holds for metrics too";
  EXPECT_EQ(sink.steps.back().step, 100u);
}

// Of a small room a step may take more than what is left, and only for its histograms: its rows are written without them.
TEST(RecorderLimits, RowsThatFitAtALowerLevelAreWrittenAtThat) {
  for (const RecordLevel level : {RecordLevel::stats, RecordLevel::full}) {
    MemorySink sink;
    const uint64_t limit = empty_trace_bytes() + 1000000;
    Recorder recorder(sink, {.level = level, .max_bytes = limit});
    sink.row_bytes = 1000;
    sink.histogram_bytes = 200000;
    sink.state.bytes = 100000;
    record_step(recorder, 0, {{.id = 1}, {.id = 2}});
    EXPECT_TRUE(sink.events.empty());
    EXPECT_EQ(sink.steps.back().level, level);
    sink.state.bytes = 600000;
    const size_t samples = sink.samples.size();
    record_step(recorder, 1, {{.id = 1}, {.id = 2}});
    ASSERT_EQ(sink.rows_of(1).size(), 2u);
    for (const TensorRow& row : sink.rows_of(1)) {
      EXPECT_EQ(row.known, StatisticsLevel::health);
      EXPECT_EQ(row.statistics.histogram.total(), 0u);
    }
    EXPECT_EQ(sink.samples.size(), samples);
    EXPECT_EQ(sink.steps.back().level, RecordLevel::health);
    ASSERT_EQ(sink.events.size(), 1u);
    EXPECT_EQ(sink.events[0].kind, EventKind::level_lowered);
    EXPECT_EQ(sink.events[0].step, 1u);
    EXPECT_EQ(sink.events[0].text,
              fmt::format("80% of the room within the size limit of {} bytes is used with this step's rows: level "
                          "{} lowered to health",
                          limit, name_of(level)));
    EXPECT_EQ(recorder.limits_met(), fmt::format("level health from step 1 on: the size limit is {} bytes", limit));
    record_step(recorder, 2, {{.id = 1}, {.id = 2}});
    EXPECT_EQ(sink.rows_of(2).size(), 2u);
    EXPECT_EQ(sink.events.size(), 1u);
    sink.state.bytes = 920000;
    record_step(recorder, 3, {{.id = 1}, {.id = 2}});
    EXPECT_TRUE(sink.rows_of(3).empty());
    EXPECT_EQ(recorder.limits_met(),
              fmt::format("level health from step 1 on, no tensor rows from step 3 on: the size limit is {} bytes", limit));
  }
}

// In a step of several passes those before have what was asked for.
TEST(RecorderLimits, PassesAreLoweredFromTheOneOnThatDoesNotFit) {
  MemorySink sink;
  Recorder recorder(sink, {.max_bytes = empty_trace_bytes() + 1000000});
  sink.histogram_bytes = 500000;
  recorder.begin_step(0);
  record(recorder, {.id = 1});
  recorder.end_pass();
  sink.state.bytes = 500000;
  record(recorder, {.id = 1, .micro_batch = 1});
  recorder.end_pass();
  record(recorder, {.id = 1, .micro_batch = 2});
  recorder.end_step({});
  ASSERT_EQ(sink.rows.size(), 3u);
  EXPECT_EQ(sink.rows[0].known, StatisticsLevel::values);
  EXPECT_EQ(sink.rows[1].known, StatisticsLevel::health);
  EXPECT_EQ(sink.rows[2].known, StatisticsLevel::health);
  EXPECT_EQ(sink.steps.at(0).level, RecordLevel::health);
  EXPECT_EQ(sink.events_of(EventKind::level_lowered).size(), 1u);
}

// Where all is met at once, what is lost is said once, in order.
TEST(RecorderLimits, NoLevelIsLoweredOfRowsThatAreNotWritten) {
  MemorySink sink;
  const uint64_t limit = empty_trace_bytes() + 1000000;
  Recorder recorder(sink, {.max_bytes = limit});
  sink.state.bytes = 999999;
  record_step(recorder, 0, {{.id = 1}});
  EXPECT_EQ(recorder.limits_met(),
            fmt::format("no tensor rows from step 0 on, nothing but metrics from step 1 on: the size limit is {} bytes", limit));
  EXPECT_TRUE(sink.events_of(EventKind::level_lowered).empty());
}

TEST(RecorderLimits, SlowWriterLowersTheLevelUntilItHasCaughtUp) {
  MemorySink sink;
  Recorder recorder(sink, {.level = RecordLevel::full});
  const auto wanted_after = [&](uint64_t step, double fill) {
    sink.state.queue_fill = fill;
    record_step(recorder, step, {{.id = 1}});
    return request(recorder, step, {.id = 1}).wanted;
  };
  EXPECT_EQ(wanted_after(0, 0.5), StatisticsLevel::values);
  EXPECT_TRUE(sink.events.empty());
  EXPECT_EQ(recorder.limits_met(), "");
  EXPECT_EQ(wanted_after(1, 0.6), StatisticsLevel::health);
  ASSERT_EQ(sink.events.size(), 1u);
  EXPECT_EQ(sink.events[0].kind, EventKind::level_lowered);
  EXPECT_THAT(sink.events[0].text, HasSubstr("the writer is slow (60% of its queue is full)"));
  EXPECT_EQ(wanted_after(2, 0.3), StatisticsLevel::health);
  EXPECT_EQ(sink.events.size(), 1u);
  EXPECT_EQ(wanted_after(3, 0.05), StatisticsLevel::values);
  ASSERT_EQ(sink.events.size(), 2u);
  EXPECT_EQ(sink.events[1].kind, EventKind::note);
  EXPECT_THAT(sink.events[1].text, HasSubstr("the writer caught up: level full again"));
  EXPECT_EQ(recorder.limits_met(), "level health in some steps from step 2 on: the writer was slow");
  for (uint64_t step = 4; step < 3000; ++step) wanted_after(step, step % 2 ? 0.9 : 0.0);
  EXPECT_LE(sink.events.size(), 101u);
}

TEST(RecorderLimits, FailedSinkIsLeftAlone) {
  MemorySink sink;
  Recorder recorder(sink, {});
  record_step(recorder, 0, {{.id = 1}});
  sink.state.failed = true;
  sink.state.failure = "disk full";
  record_step(recorder, 1, {{.id = 1}});  // sees it
  const MemorySink before = sink;
  record_step(recorder, 2, {{.id = 1, .nan = 1}, {.id = 2}});
  recorder.add_warning("w");
  recorder.add_metric("m", MetricKind::other, 1);
  EXPECT_EQ(request(recorder, 3).wanted, StatisticsLevel::none);
  EXPECT_EQ(sink.rows.size(), before.rows.size());
  EXPECT_EQ(sink.events.size(), 0u);
  EXPECT_EQ(sink.steps.size(), 1u);
  EXPECT_EQ(sink.ops.size(), 1u);
  EXPECT_EQ(recorder.status().failure, "disk full");
}

TEST(RecorderLimits, StopsTrainingEvenAfterTheSinkFailed) {
  MemorySink sink;
  sink.state.failed = true;
  Recorder recorder(sink, {.stop_on = StopOn::nan});
  record_step(recorder, 0, {{.id = 1}});
  record_step(recorder, 1, {{.id = 1}});
  EXPECT_FALSE(recorder.stop_requested());
  record_step(recorder, 2, {{.id = 1, .nan = 1}});
  EXPECT_TRUE(recorder.stop_requested());
  EXPECT_TRUE(sink.events.empty());
}

TEST(RecorderLimits, WarningsAreBounded) {
  MemorySink sink;
  Recorder recorder(sink, {});
  for (int i = 0; i < 5000; ++i) recorder.add_warning("again");
  EXPECT_EQ(sink.events.size(), 1001u);
  EXPECT_THAT(sink.events.back().text, HasSubstr("no more are recorded"));
}

}  // namespace
}  // namespace ulpscope
