// What is written once: ops, tensors, graphs. And the order of rows.
#include <gtest/gtest.h>

#include <algorithm>

#include "memory_sink.h"

namespace ulpscope {
namespace {

TEST(RecorderIdentity, OpsAndTensorsAreDescribedOnce) {
  MemorySink sink;
  Recorder recorder(sink, {});
  Attributes attributes({{"stride_y", 2}, {"eps", 0.25}}, {{"rate", 0.5}, {"step", 1}});
  std::vector<OutputDescription> outputs{float_output(Role::activation, "", DType::f16), float_output(Role::buffer, "0.mean")};
  outputs[1].name = "running_mean";
  outputs[0].view.rank = 2;
  outputs[0].view.shape[1] = 3;
  for (uint64_t step = 0; step < 3; ++step) {
    recorder.begin_step(step);
    attributes.set("step", static_cast<double>(step));
    OpDescription op;
    op.name = "conv2d";
    op.module = "features.0";
    op.phase = Phase::backward;
    op.id = 77;
    op.forward_id = 42;
    op.attributes = &attributes;
    op.product = ProductShape{.m = 98, .n = 12, .k = 3, .batch = 9, .m_is_padded = false};
    op.outputs = outputs;
    recorder.before(op);
    recorder.after();
    recorder.end_step({});
  }
  ASSERT_EQ(sink.ops.size(), 1u);
  EXPECT_EQ(sink.ops[0].product, (std::vector<int64_t>{98, 12, 3, 9, 0, 8}));
  EXPECT_EQ(sink.ops[0].id, 77u);
  EXPECT_EQ(sink.ops[0].forward_id, 42u);
  EXPECT_EQ(sink.ops[0].name, "conv2d");
  EXPECT_EQ(sink.ops[0].module, "features.0");
  EXPECT_EQ(sink.ops[0].phase, Phase::backward);
  EXPECT_EQ(sink.ops[0].attributes, "stride_y=2 eps=0.25 rate=varies step=varies");
  ASSERT_EQ(sink.tensors.size(), 2u);
  EXPECT_EQ(sink.tensors[0].op, 0u);
  EXPECT_EQ(sink.tensors[0].dtype, DType::f16);
  EXPECT_EQ(sink.tensors[0].shape, (std::vector<int64_t>{8, 3}));
  EXPECT_EQ(sink.tensors[1].slot, 1);
  EXPECT_EQ(sink.tensors[1].role, Role::buffer);
  EXPECT_EQ(sink.tensors[1].parameter, "0.mean");
  EXPECT_EQ(sink.tensors[0].name, "");
  EXPECT_EQ(sink.tensors[1].name, "running_mean");
  EXPECT_EQ(sink.steps.size(), 3u);
  EXPECT_EQ(sink.steps[2].step, 2u);
}

TEST(RecorderIdentity, RowsComeInOrderOfExecutionWhateverTheOrderWasBefore) {
  MemorySink sink;
  Recorder recorder(sink, {});
  // Predictions of what comes next fail in the second step, and hold again in the third.
  const std::vector<std::vector<uint64_t>> orders{{1, 2, 3, 4}, {3, 1, 5, 4, 2}, {3, 1, 5, 4, 2}, {2}, {1, 1, 2}};
  for (uint64_t step = 0; step < orders.size(); ++step) {
    std::vector<FakeOp> ops;
    for (const uint64_t id : orders[step]) ops.push_back({.id = id, .scale = static_cast<double>(id)});
    record_step(recorder, step, ops);
    const std::vector<TensorRow> rows = sink.rows_of(step);
    ASSERT_EQ(rows.size(), orders[step].size());
    for (uint32_t i = 0; i < rows.size(); ++i) {
      EXPECT_EQ(rows[i].sequence, i);
      EXPECT_EQ(sink.ops[sink.tensors[rows[i].tensor].op].id, orders[step][i]);
      EXPECT_EQ(rows[i].scale, static_cast<double>(orders[step][i]));
    }
  }
  EXPECT_EQ(sink.ops.size(), 5u);
  EXPECT_EQ(sink.tensors.size(), 5u);
  for (const OpInfo& op : sink.ops) {
    size_t step = 0;
    while (std::count(orders[step].begin(), orders[step].end(), op.id) == 0) ++step;
    EXPECT_EQ(op.first_step, static_cast<int64_t>(step));
    EXPECT_EQ(orders[step][op.first_sequence], op.id);
  }
}

TEST(RecorderIdentity, GraphsAreWrittenOnceAndNamedBySteps) {
  MemorySink sink;
  Recorder recorder(sink, {});
  const FakeOp a{.id = 1}, b{.id = 2, .inputs = {{1, 0}}}, c{.id = 3, .inputs = {{1, 0}, {2, 0}}};
  const FakeOp c_otherwise{.id = 3, .inputs = {{2, 0}, {1, 0}}}, from_outside{.id = 4, .inputs = {{99, 0}, {1, 0}}};
  record_step(recorder, 0, {a, b, c});
  ASSERT_EQ(sink.edges.size(), 3u);
  EXPECT_EQ(sink.edges[0].consumer, 1u);
  EXPECT_EQ(sink.edges[0].producer, 0u);
  EXPECT_EQ(sink.edges[2].consumer, 2u);
  EXPECT_EQ(sink.edges[2].input, 1);
  EXPECT_EQ(sink.edges[2].producer, 1u);
  record_step(recorder, 1, {a, b, c});
  EXPECT_EQ(sink.edges.size(), 3u);
  record_step(recorder, 2, {a, b, c_otherwise});
  EXPECT_EQ(sink.edges.size(), 6u);
  record_step(recorder, 3, {a, b, c});
  record_step(recorder, 4, {a, from_outside});  // what nobody described has no edge
  EXPECT_EQ(sink.edges.size(), 7u);
  EXPECT_EQ(sink.edges.back().input, 1);
  std::vector<uint32_t> graphs;
  for (const StepRow& step : sink.steps) graphs.push_back(step.graph);
  EXPECT_EQ(graphs, (std::vector<uint32_t>{0, 0, 1, 0, 2}));
}

TEST(RecorderIdentity, MicroBatchesRepeatOpsAndNotEdges) {
  MemorySink sink;
  Recorder recorder(sink, {});
  std::vector<FakeOp> ops;
  for (uint32_t micro_batch = 0; micro_batch < 3; ++micro_batch) {
    ops.push_back({.id = 1, .micro_batch = micro_batch});
    ops.push_back({.id = 2, .inputs = {{1, 0}}, .micro_batch = micro_batch});
  }
  record_step(recorder, 0, ops);
  EXPECT_EQ(sink.ops.size(), 2u);
  EXPECT_EQ(sink.edges.size(), 1u);
  ASSERT_EQ(sink.rows.size(), 6u);
  EXPECT_EQ(sink.rows[5].micro_batch, 2u);
  EXPECT_EQ(sink.rows[5].sequence, 5u);
}

TEST(RecorderIdentity, IntegersAreDescribedAndHaveNoRows) {
  MemorySink sink;
  Recorder recorder(sink, {});
  const FakeOp pool{.id = 1, .outputs = {float_output(Role::activation), float_output(Role::activation, "", DType::u8)}};
  const FakeOp count{.id = 2, .outputs = {float_output(Role::activation, "", DType::i64)}};
  record_step(recorder, 0, {pool, count});
  EXPECT_EQ(sink.ops.size(), 2u);
  EXPECT_EQ(sink.tensors.size(), 3u);
  ASSERT_EQ(sink.rows.size(), 1u);
  EXPECT_EQ(sink.rows[0].tensor, 0u);
}

TEST(RecorderIdentity, AnOpMayGiveMoreOutputsLater) {
  MemorySink sink;
  Recorder recorder(sink, {});
  record_step(recorder, 0, {{.id = 1}, {.id = 2}});
  record_step(recorder, 1, {{.id = 1, .outputs = {float_output(Role::activation), float_output(Role::buffer)}}, {.id = 2}});
  ASSERT_EQ(sink.tensors.size(), 3u);
  EXPECT_EQ(sink.tensors[2].slot, 1);
  EXPECT_EQ(sink.tensors[2].op, 0u);
  const std::vector<TensorRow> rows = sink.rows_of(1);
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].tensor, 0u);
  EXPECT_EQ(rows[1].tensor, 2u);
  EXPECT_EQ(rows[2].tensor, 1u);
}

TEST(RecorderIdentity, RecordsKeepTheirAddressesUntilTheStepEnds) {
  MemorySink sink;
  Recorder recorder(sink, {});
  recorder.begin_step(0);
  std::vector<std::span<OutputRecord* const>> records;
  const std::vector<OutputDescription> outputs(3, float_output(Role::activation));
  for (uint64_t id = 1; id <= 200; ++id) {
    OpDescription op;
    op.name = "add";
    op.id = id;
    op.outputs = outputs;
    records.push_back(recorder.before(op));
    recorder.after();
  }
  // A device fills them in late.
  for (size_t i = 0; i < records.size(); ++i) {
    for (size_t slot = 0; slot < 3; ++slot) {
      records[i][slot]->known = StatisticsLevel::values;
      records[i][slot]->statistics.count = 10 * i + slot;
    }
  }
  recorder.end_step({});
  ASSERT_EQ(sink.rows.size(), 600u);
  for (size_t i = 0; i < 600; ++i) EXPECT_EQ(sink.rows[i].statistics.count, 10 * (i / 3) + i % 3);
}

}  // namespace
}  // namespace ulpscope
