// What a step says about itself: nonfinite values, captures, scale changes and their blame, lost updates, when to stop; and that
// none of it grows without bound.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>
#include <string>
#include <tuple>

#include "allocation_count.h"
#include "memory_sink.h"

namespace ulpscope {
namespace {

using ::testing::HasSubstr;

StepRow scale_change(double before, double after, bool skipped = false) {
  StepRow row;
  row.scale_before = before;
  row.scale_after = after;
  row.skipped = skipped;
  return row;
}

FakeOp gradient(uint64_t id, uint64_t infinities, Phase phase = Phase::backward) {
  return {
      .id = id, .name = "linear_backward", .module = "fc", .phase = phase, .role = Role::weight_gradient, .infinities = infinities};
}

TEST(RecorderEvents, FirstNonfiniteOutputOfAStepIsNamed) {
  MemorySink sink;
  Recorder recorder(sink, {});
  record_step(recorder, 0, {{.id = 1}});
  EXPECT_TRUE(sink.events.empty());
  record_step(recorder, 1, {{.id = 1}, {.id = 2, .nan = 2, .infinities = 3}, {.id = 3, .nan = 8}});
  ASSERT_EQ(sink.events.size(), 1u);
  EXPECT_EQ(sink.events[0].kind, EventKind::nonfinite);
  EXPECT_EQ(sink.events[0].step, 1u);
  EXPECT_EQ(sink.events[0].tensor, 1);
  EXPECT_EQ(sink.events[0].count, 5u);
}

// 70,000 is finite before it is rounded to FP16: the histogram says so, the stored value is Inf.
TEST(RecorderEvents, ValuesThatOverflowedInTheRoundingCount) {
  MemorySink sink;
  Recorder recorder(sink, {.stop_on = StopOn::overflow});
  const FakeOp op{.id = 1, .fill = [](OutputRecord& record) {
                    record.before_rounding = record.rounding_known = true;
                    record.rounding.overflowed = 4;
                  }};
  recorder.begin_step(0);
  EXPECT_EQ(record(recorder, op), 0);
  recorder.end_step({});
  ASSERT_EQ(sink.events_of(EventKind::nonfinite).size(), 1u);
  EXPECT_EQ(sink.events_of(EventKind::nonfinite)[0].count, 4u);
  EXPECT_TRUE(recorder.stop_requested());
  // The same counts beside statistics of the stored values: those hold the infinities already.
  MemorySink stored_sink;
  Recorder stored(stored_sink, {});
  record_step(stored, 0, {{.id = 1, .infinities = 4, .fill = [](OutputRecord& record) {
                             record.rounding_known = true;
                             record.rounding.overflowed = 4;
                           }}});
  EXPECT_EQ(stored_sink.events.at(0).count, 4u);
}

TEST(RecorderEvents, ACaptureIsATreeOfNodes) {
  MemorySink sink;
  Recorder recorder(sink, {});
  recorder.begin_step(5);
  EXPECT_EQ(record(recorder, {.id = 1}), std::nullopt);
  const FakeOp two{
      .id = 2, .outputs = {float_output(Role::activation), float_output(Role::activation)}, .fill = [](OutputRecord& r) {
        static int output = 0;
        r.statistics.nan = output++ == 1 ? 3 : 0;
      }};
  ASSERT_EQ(record(recorder, two), 1);
  Attributes attributes({{"eps", 0.5}}, {{"step", 3}});
  TensorView matrix, scalar;
  matrix.rank = 2;
  matrix.shape = {4, 5};
  RowFacts facts;
  facts.input = 1;
  facts.first = 5;
  facts.count = 8;
  facts.run = 4;
  facts.step = 9;
  facts.largest = INFINITY;
  facts.smallest = -3;
  facts.sum = 7;
  facts.sum_of_squares = 11;
  facts.nonfinite = 1;
  const CaptureNode nodes[] = {{.made_by = {2, 1},
                                .view = matrix,
                                .element = 17,
                                .value = std::nan(""),
                                .follow = CaptureFollow::followed,
                                .terms = 9,
                                .broke_at = 4,
                                .partial_sum = 60000,
                                .attributes = &attributes},
                               {.parent = 0,
                                .operand = 1,
                                .term = 4,
                                .made_by = {1, 0},
                                .view = scalar,
                                .element = 0,
                                .value = 0.5,
                                .overwritten = true,
                                .follow = CaptureFollow::gone},
                               {.parent = 1, .operand = 0, .made_by = {77, 0}, .view = matrix, .row = facts}};
  recorder.add_capture(1, nodes);
  recorder.end_step({});
  ASSERT_EQ(sink.captures.size(), 3u);
  for (uint32_t i = 0; i < 3; ++i) {
    const CaptureRow& row = sink.captures[i];
    EXPECT_EQ(row.step, 5u);
    EXPECT_EQ(row.tensor, 2u);
    EXPECT_EQ(row.node, i);
    EXPECT_EQ(row.parent, static_cast<int64_t>(i) - 1);
    EXPECT_EQ(row.made_by, (std::array<int64_t, 3>{2, 0, -1}[i]));
    EXPECT_EQ(row.follow, (std::array{CaptureFollow::followed, CaptureFollow::gone, CaptureFollow::none}[i]));
    EXPECT_EQ(row.overwritten, i == 1);
    EXPECT_EQ(row.shape, i == 1 ? std::vector<int64_t>() : (std::vector<int64_t>{4, 5}));
  }
  const CaptureRow &origin = sink.captures[0], &operand = sink.captures[1];
  EXPECT_EQ(origin.operand, -1);
  EXPECT_EQ(origin.element, 17);
  EXPECT_TRUE(std::isnan(origin.value));
  EXPECT_EQ(origin.terms, 9);
  EXPECT_EQ(origin.broke_at, 4);
  EXPECT_EQ(origin.partial_sum, 60000);
  EXPECT_EQ(origin.attributes, "eps=0.5 step=3");
  EXPECT_EQ(operand.operand, 1);
  EXPECT_EQ(operand.term, 4);
  EXPECT_EQ(operand.element, 0);
  EXPECT_EQ(operand.value, 0.5);
  EXPECT_EQ(operand.attributes, "");
  const CaptureRow::Row& row = sink.captures[2].row;
  EXPECT_EQ(std::tuple(row.first, row.count, row.run, row.step, row.nonfinite), std::tuple(5, 8, 4, 9, 1));
  EXPECT_EQ(std::tuple(row.largest, row.smallest, row.sum, row.sum_of_squares), std::tuple(INFINITY, -3, 7, 11));
  EXPECT_EQ(operand.row.count, 0);
}

// Only outputs whose op read nothing that was nonfinite, in this step or since an earlier one.
TEST(RecorderEvents, CapturesGoToOrigins) {
  MemorySink sink;
  Recorder recorder(sink, {});
  const FakeOp weight{.id = 1, .name = "source", .role = Role::weight}, broken_weight{.id = 1, .name = "source", .nan = 1};
  const auto reading = [](uint64_t id, std::vector<ValueKey> inputs, uint64_t nan) {
    return FakeOp{.id = id, .inputs = std::move(inputs), .nan = nan};
  };
  recorder.begin_step(0);
  EXPECT_EQ(record(recorder, weight), std::nullopt);
  EXPECT_EQ(record(recorder, reading(2, {{1, 0}}, 1)), 0);
  EXPECT_EQ(record(recorder, reading(3, {{1, 0}, {2, 0}}, 1)), std::nullopt);
  EXPECT_EQ(record(recorder, reading(4, {{3, 0}}, 0)), std::nullopt);  // it removes what was nonfinite
  EXPECT_EQ(record(recorder, reading(5, {{4, 0}}, 1)), 0);
  EXPECT_EQ(record(recorder, reading(6, {{99, 0}, {4, 7}}, 1)), 0);  // what no op made is not known to be nonfinite
  recorder.end_step({});
  recorder.begin_step(1);
  EXPECT_EQ(record(recorder, broken_weight), 0);
  recorder.end_step({});
  recorder.begin_step(2);  // in which the weight is only read
  EXPECT_EQ(record(recorder, reading(2, {{1, 0}}, 1)), std::nullopt);
  recorder.end_step({});
}

// One op runs in every micro-batch and for every loss: what a row is of only these tell.
TEST(RecorderEvents, RowsOfOneOpAreToldApartByMicroBatchAndPass) {
  MemorySink sink;
  Recorder recorder(sink, {.level = RecordLevel::full});
  recorder.begin_step(3);
  for (uint32_t micro_batch = 0; micro_batch < 3; ++micro_batch) {
    for (uint8_t loss_index = 0; loss_index < 2; ++loss_index) {
      const bool breaks = micro_batch == 2 && loss_index == 1;
      const FakeOp op{.id = 1,
                      .phase = Phase::backward,
                      .role = Role::weight_gradient,
                      .nan = breaks ? 1u : 0u,
                      .micro_batch = micro_batch,
                      .loss_index = loss_index};
      if (record(recorder, op)) {
        const CaptureNode nodes[] = {{}, {.parent = 0, .operand = 0}};
        recorder.add_capture(0, nodes);
      }
    }
    recorder.end_pass();
  }
  recorder.end_step(scale_change(2, 1, true));

  std::set<std::tuple<uint32_t, int, uint32_t, int64_t>> keys;
  for (const SampleRow& row : sink.samples) keys.emplace(row.micro_batch, row.loss_index, row.tensor, row.element);
  EXPECT_EQ(sink.samples.size(), 6u * 16);
  EXPECT_EQ(keys.size(), sink.samples.size());
  ASSERT_EQ(sink.events.size(), 2u);  // backoff and nonfinite
  for (const EventRow& event : sink.events) EXPECT_EQ(std::pair(event.micro_batch, int{event.loss_index}), std::pair(2u, 1));
  ASSERT_EQ(sink.captures.size(), 2u);
  for (const CaptureRow& row : sink.captures) EXPECT_EQ(std::pair(row.micro_batch, int{row.loss_index}), std::pair(2u, 1));
}

TEST(RecorderEvents, BackoffBlamesTheFirstGradient) {
  MemorySink sink;
  Recorder recorder(sink, {});
  const FakeOp activation{.id = 1, .infinities = 1};  // not a gradient
  FakeOp copy = gradient(2, 5, Phase::optimizer);     // not of the backward pass
  record_step(recorder, 3, {activation, copy, gradient(3, 0), gradient(4, 7), gradient(5, 9)}, scale_change(65536, 32768, true));
  const std::vector<EventRow> backoffs = sink.events_of(EventKind::scale_backoff);
  ASSERT_EQ(backoffs.size(), 1u);
  EXPECT_EQ(backoffs[0].value, 32768);
  EXPECT_EQ(backoffs[0].tensor, 3);
  EXPECT_EQ(backoffs[0].count, 7u);
  EXPECT_THAT(backoffs[0].text, HasSubstr("output 0 of linear_backward in fc (backward), 7 values"));
  EXPECT_EQ(sink.events_of(EventKind::nonfinite).at(0).tensor, 0);
}

TEST(RecorderEvents, BackoffIsBlamedWhateverIsRecorded) {
  for (const RecorderOptions& options :
       {RecorderOptions{.level = RecordLevel::health}, RecorderOptions{.every = 1000}, RecorderOptions{.ops = {"nothing"}}}) {
    MemorySink sink;
    Recorder recorder(sink, options);
    record_step(recorder, 7, {gradient(3, 0), gradient(4, 7, Phase::scaling)}, scale_change(2, 1, true));
    ASSERT_EQ(sink.events_of(EventKind::scale_backoff).size(), 1u);
    EXPECT_EQ(sink.events_of(EventKind::scale_backoff)[0].tensor, 1);
    EXPECT_EQ(sink.steps.at(0).scale_before, 2);
  }
}

TEST(RecorderEvents, ScaleGrowthAndStepsSkippedWithoutAChange) {
  MemorySink sink;
  Recorder recorder(sink, {});
  record_step(recorder, 0, {gradient(1, 0)}, scale_change(1024, 2048));
  ASSERT_EQ(sink.events.size(), 1u);
  EXPECT_EQ(sink.events[0].kind, EventKind::scale_growth);
  EXPECT_EQ(sink.events[0].value, 2048);
  record_step(recorder, 1, {gradient(1, 2)}, scale_change(2048, 2048, true));
  ASSERT_EQ(sink.events.size(), 3u);
  EXPECT_EQ(sink.events[1].kind, EventKind::note);
  EXPECT_EQ(sink.events[1].count, 2u);
  EXPECT_THAT(sink.events[1].text, HasSubstr("step skipped, scale kept"));
  EXPECT_TRUE(sink.events_of(EventKind::scale_backoff).empty());
}

TEST(RecorderEvents, LostUpdatesBelongToTheMasterWeight) {
  MemorySink sink;
  Recorder recorder(sink, {});
  const FakeOp update{.id = 1,
                      .name = "sgd_update",
                      .phase = Phase::optimizer,
                      .outputs = {float_output(Role::master_weight, "0.weight"), float_output(Role::update, "0.weight")},
                      .fill = [](OutputRecord& record) {
                        static int output = 0;
                        record.update_known = output++ % 2 == 1;  // comes with the update d
                        record.update = {10, 4, 1};
                      }};
  record_step(recorder, 2, {update});
  ASSERT_EQ(sink.parameters.size(), 1u);
  EXPECT_EQ(sink.parameters[0].step, 2u);
  EXPECT_EQ(sink.parameters[0].tensor, 0u);
  EXPECT_EQ(sink.tensors[0].role, Role::master_weight);
  EXPECT_EQ(sink.parameters[0].nonzero, 10u);
  EXPECT_EQ(sink.parameters[0].lost, 4u);
  EXPECT_EQ(sink.parameters[0].lost_to_decay, 1u);
}

TEST(RecorderStop, HappensForWhatWasAsked) {
  const auto stops = [](StopOn stop_on, const FakeOp& op, const StepRow& row) {
    MemorySink sink;
    Recorder recorder(sink, {.ops = {"nothing"}, .stop_on = stop_on});
    record_step(recorder, 0, {{.id = 9}});
    EXPECT_FALSE(recorder.stop_requested());
    record_step(recorder, 1, {op}, row);
    const std::vector<EventRow> events = sink.events_of(EventKind::stopped);
    EXPECT_EQ(events.size(), recorder.stop_requested() ? 1u : 0u);
    EXPECT_EQ(recorder.stop_reason().empty(), !recorder.stop_requested());
    for (const EventRow& event : events) EXPECT_THAT(event.text, HasSubstr("training stopped: "));
    return recorder.stop_requested();
  };
  const FakeOp nan{.id = 1, .nan = 1}, inf{.id = 1, .infinities = 1}, fine{.id = 1};
  const StepRow backoff = scale_change(2, 1, true), growth = scale_change(1, 2), none;
  EXPECT_TRUE(stops(StopOn::nan, nan, none));
  EXPECT_FALSE(stops(StopOn::nan, inf, backoff));
  EXPECT_TRUE(stops(StopOn::overflow, inf, none));
  EXPECT_FALSE(stops(StopOn::overflow, nan, none));
  EXPECT_TRUE(stops(StopOn::backoff, fine, backoff));
  EXPECT_FALSE(stops(StopOn::backoff, nan, growth));
  EXPECT_FALSE(stops(StopOn::never, nan, backoff));
}

// 10,000 steps of a model with `nan` NaN in every output, at most one op of which passes the filter. Each op reads the one before.
MemorySink long_run(uint64_t nan, const RecorderOptions& options) {
  MemorySink sink;
  sink.keep_rows = false;
  Recorder recorder(sink, options);
  std::vector<FakeOp> ops;
  for (uint64_t id = 1; id <= 10; ++id) {
    ops.push_back({.id = id,
                   .name = id == 1 ? "linear" : "relu",
                   .phase = id > 5 ? Phase::backward : Phase::forward,
                   .inputs = {{id - 1, 0}},
                   .nan = nan});
  }
  const std::vector<CaptureNode> nodes(100);
  for (uint64_t step = 0; step < 10000; ++step) {
    recorder.begin_step(step);
    for (const FakeOp& op : ops) {
      if (const auto slot = record(recorder, op)) recorder.add_capture(*slot, nodes);
    }
    recorder.end_step(nan > 0 ? scale_change(1, 1, true) : StepRow{});
  }
  return sink;
}

TEST(RecorderBounds, TenThousandStepsOfNanAreNoMoreThanHealthyOnes) {
  for (const RecorderOptions& options : {RecorderOptions{}, RecorderOptions{.ops = {"linear"}}}) {
    const MemorySink healthy = long_run(0, options), broken = long_run(8, options);
    EXPECT_EQ(healthy.steps.size(), 10000u);
    EXPECT_EQ(broken.steps.size(), 10000u);
    EXPECT_GE(healthy.row_count, 10000u);
    EXPECT_LE(broken.row_count, healthy.row_count + 16 * 10);
    EXPECT_EQ(broken.captures.size(), (16u + 9) * 100);  // the first 16 times, and the 32nd, 64th, ... 8192nd
    EXPECT_EQ(broken.events_of(EventKind::nonfinite).size(), 10000u);
    EXPECT_LE(broken.events.size(), 20000u);
    EXPECT_EQ(broken.edges.size(), healthy.edges.size());
  }
}

// An infinity that comes in every step and does no harm leaves what is needed for the one that does.
TEST(RecorderBounds, AFatalValueIsCapturedHoweverOftenAHarmlessOneWas) {
  MemorySink sink;
  Recorder recorder(sink, {});
  for (uint64_t step = 0; step < 1000; ++step) {
    recorder.begin_step(step);
    for (uint64_t id = 1; id <= 20; ++id) record(recorder, {.id = id, .infinities = 1});
    recorder.end_step({});
  }
  recorder.begin_step(1000);
  for (uint64_t id = 1; id <= 20; ++id) EXPECT_EQ(record(recorder, {.id = id, .infinities = 2}), std::nullopt);
  EXPECT_EQ(record(recorder, {.id = 21, .nan = 1}), 0);
  EXPECT_EQ(record(recorder, {.id = 20, .nan = 1, .infinities = 1}), 0);  // other values than it had so far
  recorder.end_step({});
}

TEST(RecorderBounds, AStepHasEightCapturesAndFourOfOutputsThatHadOne) {
  MemorySink sink;
  Recorder recorder(sink, {});
  const auto captured = [&](uint64_t step, uint64_t first, uint64_t last) {
    std::vector<uint64_t> ids;
    recorder.begin_step(step);
    for (uint64_t id = first; id <= last; ++id)
      if (record(recorder, {.id = id, .nan = 1})) ids.push_back(id);
    recorder.end_step({});
    return ids;
  };
  EXPECT_EQ(captured(0, 1, 20), (std::vector<uint64_t>{1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(captured(1, 1, 8), (std::vector<uint64_t>{1, 2, 3, 4}));
  EXPECT_EQ(captured(2, 1, 40), (std::vector<uint64_t>{1, 2, 3, 4, 9, 10, 11, 12}));
}

class NullSink : public TraceSink {
 public:
  uint32_t add_op(const OpInfo&) override { return ops_++; }
  uint32_t add_tensor(const TensorInfo&) override { return tensors_++; }
  void add_edge(const GraphEdge&) override {}
  void add_row(const TensorRow&) override { ++rows; }
  void add_setting(const SettingInfo&) override {}
  void add_source(const SourceInfo&) override {}
  void add_product(const ProductInfo&) override {}
  void add_batch(const BatchRow&) override {}
  void add_parameter(const ParameterRow&) override {}
  void add_fingerprint(const FingerprintRow&) override {}
  void add_event(const EventRow&) override {}
  void add_capture(const CaptureRow&) override {}
  void add_sample(const SampleRow&) override {}
  void add_measure(const MeasureRow&) override {}
  void add_sum(const SumRow&) override {}
  void add_bits(const BitsRow&) override {}
  void end_step(const StepRow&) override {}
  SinkStatus status() const override { return {}; }
  uint64_t closed_bytes(const MoreRows&) const override { return 0; }
  bool flush() override { return true; }
  bool close() override { return true; }
  size_t rows = 0;

 private:
  uint32_t ops_ = 0, tensors_ = 0;
};

TEST(RecorderBounds, SteadyStepsAllocateNothing) {
  NullSink sink;
  Recorder recorder(sink, {.level = RecordLevel::full, .every = 2});
  const OutputDescription output = float_output(Role::activation);
  const auto step = [&](uint64_t number) {
    recorder.begin_step(number);
    for (uint64_t id = 1; id <= 150; ++id) {
      const ValueKey input{id - 1, 0};
      OpDescription op;
      op.name = "add";
      op.id = id;
      op.inputs = {&input, 1};
      op.outputs = {&output, 1};
      for (OutputRecord* const out : recorder.before(op)) out->known = out->wanted;
      recorder.after();
    }
    recorder.end_step({});
  };
  for (uint64_t number = 0; number < 4; ++number) step(number);
  const size_t before = allocation_count();
  for (uint64_t number = 4; number < 100; ++number) step(number);
  EXPECT_EQ(allocation_count(), before);
  EXPECT_EQ(sink.rows, 15000u);
}

}  // namespace
}  // namespace ulpscope
