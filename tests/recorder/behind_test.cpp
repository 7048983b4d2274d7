// A producer whose device is behind: records are filled in when other passes, and the next step, have begun. The trace is that of
// one who fills them in at once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "memory_sink.h"

namespace ulpscope {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Records ops whose records are filled in by complete().
class Behind {
 public:
  explicit Behind(Recorder& recorder) : recorder_(recorder) {}
  void record(const FakeOp& op) {
    const std::vector<OutputDescription> outputs{float_output(op.role)};
    OpDescription description;
    description.name = op.name;
    description.id = op.id;
    description.phase = op.phase;
    description.micro_batch = op.micro_batch;
    description.inputs = op.inputs;
    description.outputs = outputs;
    for (OutputRecord* const out : recorder_.before(description)) records_.emplace_back(out, op);
  }
  void complete() {
    for (const auto& [record, op] : records_) fill(*record, op);
    records_.clear();
  }

 private:
  Recorder& recorder_;
  std::vector<std::pair<OutputRecord*, FakeOp>> records_;
};

StepRow scales(double before, double after) {
  StepRow row;
  row.scale_before = before;
  row.scale_after = after;
  row.skipped = after < before;
  return row;
}

const std::vector<int64_t> kSamples{4, 2};

std::vector<FakeOp> ops_of(uint32_t micro_batch, uint64_t nan) {
  const FakeOp first{.id = 1, .nan = nan, .micro_batch = micro_batch};
  return {first,
          {.id = 2, .inputs = {{1, 0}}, .nan = nan, .micro_batch = micro_batch},
          {.id = 3,
           .phase = Phase::backward,
           .role = Role::weight_gradient,
           .inputs = {{2, 0}},
           .nan = nan,
           .micro_batch = micro_batch}};
}
const FakeOp kUpdate{.id = 4, .phase = Phase::optimizer, .role = Role::weight};

TEST(RecorderBehind, WritesWhatOneWritesThatIsNot) {
  MemorySink expected;
  {
    Recorder recorder(expected, {.level = RecordLevel::full, .stop_on = StopOn::nan});
    for (uint64_t step = 0; step < 3; ++step) {
      recorder.begin_step(step);
      recorder.add_warning("of the step");
      for (uint32_t batch = 0; batch < 2; ++batch) {
        if (batch > 0) recorder.end_pass();
        recorder.add_batch(Phase::forward, batch, 0, kSamples);
        for (const FakeOp& op : ops_of(batch, step == 1 ? batch : 0)) record(recorder, op);
      }
      record(recorder, kUpdate);
      recorder.add_metric("test_loss", MetricKind::evaluation_loss, static_cast<double>(step));
      recorder.end_step(scales(4, step == 1 ? 2 : 4));
    }
    EXPECT_TRUE(recorder.stop_requested());
  }

  MemorySink found;
  Recorder recorder(found, {.level = RecordLevel::full, .stop_on = StopOn::nan});
  Behind device(recorder);
  for (uint64_t step = 0; step < 3; ++step) {
    recorder.begin_step(step);
    recorder.add_warning("of the step");
    for (uint32_t batch = 0; batch < 2; ++batch) {
      if (batch > 0) recorder.end_pass(false);
      recorder.add_batch(Phase::forward, batch, 0, kSamples);
      for (const FakeOp& op : ops_of(batch, step == 1 ? batch : 0)) device.record(op);
    }
    EXPECT_EQ(recorder.waiting_ops(), step == 0 ? 3u : 7u);
    EXPECT_EQ(found.steps.size(), step == 0 ? 0 : step - 1);
    device.complete();
    device.record(kUpdate);
    recorder.write_ended();
    EXPECT_EQ(found.steps.size(), step);
    EXPECT_EQ(recorder.waiting_ops(), 0u);
    recorder.add_metric("test_loss", MetricKind::evaluation_loss, static_cast<double>(step));
    recorder.end_step(scales(4, step == 1 ? 2 : 4), false);
  }
  EXPECT_TRUE(recorder.stop_requested());  // with the rows of step 1
  device.complete();
  recorder.write_ended();

  ASSERT_THAT(found.rows, SizeIs(3 * 7));
  ASSERT_EQ(found.rows.size(), expected.rows.size());
  for (size_t i = 0; i < found.rows.size(); ++i) {
    const TensorRow &row = found.rows[i], &other = expected.rows[i];
    EXPECT_EQ(row.step, other.step);
    EXPECT_EQ(row.micro_batch, other.micro_batch);
    EXPECT_EQ(row.sequence, other.sequence);
    EXPECT_EQ(row.tensor, other.tensor);
    EXPECT_EQ(row.known, other.known);
    EXPECT_EQ(row.statistics.nan, other.statistics.nan);
    EXPECT_EQ(row.statistics.count, other.statistics.count);
  }
  ASSERT_EQ(found.events.size(), expected.events.size());
  for (size_t i = 0; i < found.events.size(); ++i) {
    EXPECT_EQ(found.events[i].step, expected.events[i].step);
    EXPECT_EQ(found.events[i].kind, expected.events[i].kind);
    EXPECT_EQ(found.events[i].tensor, expected.events[i].tensor);
    EXPECT_EQ(found.events[i].text, expected.events[i].text);
  }
  EXPECT_EQ(found.samples.size(), expected.samples.size());
  EXPECT_EQ(found.batches.size(), expected.batches.size());
  EXPECT_EQ(found.edges.size(), expected.edges.size());
  ASSERT_THAT(found.steps, SizeIs(3));
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(found.steps[i].step, i);
    EXPECT_EQ(found.steps[i].scale_after, expected.steps[i].scale_after);
    EXPECT_EQ(found.steps[i].graph, expected.steps[i].graph);
  }
}

TEST(RecorderBehind, FindsOriginsOnceAndInTheirOrder) {
  MemorySink sink;
  Recorder recorder(sink, {});
  Behind device(recorder);
  recorder.begin_step(5);
  for (const FakeOp& op : ops_of(0, 0)) device.record(op);
  recorder.end_pass(false);
  for (const FakeOp& op : ops_of(1, 3)) device.record(op);
  device.complete();
  const std::span<const Origin> found = recorder.find_origins();
  ASSERT_THAT(found, SizeIs(1));  // the others read what it made
  EXPECT_EQ(found[0].step, 5u);
  EXPECT_EQ(found[0].op, 1u);
  EXPECT_EQ(found[0].slot, 0);
  EXPECT_EQ(found[0].micro_batch, 1u);
  EXPECT_EQ(found[0].phase, Phase::forward);
  const Origin origin = found[0];
  EXPECT_THAT(recorder.find_origins(), IsEmpty());

  CaptureNode node;
  node.element = 6;
  recorder.add_capture(origin, {&node, 1});
  ASSERT_THAT(sink.captures, SizeIs(1));
  EXPECT_EQ(sink.captures[0].step, 5u);
  EXPECT_EQ(sink.captures[0].micro_batch, 1u);
  EXPECT_EQ(sink.captures[0].tensor, origin.tensor);

  // The update of this step and the batch of the next are looked at together.
  FakeOp update = kUpdate;
  update.nan = 1;
  device.record(update);
  recorder.end_step({}, false);
  recorder.begin_step(6);
  for (const FakeOp& op : ops_of(0, 2)) device.record(op);
  device.complete();
  std::vector<std::pair<uint64_t, uint64_t>> origins;
  for (const Origin& each : recorder.find_origins()) origins.emplace_back(each.step, each.op);
  EXPECT_THAT(origins, ElementsAre(std::pair(5, 4), std::pair(6, 1)));
}

// What a step left behind that never ended is written, and those after it are not held up.
TEST(RecorderBehind, AStepThatWasGivenUpHoldsNothingUp) {
  MemorySink sink;
  Recorder recorder(sink, {});
  Behind device(recorder);
  recorder.begin_step(0);
  device.record({.id = 1});
  recorder.end_pass(false);
  device.record({.id = 2});
  recorder.begin_step(1);
  recorder.add_note("in step 1");
  device.record({.id = 1});
  recorder.end_step({}, false);
  EXPECT_THAT(sink.events, IsEmpty());
  device.complete();
  recorder.write_ended();
  EXPECT_THAT(sink.steps, SizeIs(1));
  EXPECT_EQ(sink.steps[0].step, 1u);
  EXPECT_THAT(sink.rows_of(0), SizeIs(1));
  EXPECT_THAT(sink.rows_of(1), SizeIs(1));
  ASSERT_THAT(sink.events, SizeIs(1));
  EXPECT_EQ(sink.events[0].text, "in step 1");
}

}  // namespace
}  // namespace ulpscope
