// A folder of a run's trace and those of runs resumed from it reads as one run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "sample_trace.h"
#include "tests/support/temporary_folder.h"
#include "ulpscope/base/error.h"

namespace ulpscope::trace_test {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kResumedSeed = 11;

class Resumed : public testing::Test {
 protected:
  struct Run {
    std::string name, parent;
    int64_t parent_step = -1;
    std::string started = "2026-01-01T00:00:00Z";
  };
  // A trace of the run, which has nothing in it yet.
  std::unique_ptr<TraceSink> create(const Run& run) {
    RunInfo info;
    info.run_id = run.name;
    info.parent_run = run.parent;
    info.parent_step = run.parent_step;
    paths_.push_back(folder_.file(run.name + ".h5"));
    return create_trace(paths_.back(), info);
  }
  // Steps [first, last); from `other_from` on they hold other values than those of kResumedSeed.
  void write(const Run& run, uint64_t first, uint64_t last, uint64_t other_from = UINT64_MAX) {
    RunInfo info = sample_run(kResumedSeed);
    info.run_id = run.name;
    info.parent_run = run.parent;
    info.parent_step = run.parent_step;
    info.started = run.started;
    info.rank = 0;
    info.world_size = 1;
    paths_.push_back(folder_.file((run.name.empty() ? std::to_string(paths_.size()) : run.name) + ".h5"));
    const auto sink = create_trace(paths_.back(), info);
    add_start(*sink, kResumedSeed);
    for (uint64_t step = first; step < last; ++step) add_step(*sink, step < other_from ? kResumedSeed : kResumedSeed + 1, step);
    ASSERT_TRUE(sink->close());
  }
  Snapshot read() const { return Snapshot("all", paths_); }
  std::string error() const {
    try {
      read();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      return error.what();
    }
    return "no error";
  }
  // All tables but that of the run itself.
  static void expect_lines(const Snapshot& reader, uint64_t steps) {
    TraceLines found = read_lines(reader), expected = expected_lines(kResumedSeed, steps);
    found.run = expected.run;
    EXPECT_EQ(found, expected);
    EXPECT_EQ(reader.step_count(), steps);
    EXPECT_EQ(reader.tensor_row_count(), expected.stats.size());
  }

  TemporaryFolder folder_;
  std::vector<std::string> paths_;
};

TEST_F(Resumed, TheLaterRunTakesTheEarlierOnesPlace) {
  // The folder's order is not the runs'.
  write({"c", "b", 90}, 90, 120);
  write({"b", "a", 50}, 50, 90);
  write({"a", ""}, 0, 50);
  expect_lines(read(), 120);
  paths_.clear();
  write({"d", ""}, 0, 60, 50);
  write({"e", "d", 50}, 50, 90);
  write({"f", "e", 90}, 90, 100, 95);
  write({"g", "f", 95, "2026-01-01T00:00:01Z"}, 95, 130);
  const Snapshot reader = read();
  expect_lines(reader, 130);
  EXPECT_EQ(reader.path(), "all");
  EXPECT_EQ(reader.run().run_id, "g");
  EXPECT_EQ(reader.run().parent_run, "");
  EXPECT_EQ(reader.run_at(49).run_id, "d");
  EXPECT_EQ(reader.run_at(50).run_id, "e");
  EXPECT_EQ(reader.run_at(94).run_id, "f");
  EXPECT_EQ(reader.run_at(95).run_id, "g");
  ASSERT_EQ(reader.parts().size(), 4u);
  EXPECT_EQ(reader.parts()[2].steps.first, 90u);
  EXPECT_EQ(reader.parts()[2].steps.last, 95u);
}

TEST_F(Resumed, WhatWasReplacedIsNotRead) {
  write({"a", ""}, 0, 20);
  write({"b", "a", 10, "2026-01-01T00:00:05Z"}, 10, 30, 10);  // an attempt that another one begins before
  write({"c", "a", 5, "2026-01-01T00:00:09Z"}, 5, 15);
  expect_lines(read(), 15);
  EXPECT_EQ(read().parts().size(), 2u);
  ASSERT_EQ(read().replaced_traces().size(), 1u);
  const ReplacedTrace replaced = read().replaced_traces().front();
  EXPECT_EQ(replaced.path, paths_[1]);
  EXPECT_EQ(replaced.end, 30u);
  EXPECT_EQ(replaced.by_path, paths_[2]);
  EXPECT_EQ(replaced.by.parent_step, 5);
}

TEST_F(Resumed, OfTwoThatGoOnFromTheSameStepTheLaterOneCounts) {
  write({"a", ""}, 0, 20);
  write({"b", "a", 10, "2026-01-01T00:00:09Z"}, 10, 30);
  write({"c", "a", 10, "2026-01-01T00:00:05Z"}, 10, 25, 10);
  expect_lines(read(), 30);
  ASSERT_EQ(read().replaced_traces().size(), 1u);
  EXPECT_EQ(read().replaced_traces().front().path, paths_[2]);
  EXPECT_EQ(read().replaced_traces().front().by_path, paths_[1]);
}

TEST_F(Resumed, RangesOfStepsCrossRuns) {
  write({"a", ""}, 0, 10);
  write({"b", "a", 10}, 10, 20);
  const Snapshot reader = read();
  std::vector<uint64_t> steps;
  reader.visit_steps({8, 13}, [&](std::span<const StepRow> rows) {
    for (const StepRow& row : rows) steps.push_back(row.step);
    return true;
  });
  EXPECT_EQ(steps, (std::vector<uint64_t>{8, 9, 10, 11, 12}));
  int visits = 0;
  reader.visit_rows({}, [&](std::span<const TensorRow>) { return ++visits < 1; });
  EXPECT_EQ(visits, 1);
}

// Ops and tensors stand at other places in the tables of the second run, which records what it begins with.
TEST_F(Resumed, TablesAreJoinedAndInitialValuesLeftOut) {
  const auto make = [&](const Run& run, bool resumed) {
    const auto sink = create(run);
    const OpInfo batch{1, 0, "source", "", Phase::data, "", {}, OpKind::source, OpFunction::source},
        weight{2, 0, "source", "0", Phase::data, "", {}, OpKind::source, OpFunction::source},
        state{3, 0, "source", "0", Phase::data, "", {}, OpKind::source, OpFunction::source},
        linear{4, 0, "linear", "0", Phase::forward, resumed ? "a=1 b=2 c=4" : "a=1 b=3 d=5", {}};
    std::map<uint64_t, uint32_t> tensors, ops;
    const auto add = [&](const OpInfo& op, Role role) {
      TensorInfo tensor;
      tensor.op = ops[op.id] = sink->add_op(op);
      tensor.role = role;
      tensors[op.id] = sink->add_tensor(tensor);
    };
    const auto row = [&](uint64_t op, uint64_t step, uint64_t nan) {
      TensorRow added;
      added.step = step;
      added.tensor = tensors[op];
      added.known = StatisticsLevel::health;
      added.statistics.count = 100;
      added.statistics.nan = nan;
      sink->add_row(added);
    };
    if (resumed) add(state, Role::optimizer_state);
    if (resumed) add(linear, Role::activation);
    add(weight, Role::master_weight);
    add(batch, Role::input);
    if (!resumed) add(linear, Role::activation);
    sink->add_edge({0, ops[linear.id], 0, ops[batch.id], 0});
    for (uint64_t step = resumed ? 2 : 0; step < (resumed ? 4u : 2u); ++step) {
      if (step % 2 == 0) row(weight.id, step, 50 + step);
      if (step % 2 == 0 && resumed) row(state.id, step, 70);
      row(batch.id, step, 10 + step);
      row(linear.id, step, 20 + step);
      EventRow event;
      event.step = step;
      event.kind = step == 1 ? EventKind::stopped : EventKind::note;
      event.tensor = tensors[linear.id];
      sink->add_event(event);
      StepRow ended;
      ended.step = step;
      sink->end_step(ended);
    }
    ASSERT_TRUE(sink->close());
  };
  make({"a", ""}, false);
  make({"b", "a", 2}, true);
  const Snapshot reader = read();
  EXPECT_EQ(reader.ops().size(), 3u);
  EXPECT_EQ(reader.tensors().size(), 3u);
  EXPECT_EQ(reader.edges().size(), 1u);
  std::vector<std::string> found;
  reader.visit_rows({}, [&](std::span<const TensorRow> rows) {
    for (const TensorRow& row : rows) {
      const OpInfo& op = reader.ops()[reader.tensors()[row.tensor].op];
      found.push_back(op.name + op.module + ' ' + std::to_string(row.statistics.nan));
    }
    return true;
  });
  EXPECT_EQ(found, (std::vector<std::string>{"source0 50", "source 10", "linear0 20", "source 11", "linear0 21", "source 12",
                                             "linear0 22", "source 13", "linear0 23"}));
  EXPECT_EQ(reader.tensor_row_count(), found.size());
  std::vector<uint64_t> noted;
  for (const EventRow& event : reader.events()) {
    EXPECT_EQ(event.kind, EventKind::note);  // a run that another went on from did not stop
    EXPECT_EQ(reader.ops()[reader.tensors()[static_cast<size_t>(event.tensor)].op].name, "linear");
    noted.push_back(event.step);
  }
  EXPECT_EQ(noted, (std::vector<uint64_t>{0, 2, 3}));
  EXPECT_EQ(reader.ops()[2].name, "linear");
  EXPECT_EQ(reader.ops()[2].attributes, "a=1 b=varies d=varies c=varies");
  reader.visit_steps({}, [&](std::span<const StepRow> rows) {
    for (const StepRow& row : rows) EXPECT_EQ(row.graph, 0u);
    return true;
  });
}

// Rows are judged by the arithmetic that their tensor tells, which is that of the run that made them.
TEST_F(Resumed, ATensorKeepsTheArithmeticOfItsRun) {
  const auto make = [&](const Run& run, TensorInfo tensor, uint64_t first) {
    const auto sink = create(run);
    tensor.op = sink->add_op({4, 0, "linear", "0", Phase::forward, "", {}});
    const uint32_t index = sink->add_tensor(tensor);
    for (uint64_t step = first; step < first + 2; ++step) {
      TensorRow row;
      row.step = step;
      row.tensor = index;
      sink->add_row(row);
      StepRow ended;
      ended.step = step;
      sink->end_step(ended);
    }
    ASSERT_TRUE(sink->close());
  };
  TensorInfo plain;
  plain.dtype = DType::f16;
  std::vector<TensorInfo> changed(4, plain);
  changed[0].rounding = RoundingMode::toward_zero;
  changed[1].flushes_results = true;
  changed[2].flushes_inputs = true;
  changed[3].flushes_narrow_products = true;
  for (const TensorInfo& other : changed) {
    const std::string number = std::to_string(&other - changed.data());
    paths_.clear();
    make({"a" + number, ""}, plain, 0);
    make({"b" + number, "a" + number, 2}, other, 2);
    make({"c" + number, "b" + number, 4}, plain, 4);
    const Snapshot reader = read();
    ASSERT_EQ(reader.tensors().size(), 2u);
    std::vector<uint32_t> found;
    reader.visit_rows({}, [&](std::span<const TensorRow> rows) {
      for (const TensorRow& row : rows) found.push_back(row.tensor);
      return true;
    });
    EXPECT_EQ(found, (std::vector<uint32_t>{0, 0, 1, 1, 0, 0}));
    EXPECT_EQ(reader.tensors()[1].rounding, other.rounding);
    EXPECT_EQ(reader.tensors()[1].flushes_results, other.flushes_results);
    EXPECT_EQ(reader.tensors()[1].flushes_inputs, other.flushes_inputs);
    EXPECT_EQ(reader.tensors()[1].flushes_narrow_products, other.flushes_narrow_products);
    ASSERT_EQ(reader.parts().size(), 3u);
    EXPECT_EQ(reader.parts()[0].tensors, std::vector<uint32_t>{0});
    EXPECT_EQ(reader.parts()[1].tensors, std::vector<uint32_t>{1});
  }
}

TEST_F(Resumed, TracesOfSeveralRunsAreRefused) {
  write({"a", ""}, 0, 2);
  write({"b", ""}, 0, 2);
  EXPECT_THAT(error(),
              HasSubstr("'all' is a folder with 2 traces, and one is read at a time: '" + paths_[0] + "', for example; neither"));
  paths_ = {paths_[0], paths_[0]};
  EXPECT_THAT(error(), HasSubstr("are of the same run"));
  paths_.clear();
  write({"c", "d", 3}, 3, 4);
  write({"d", "c", 3}, 3, 4);
  EXPECT_THAT(error(), HasSubstr("each was resumed from another of them"));
}

// A producer that names no runs.
TEST_F(Resumed, RunsWithoutAnIdWereNotResumedFromEachOther) {
  write({"", ""}, 0, 2);
  EXPECT_EQ(Snapshot("all", paths_).step_count(), 2u);
  write({"", ""}, 0, 2);
  EXPECT_THAT(error(), HasSubstr("'all' is a folder with 2 traces, and one is read at a time: '" + paths_[0] +
                                 "', for example; neither '" + paths_[0]));
  // Whether ranks are of one run is then not known.
  for (const std::string id : {"", "c"}) {
    paths_.clear();
    for (int32_t rank = 0; rank < 2; ++rank) {
      RunInfo info = sample_run(kResumedSeed);
      info.run_id = info.parent_run = id;
      info.rank = rank;
      info.world_size = 2;
      paths_.push_back(folder_.file("rank" + id + std::to_string(rank) + ".h5"));
      ASSERT_TRUE(create_trace(paths_.back(), info)->close());
    }
    EXPECT_THAT(error(), HasSubstr(id.empty() ? "rank0.h5' does not tell which run it is of; expected traces of one run"
                                              : "rankc0.h5' says that its run was resumed from itself"));
  }
}

}  // namespace
}  // namespace ulpscope::trace_test
