// Several ranks of a run, and traces of newer programs, as reports tell of them.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cmath>

#include "report_access.h"
#include "synthetic_trace.h"
#include "tests/support/temporary_folder.h"
#include "tests/trace/other_minor.h"
#include "ulpscope/analyzers/report/text.h"
#include "ulpscope/analyzers/verbs/all_findings.h"
#include "ulpscope/analyzers/verbs/compare.h"
#include "ulpscope/analyzers/verbs/export.h"
#include "ulpscope/analyzers/verbs/info.h"
#include "ulpscope/analyzers/verbs/scale.h"
#include "ulpscope/trace/recover.h"
#include "ulpscope/trace/schema.h"

namespace ulpscope::analyzers_test {
namespace {

using ::testing::HasSubstr;

// Ranks of one run, each with its losses, as many as they are.
class RankedRun {
 public:
  explicit RankedRun(const std::vector<std::vector<double>>& losses) : traces_(static_cast<int>(losses.size())) {
    for (size_t rank = 0; rank < losses.size(); ++rank)
      for (const double loss : losses[rank]) traces_[rank].end_step(SyntheticTrace::default_step(loss));
    paths_ = traces_.close();
  }
  Snapshot read() const { return Snapshot("run", paths_); }

 private:
  RankedTraces traces_;
  std::vector<std::string> paths_;
};

TEST(RanksInReports, LossesAreComparedRankByRank) {
  const RankedRun a({{3, 2, 1}, {6, 5, 4}}), same({{3, 2, 1}, {6, 5, 4}}), other({{3, 2, 0.5}, {6, 7, 4}});
  const Report equal = analyze_compare(a.read(), same.read(), {});
  ASSERT_NE(find_finding(equal, "compare.losses_equal"), nullptr);
  EXPECT_THAT(find_finding(equal, "compare.losses_equal")->title, HasSubstr("of 3 common steps are bit-equal"));
  const Report different = analyze_compare(a.read(), other.read(), {});
  ASSERT_NE(find_finding(different, "compare.first_difference"), nullptr);
  EXPECT_THAT(find_finding(different, "compare.first_difference")->title, HasSubstr("in 2 of 3 common steps, first in step 1"));
}

// The losses of one rank are compared with those of one rank; where there are several, with those of the same one.
TEST(RanksInReports, SingleRanksAreComparedWhateverTheirNumbers) {
  const RankedRun three({{3, 2, 1}, {3, 2, 1}, {5, 5, 5}}), two({{3, 2, 1}, {3, 2, 1}});
  const auto rank = [&](size_t number) { return Snapshot(three.read().parts().at(number).path); };
  const Report equal = analyze_compare(rank(0), rank(1), {});
  ASSERT_NE(find_finding(equal, "compare.losses_equal"), nullptr);
  EXPECT_EQ(find_finding(equal, "compare.no_common_rank"), nullptr);
  EXPECT_NE(find_finding(analyze_compare(rank(0), rank(2), {}), "compare.first_difference"), nullptr);
  const Report none = analyze_compare(two.read(), rank(2), {});
  EXPECT_EQ(find_finding(none, "compare.losses_equal"), nullptr);
  ASSERT_NE(find_finding(none, "compare.no_common_rank"), nullptr);
  EXPECT_THAT(find_finding(none, "compare.no_common_rank")->title, HasSubstr("no rank is in both runs (first: 0, 1; second: 2)"));
  EXPECT_EQ(find_finding(analyze_compare(two.read(), rank(1), {}), "compare.no_common_rank"), nullptr);
}

// One that says why it ends, and one whose program ended without closing it: both are told, each with its rank.
TEST(RanksInReports, EachOfTheirEndsIsTold) {
  TemporaryFolder folder;
  const auto create = [&](int32_t rank, const std::string& path) {
    RunInfo run;
    run.run_id = "0123456789abcdef0123456789abcdef";
    run.producer = "test";
    run.rank = rank;
    run.world_size = 2;
    auto sink = create_trace(path, run);
    sink->end_step(SyntheticTrace::default_step(1));
    sink->flush();
    return sink;
  };
  const std::string noted = folder.file("noted.h5"), dead = folder.file("dead.h5"), closed = folder.file("closed.h5");
  {
    const auto goes_on = create(0, folder.file("goes_on.h5"));
    recover_trace(folder.file("goes_on.h5"), noted);
  }
  create(0, closed)->close();
  const pid_t writer = fork();
  if (writer == 0) {
    const auto sink = create(1, dead);
    _exit(0);
  }
  ASSERT_EQ(waitpid(writer, nullptr, 0), writer);
  const auto report = [](const std::vector<std::string>& paths) { return analyze_all(Snapshot("run", paths), {}); };
  const Report both = report({noted, dead});
  ASSERT_NE(find_finding(both, "recording.dead"), nullptr);
  EXPECT_THAT(find_finding(both, "recording.dead")->title, HasSubstr("The trace of rank 1 ends after 1 step: its program"));
  ASSERT_NE(find_finding(both, "recording.ended_early"), nullptr);
  EXPECT_EQ(find_finding(both, "recording.ended_early")->title,
            "The trace of rank 0 ends early: copied while the trace was being written.");
  // What is suggested is a command as it is to be typed.
  EXPECT_THAT(find_finding(both, "recording.dead")->suggestion, HasSubstr("`ulpscope recover " + dead + " recovered.h5`"));
  const Report one = report({closed, dead});
  EXPECT_NE(find_finding(one, "recording.dead"), nullptr);
  EXPECT_EQ(find_finding(one, "recording.ended_early"), nullptr);
  EXPECT_THAT(find_finding(report({noted}), "recording.ended_early")->title, ::testing::StartsWith("The trace ends early: "));
}

// One rank whose losses end as NaN breaks the run, though those of the others are finite; one whose come back does not.
TEST(RanksInReports, OneThatEndsInNanBreaksTheRun) {
  const Report broken = analyze_all(RankedRun({{3, 2, 1, 1}, {3, NAN, 1, 1}, {3, 2, NAN, NAN}}).read(), {});
  EXPECT_EQ(broken.verdict, Verdict::broken);
  ASSERT_NE(find_finding(broken, "run.loss_nonfinite"), nullptr);
  EXPECT_EQ(find_finding(broken, "run.loss_nonfinite")->severity, Severity::error);
  EXPECT_EQ(find_finding(broken, "run.loss_nonfinite")->title,
            "The loss of rank 2 was NaN or Inf from step 2 on. Over all ranks the loss was NaN or Inf in 3 of 4 steps (first: step "
            "1).");
  const Report recovered = analyze_all(RankedRun({{3, 2, 1, 1}, {3, NAN, 1, 1}}).read(), {});
  EXPECT_NE(recovered.verdict, Verdict::broken);
  EXPECT_THAT(find_finding(recovered, "run.loss_nonfinite")->title,
              HasSubstr("in 1 of 4 steps (first: step 1), but is finite in the"));
  const Report all = analyze_all(RankedRun({{3, NAN}, {3, NAN}}).read(), {});
  EXPECT_THAT(find_finding(all, "run.loss_nonfinite")->title, HasSubstr("The loss was NaN or Inf in 1 of 2 steps"));
}

TEST(RanksInReports, AShorterOneIsSaid) {
  const Report report = analyze_all(RankedRun({{3, 2, 1}, {6}, {1, 2}}).read(), {});
  const Finding* const finding = find_finding(report, "recording.ranks_differ");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->severity, Severity::warning);
  EXPECT_THAT(finding->title, HasSubstr("rank 1 ends 2 steps before rank 0; rank 2 ends 1 step before rank 0"));
  EXPECT_EQ(find_finding(analyze_all(RankedRun({{3, 2}, {6, 1}}).read(), {}), "recording.ranks_differ"), nullptr);
}

TEST(RanksInReports, OneThatIsReadAloneIsSaid) {
  const RankedRun ranks({{3, 2, 1}, {6, 5, 4}});
  const Snapshot all = ranks.read(), one(all.parts().at(1).path);
  for (const Report& report : {analyze_all(one, {}), analyze_info(one)}) {
    const Finding* const finding = find_finding(report, "recording.other_ranks");
    ASSERT_NE(finding, nullptr);
    EXPECT_EQ(finding->severity, Severity::info);
    EXPECT_EQ(finding->title, "The trace holds rank 1 of 2 ranks; the others are not read.");
    EXPECT_THAT(finding->suggestion, HasSubstr("Put the traces of all ranks into one folder"));
  }
  // The page tells it too, which leaves notes out.
  const std::string page = render_text(analyze_all(one, {}), {});
  EXPECT_THAT(page, HasSubstr("\nRun      FP32, rank 1 of 2, 3 steps"));
  EXPECT_THAT(page, HasSubstr("1 other rank\n         (not read)"));
  EXPECT_EQ(render_text(analyze_all(all, {}), {}).find("not read"), std::string::npos);
  EXPECT_EQ(analyze_all(one, {}).verdict, analyze_all(all.of_rank(1), {}).verdict);
  for (const Snapshot& whole : {all, all.of_rank(1)})
    EXPECT_EQ(find_finding(analyze_all(whole, {}), "recording.other_ranks"), nullptr);
}

TEST(NewerTraces, WhatWasNotReadOfThemIsSaid) {
  using namespace trace_test;
  RankedTraces traces(2);
  for (const size_t rank : {0, 1}) {
    traces[rank].add_event(EventKind::warning, -1, 0, 0, "said");
    traces[rank].end_step(SyntheticTrace::default_step(1));
  }
  const std::vector<std::string> paths = traces.close();
  const std::string next = fmt::format("{}.{}", kSchemaMajor, kSchemaMinor + 1),
                    own = fmt::format("{}.{}", kSchemaMajor, kSchemaMinor);
  const auto reports = [](const Snapshot& trace) { return std::array{analyze_all(trace, {}), analyze_info(trace)}; };
  const auto expect = [&](const Snapshot& trace, const std::string& title) {
    for (const Report& report : reports(trace)) {
      const Finding* const finding = find_finding(report, "recording.newer_trace");
      ASSERT_NE(finding, nullptr);
      EXPECT_EQ(finding->severity, Severity::info);
      EXPECT_EQ(finding->title, title);
      EXPECT_EQ(finding->suggestion, "Read it with an ulpscope that supports schema " + next + ".");
    }
  };
  set_minor(paths[0], kSchemaMinor + 1);
  for (const Report& report : reports(Snapshot(paths[0]))) EXPECT_EQ(find_finding(report, "recording.newer_trace"), nullptr);
  EXPECT_EQ(fact(analyze_info(Snapshot(paths[0])), "schema_version"), Cell(next));
  EXPECT_EQ(fact(analyze_info(Snapshot("run", paths)), "schema_version"), Cell(own + ", " + next));
  add_column(paths[0], "events", "mood");
  expect(Snapshot(paths[0]), "A newer ulpscope wrote the trace (schema " + next + "): 1 column was not read.");
  add_table(paths[0], "weather", 3);
  add_table(paths[0], "tides", 3);
  expect(Snapshot(paths[0]), "A newer ulpscope wrote the trace (schema " + next + "): 2 tables and 1 column were not read.");
  expect(Snapshot("run", paths), "A newer ulpscope wrote 1 trace of the run (schema " + next + "; first: '" + paths[0] +
                                     "'): 2 tables and 1 column were not read.");
  set_minor(paths[1], kSchemaMinor + 1);
  add_column(paths[1], "events", "mood");
  for (const char* table : {"weather", "tides"}) add_table(paths[1], table, 3);
  expect(Snapshot("run", paths), "A newer ulpscope wrote 2 traces of the run (schema " + next + "; first: '" + paths[0] +
                                     "'): 2 tables and 1 column were not read.");
  std::string events;
  export_table(Snapshot(paths[1]), "events", ExportFormat::csv, {}, [&](std::string_view piece) {
    events += piece;
    return true;
  });
  EXPECT_THAT(events, HasSubstr("said"));
  EXPECT_THAT(events, ::testing::Not(HasSubstr("mood")));
}

// Events come rank by rank: each is told with its own, and of several the first is that of the first step.
TEST(RanksInReports, EventsAreOfTheirRank) {
  RankedTraces traces(2, "fp16");
  for (const size_t rank : {0, 1}) {
    SyntheticTrace& trace = traces[rank];
    const uint32_t gradient = trace.add_tensor("fc", "linear_backward", Phase::backward, Role::weight_gradient, DType::f16);
    const uint32_t summed = trace.add_tensor("fc", "all_reduce", Phase::communication, Role::weight_gradient, DType::f16);
    const uint32_t state = trace.add_tensor("fc", "adam_update", Phase::optimizer, Role::optimizer_state, DType::f32, "fc.weight");
    for (uint64_t step = 0; step < 4; ++step) {
      StepRow row = SyntheticTrace::default_step(1.0, 64);
      // Rank 1 made what both ranks summed up in step 1, and rank 0 that of step 2.
      const bool is_own = step == 2 - rank;
      row.skipped = step == 1 || step == 2;
      if (row.skipped) {
        trace.add_event(EventKind::scale_backoff, is_own ? gradient : summed, 1, 32);
        trace.add_event(EventKind::nonfinite, is_own ? gradient : summed, 1);
        row.scale_after = 32;
      }
      if (step == 3 - rank) trace.add_event(EventKind::memory_changed, state, 0, 0, fmt::format("it changed in {}", step));
      if (step == 3 && rank == 1) trace.add_event(EventKind::metric, -1, 0, 0.5, "test_accuracy");
      if (step == 3 && rank == 1) trace.add_event(EventKind::warning, -1, 0, 0, "the disk is slow");
      trace.end_step(row);
    }
  }
  const Snapshot run("run", traces.close());
  const Report report = analyze_all(run, {});
  const Finding* const changed = find_finding(report, "recording.memory_changed");
  ASSERT_NE(changed, nullptr);
  EXPECT_THAT(changed->title, ::testing::StartsWith("Memory changed on rank 1: `"));
  EXPECT_THAT(changed->title,
              HasSubstr("between step 0, which wrote it, and step 2, which read it. It is the first of 2 changes."));
  ASSERT_EQ(changed->evidence.size(), 2u);
  EXPECT_EQ(changed->evidence[0].key.rank, 1);
  EXPECT_EQ(changed->evidence[1].key.rank, 0);
  ReportOptions until;
  until.steps.last = 3;
  const Report before = analyze_all(run, until);
  const Finding* const only = find_finding(before, "recording.memory_changed");
  ASSERT_NE(only, nullptr);
  EXPECT_THAT(only->title, HasSubstr("Memory changed on rank 1: `"));
  EXPECT_THAT(only->title, ::testing::Not(HasSubstr("the first of")));
  ASSERT_NE(find_finding(report, "recording.warning"), nullptr);
  EXPECT_EQ(find_finding(report, "recording.warning")->evidence.at(0).key.rank, 1);

  const Report scale = analyze_scale(run);
  const Table& changes = table(scale, "changes");
  ASSERT_EQ(changes.rows.size(), 2u);
  for (const size_t i : {0, 1}) {
    EXPECT_EQ(changes.rows[i].key.rank, i == 0 ? 1 : 0);
    EXPECT_EQ(changes.rows[i].key.op_name, "linear_backward");
  }
  const Report info = analyze_info(run);
  const Table& metrics = table(info, "metrics");
  ASSERT_EQ(metrics.rows.size(), 1u);
  EXPECT_EQ(metrics.rows[0].key.rank, 1);
}

// Each rank goes on with what another one made in the step before.
TEST(RanksInReports, WhereALossBeganIsFollowedOverAllRanks) {
  RankedTraces traces(2);
  for (const size_t rank : {0, 1})
    for (uint64_t step = 0; step < 6; ++step) {
      if (rank == 1 ? step == 1 : step == 2 || step == 3) traces[rank].add_event(EventKind::nonfinite, -1, 1);
      traces[rank].end_step(SyntheticTrace::default_step(step >= 4 ? NAN : 1.0));
    }
  const Report report = analyze_all(Snapshot("run", traces.close()), {});
  ASSERT_NE(find_finding(report, "run.loss_nonfinite"), nullptr);
  EXPECT_THAT(find_finding(report, "run.loss_nonfinite")->suggestion,
              ::testing::StartsWith("It began in step 1: `ulpscope ranges "));
}

TEST(RanksInReports, RowsOfATableSayWhichTheyAreOf) {
  std::string text;
  export_table(RankedRun({{3, 2}, {6, 1}}).read(), "steps", ExportFormat::csv, {}, [&](std::string_view piece) {
    text += piece;
    return true;
  });
  EXPECT_THAT(text, ::testing::StartsWith("rank,step,graph,loss,"));
  EXPECT_THAT(text, HasSubstr("\n0,1,4294967295,2,"));
  EXPECT_THAT(text, HasSubstr("\n1,0,4294967295,6,"));
}

}  // namespace
}  // namespace ulpscope::analyzers_test
