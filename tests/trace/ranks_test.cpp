// The traces of a run's ranks read as one run. The producer here is the test.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <memory>

#include "tests/support/temporary_folder.h"
#include "ulpscope/base/error.h"
#include "ulpscope/trace/run_set.h"
#include "ulpscope/trace/sink.h"

namespace ulpscope::trace_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Ranks : public testing::Test {
 protected:
  struct Rank {
    int32_t rank = 0, world_size = 3;
    uint64_t first = 0, last = 10;  // steps
    std::string run_id = "a", parent = "";
  };
  // Two ops, in another order on odd ranks; the count of op 1's rows is 100 * rank + step, that of op 2's 1000 more.
  void write(const Rank& rank) {
    RunInfo info;
    info.run_id = rank.run_id;
    info.parent_run = rank.parent;
    info.parent_step = rank.parent.empty() ? -1 : static_cast<int64_t>(rank.first);
    info.rank = rank.rank;
    info.world_size = rank.world_size;
    paths_.push_back(folder_.file("trace" + std::to_string(traces_++) + ".h5"));
    const auto sink = create_trace(paths_.back(), info);
    std::array<uint32_t, 3> ops{}, tensors{};
    for (uint64_t i = 0; i < 2; ++i) {
      const uint64_t id = rank.rank % 2 ? 2 - i : 1 + i;
      ops[id] = sink->add_op({id, 0, "op" + std::to_string(id), "", Phase::forward, "", {}});
      TensorInfo tensor;
      tensor.op = ops[id];
      tensors[id] = sink->add_tensor(tensor);
    }
    sink->add_edge({0, ops[2], 0, ops[1], 0});
    for (uint64_t step = rank.first; step < rank.last; ++step) {
      for (uint64_t id : {1, 2}) {
        TensorRow row;
        row.step = step;
        row.sequence = static_cast<uint32_t>(id);
        row.tensor = tensors[id];
        row.known = StatisticsLevel::health;
        row.statistics.count = 1000 * (id - 1) + 100 * static_cast<uint64_t>(rank.rank) + step;
        sink->add_row(row);
      }
      StepRow ended;
      ended.step = step;
      sink->end_step(ended);
    }
    EventRow event;
    event.kind = EventKind::note;
    event.step = rank.first;
    event.tensor = tensors[2];
    event.text = "rank " + std::to_string(rank.rank);
    sink->add_event(event);
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
  static std::vector<uint64_t> counts(const Snapshot& snapshot, StepRange range = {}) {
    std::vector<uint64_t> counts;
    snapshot.visit_rows(range, [&](std::span<const TensorRow> rows) {
      for (const TensorRow& row : rows) {
        EXPECT_EQ(snapshot.ops()[snapshot.tensors()[row.tensor].op].id, row.sequence);
        counts.push_back(row.statistics.count);
      }
      return true;
    });
    return counts;
  }

  // A trace of rank `rank` of two that goes on being written, with an op that reads another.
  std::unique_ptr<TraceSink> begin(int32_t rank) {
    RunInfo info;
    info.run_id = "a";
    info.rank = rank;
    info.world_size = 2;
    paths_.push_back(folder_.file("live" + std::to_string(rank) + ".h5"));
    auto sink = create_trace(paths_.back(), info);
    for (uint64_t id : {1, 2}) {
      TensorInfo tensor;
      tensor.op = sink->add_op({id, 0, "op" + std::to_string(id), "", Phase::forward, "", {}});
      sink->add_tensor(tensor);
    }
    sink->add_edge({0, 1, 0, 0, 0});
    return sink;
  }
  static void end_step(TraceSink& sink, uint64_t step, uint32_t graph) {
    StepRow ended;
    ended.step = step;
    ended.graph = graph;
    sink.end_step(ended);
    ASSERT_TRUE(sink.flush());
  }

  TemporaryFolder folder_;
  std::vector<std::string> paths_;
  int traces_ = 0;
};

// What is shared with the snapshot before is not made anew, though every part has edges, which are read once.
TEST_F(Ranks, ThatAreFollowedShareWhatDidNotGrow) {
  const auto first = begin(0), second = begin(1);
  end_step(*first, 0, 0);
  end_step(*second, 0, 0);
  RunSet run("all", paths_);
  const Snapshot before = run.snapshot();
  EXPECT_EQ(before.graph().inputs(1, 0).size(), 1u);

  end_step(*first, 1, 0);
  ASSERT_TRUE(run.refresh());
  const Snapshot grown = run.snapshot();
  EXPECT_EQ(grown.step_count(), before.step_count() + 1);
  EXPECT_EQ(&grown.ops(), &before.ops());
  EXPECT_EQ(&grown.tensors(), &before.tensors());
  EXPECT_EQ(&grown.graph(), &before.graph());

  // Graphs that come later: of known ops, and of a new one; the other rank has them later.
  const auto more = [](TraceSink& sink, uint64_t step) {
    sink.add_edge({1, 1, 0, 0, 0});
    sink.add_edge({1, 1, 1, 0, 0});
    end_step(sink, step, 1);
  };
  more(*second, 1);
  ASSERT_TRUE(run.refresh());
  EXPECT_EQ(&run.snapshot().tensors(), &before.tensors());
  EXPECT_EQ(run.snapshot().graph().inputs(1, 1).size(), 2u);
  more(*first, 2);
  first->add_op({3, 0, "op3", "", Phase::forward, "", {}});
  first->add_edge({2, 2, 0, 1, 0});
  end_step(*first, 3, 2);
  ASSERT_TRUE(run.refresh());
  const Snapshot last = run.snapshot();
  EXPECT_EQ(last.ops().size(), 3u);
  std::vector<size_t> inputs;  // of the graph of each step
  last.visit_steps({}, [&](std::span<const StepRow> rows) {
    for (const StepRow& row : rows)
      inputs.push_back(last.graph().inputs(1, row.graph).size() + 10 * last.graph().inputs(2, row.graph).size());
    return true;
  });
  EXPECT_THAT(inputs, ElementsAre(1, 1, 2, 10, 1, 2));
  EXPECT_EQ(before.graph().inputs(1, 1).size(), 0u);
}

// The table has the op of one rank alone behind all others.
TEST_F(Ranks, AnOpThatOneRankAloneHasStandsWhereItRan) {
  const auto write_ops = [&](int32_t rank, const std::vector<uint64_t>& ids, int64_t first_step) {
    RunInfo info;
    info.run_id = "a";
    info.rank = rank;
    info.world_size = 2;
    paths_.push_back(folder_.file("ops" + std::to_string(traces_++) + ".h5"));
    const auto sink = create_trace(paths_.back(), info);
    for (const uint64_t id : ids) {
      OpInfo op{id, 0, "op" + std::to_string(id), "", Phase::forward, "", {}};
      op.first_step = first_step;
      op.first_sequence = static_cast<uint32_t>(id);
      TensorInfo tensor;
      tensor.op = sink->add_op(op);
      sink->add_tensor(tensor);
      if (tensor.op > 0) sink->add_edge({0, tensor.op, 0, tensor.op - 1, 0});
    }
    end_step(*sink, 0, 0);
    ASSERT_TRUE(sink->close());
  };
  for (const int64_t first_step : {0, -1}) {
    paths_.clear();
    write_ops(0, {1, 3}, 0);
    write_ops(1, {1, 2, 3}, first_step);
    const Snapshot run = read();
    ASSERT_EQ(run.ops().back().id, 2u);
    ASSERT_EQ(run.graph().uses(2).front().consumer, 1u);
    EXPECT_TRUE(run.graph().is_within_step(run.graph().inputs(2).front()));
    // Where that is not known, the order of the table is all there is.
    EXPECT_EQ(run.graph().is_within_step(run.graph().uses(2).front()), first_step == 0);
    EXPECT_EQ(run.graph().runs_before(2, 1), first_step == 0);
    EXPECT_FALSE(run.graph().runs_before(2, 2));
  }
}

TEST_F(Ranks, ReadAsOneRun) {
  write({.rank = 2});
  write({.rank = 0});
  write({.rank = 1});
  const Snapshot all = read();
  EXPECT_THAT(all.ranks(), ElementsAre(0, 1, 2));
  EXPECT_EQ(all.step_count(), 30u);
  EXPECT_EQ(all.tensor_row_count(), 60u);
  EXPECT_THAT(all.rank_notes(), ElementsAre());
  EXPECT_EQ(all.ops().size(), 2u);
  EXPECT_EQ(all.tensors().size(), 2u);
  EXPECT_EQ(all.edges().size(), 1u);
  ASSERT_EQ(all.parts().size(), 3u);
  EXPECT_THAT(counts(all, {4, 5}), ElementsAre(4, 1004, 104, 1104, 204, 1204));
  for (int32_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(all.parts()[static_cast<size_t>(rank)].run.rank, rank);
    for (const Snapshot& one : {all.of_rank(rank), all.of_part(static_cast<size_t>(rank))}) {
      EXPECT_EQ(one.run().rank, rank);
      EXPECT_EQ(one.run_at(3).rank, rank);
      EXPECT_EQ(one.step_count(), 10u);
      const uint64_t base = 100 * static_cast<uint64_t>(rank);
      EXPECT_THAT(counts(one, {4, 5}), ElementsAre(base + 4, base + 1004));
      EXPECT_THAT(one.history<uint64_t>(0, "count", {8, 10}), ElementsAre(base + 8, base + 9));
      ASSERT_EQ(one.events().size(), 1u);
      EXPECT_EQ(one.events()[0].text, "rank " + std::to_string(rank));
      EXPECT_EQ(one.events()[0].rank, rank);
      EXPECT_EQ(one.ops()[one.tensors()[static_cast<size_t>(one.events()[0].tensor)].op].id, 2u);
      EXPECT_EQ(&one.ops(), &all.ops());
    }
  }
  ASSERT_EQ(all.events().size(), 3u);
  for (int32_t rank = 0; rank < 3; ++rank) EXPECT_EQ(all.events()[static_cast<size_t>(rank)].rank, rank);
  EXPECT_THAT(all.history<uint64_t>(1, "count", {9, 10}), ElementsAre(1009, 1109, 1209));
  EXPECT_THAT(all.column<uint64_t>("count", {9, 10}), ElementsAre(9, 1009, 109, 1109, 209, 1209));
  EXPECT_THAT(all.column<uint32_t>("tensor", {9, 10}), ElementsAre(0, 1, 0, 1, 0, 1));
  EXPECT_THROW(all.of_rank(3), Error);
  EXPECT_THROW(all.of_part(3), Error);
}

TEST_F(Ranks, OfAResumedRunFollowEachOtherInTime) {
  for (int32_t rank = 0; rank < 2; ++rank) write({.rank = rank, .world_size = 2, .last = 6});
  for (int32_t rank = 0; rank < 2; ++rank)
    write({.rank = rank, .world_size = 2, .first = 4, .last = 8, .run_id = "b", .parent = "a"});
  const Snapshot all = read();
  ASSERT_EQ(all.parts().size(), 4u);
  EXPECT_EQ(all.step_count(), 16u);
  EXPECT_EQ(all.of_rank(1).run().run_id, "b");
  EXPECT_EQ(all.of_rank(1).run_at(3).run_id, "a");
  EXPECT_EQ(all.of_rank(1).run_at(4).run_id, "b");
  EXPECT_THAT(all.of_rank(1).column<uint64_t>("step"), ElementsAre(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7));
}

TEST_F(Ranks, AShorterOneIsNoted) {
  write({.rank = 0});
  write({.rank = 1, .last = 7});
  write({.rank = 2, .last = 9});
  const Snapshot all = read();
  EXPECT_THAT(all.rank_notes(), ElementsAre("rank 1 ends 3 steps before rank 0", "rank 2 ends 1 step before rank 0"));
  EXPECT_THAT(all.of_rank(1).rank_notes(), ElementsAre());
}

TEST_F(Ranks, OneThatIsMissingTwiceThereOrOfAnotherRunIsRefused) {
  write({.rank = 0});
  write({.rank = 2});
  EXPECT_EQ(error(), "'all': the trace of rank 1 of 3 is missing; the ranks that are there can be read one by one: '" + paths_[0] +
                         "', for example");
  write({.rank = 2});
  write({.rank = 1});
  EXPECT_THAT(error(), HasSubstr("'" + paths_[1] + "' and '" + paths_[2] + "' are of the same run, of rank 2"));
  paths_.clear();
  write({.rank = 0});
  write({.rank = 1});
  write({.rank = 2, .run_id = "b"});
  EXPECT_EQ(error(), "'all': '" + paths_[0] + "' is of run a, of which rank 2 has no trace; expected traces of one run");
  paths_.clear();
  write({.rank = 0});
  write({.rank = 1, .world_size = 2});
  write({.rank = 2});
  EXPECT_EQ(error(), "'all': '" + paths_[1] + "' is of a run of 2 ranks, and '" + paths_[0] +
                         "' of one of 3 ranks; expected traces of one run");
}

}  // namespace
}  // namespace ulpscope::trace_test
