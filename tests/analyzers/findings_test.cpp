// info, compare, report, and what is found besides ranges and scale.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "report_access.h"
#include "synthetic_trace.h"
#include "tests/support/said.h"
#include "ulpscope/analyzers/subject/selection.h"
#include "ulpscope/analyzers/verbs/all_findings.h"
#include "ulpscope/analyzers/verbs/compare.h"
#include "ulpscope/analyzers/verbs/info.h"
#include "ulpscope/base/error.h"
#include "ulpscope/emulation/product_shape.h"
#include "ulpscope/trace/schema.h"

namespace ulpscope::analyzers_test {
namespace {

TEST(Info, SaysWhatTheTraceSays) {
  SyntheticTrace trace;
  const uint32_t tensor = trace.add_tensor("fc", "linear", Phase::forward, Role::activation, DType::f16);
  for (int step = 0; step < 10; ++step) {
    trace.add(tensor, make_row({1.0}, DType::f16));
    StepRow row = SyntheticTrace::default_step(10.0 - step, 8.0);
    row.skipped = step == 3;
    row.peak_memory = 1000 + (step == 5);
    if (step == 9) trace.add_event(EventKind::metric, -1, 0, 0.875, "test_accuracy");
    trace.end_step(row);
  }
  const Snapshot reader = trace.read();
  const Report report = analyze_info(reader);
  EXPECT_EQ(fact(report, "schema_version"), Cell(fmt::format("{}.{}", kSchemaMajor, kSchemaMinor)));
  EXPECT_EQ(fact(report, "writer"), Cell(std::string("closed")));
  EXPECT_EQ(fact(report, "steps"), Cell(int64_t{10}));
  EXPECT_EQ(fact(report, "first_loss"), Cell(10.0));
  EXPECT_EQ(fact(report, "final_loss"), Cell(1.0));
  EXPECT_EQ(fact(report, "test_accuracy"), Cell(0.875));
  EXPECT_EQ(fact(report, "ops"), Cell(int64_t{1}));
  EXPECT_EQ(fact(report, "tensor_rows"), Cell(int64_t{10}));
  EXPECT_DOUBLE_EQ(lower(fact(report, "bytes_per_row")), static_cast<double>(reader.file_bytes()) / 10);
  EXPECT_EQ(fact(report, "backend"), Cell(std::string("cpu")));
  EXPECT_EQ(fact(report, "precision"), Cell(std::string("fp16")));
  EXPECT_EQ(fact(report, "skipped_steps"), Cell(int64_t{1}));
  EXPECT_EQ(fact(report, "peak_memory_bytes"), Cell(int64_t{1001}));
  EXPECT_EQ(fact(report, "seconds"), Cell(2.5));
  AnalysisOptions options;
  options.steps = {2, 4};
  EXPECT_EQ(fact(analyze_info(reader, options), "first_loss"), Cell(8.0));
}

TEST(Info, SaysWhereSamplesComeFromAndHowMuchIsKnown) {
  SyntheticTrace trace(RunInfo(), {{"lr", "0.1", SettingKind::learning_rate, true},
                                   {"eps", "0", SettingKind::epsilon, false},
                                   {"amp", "True", SettingKind::scale_enabled, true}});
  const uint32_t weight = trace.add_tensor("fc", "adam_update", Phase::optimizer, Role::weight, DType::f32, "fc.weight");
  trace.sink().add_source({.source = 0, .name = "train", .part = "inputs", .file = "x.h5", .inside = "deep/x", .samples = 40});
  trace.sink().add_source({.source = 0, .name = "train", .part = "targets", .file = "y.csv", .columns = "4", .samples = 40});
  for (int step = 0; step < 3; ++step) {
    for (uint64_t sample = 0; sample < 5; ++sample) trace.sink().add_batch({.step = trace.step(), .source = 0, .sample = sample});
    trace.add_update(weight, 5, 0, 0);
    if (step == 1) trace.sink().add_fingerprint({.step = trace.step(), .tensor = weight, .written = 1});
    trace.end_step();
  }
  const Snapshot reader = trace.read();
  AnalysisOptions options;
  const Report report = analyze_info(reader, options);
  EXPECT_EQ(fact(report, "batch_rows"), Cell(int64_t{15}));
  EXPECT_EQ(fact(report, "parameter_rows"), Cell(int64_t{3}));
  EXPECT_EQ(fact(report, "fingerprints"), Cell(int64_t{1}));
  EXPECT_EQ(fact(report, "capture_rows"), Cell(int64_t{0}));
  EXPECT_EQ(fact(report, "settings"), Cell(int64_t{3}));
  EXPECT_EQ(fact(report, "settings_given"), Cell(int64_t{2}));
  const auto sources = [](const Report& of) {
    return std::find_if(of.tables.begin(), of.tables.end(), [](const Table& table) { return table.name == "sources"; });
  };
  ASSERT_NE(sources(report), report.tables.end());
  ASSERT_EQ(sources(report)->rows.size(), 2u);
  EXPECT_EQ(sources(report)->rows[0].cells[3], Cell(std::string("x.h5")));
  EXPECT_EQ(sources(report)->rows[0].cells[4], Cell(std::string("deep/x")));
  EXPECT_EQ(sources(report)->rows[1].cells[5], Cell(std::string("4")));
  EXPECT_EQ(sources(report)->rows[1].cells[7], Cell(int64_t{40}));
  options.limit = 1;
  const Report limited = analyze_info(reader, options);
  EXPECT_EQ(sources(limited)->rows.size(), 1u);
  EXPECT_EQ(sources(limited)->rows_left_out, 1u);
  EXPECT_THROW(reader.row_count("sources"), Error);
  EXPECT_EQ(reader.row_count("stats"), 0u);
}

TEST(Info, SaysWhatChangedTheRecording) {
  RunInfo run;
  run.level = RecordLevel::stats;
  SyntheticTrace trace(run);
  for (const RecordLevel level : {RecordLevel::stats, RecordLevel::health}) {
    if (level == RecordLevel::health) {
      trace.add_event(EventKind::level_lowered, -1, 0, 0, "the file grew too large");
      trace.add_event(EventKind::stopped, -1, 0, 0, "no more rows");
    }
    StepRow row = SyntheticTrace::default_step();
    row.level = level;
    trace.end_step(row);
  }
  const Snapshot reader = trace.read();
  const Report report = analyze_info(reader);
  EXPECT_EQ(fact(report, "level"), Cell(std::string("stats")));
  EXPECT_EQ(fact(report, "final_level"), Cell(std::string("health")));
  const Table& recording = table(report, "recording");
  ASSERT_EQ(recording.rows.size(), 2u);
  EXPECT_EQ(cell(recording, 0, "step"), Cell(int64_t{1}));
  EXPECT_EQ(cell(recording, 0, "text"), Cell(std::string("the file grew too large")));
  EXPECT_EQ(cell(recording, 1, "kind"), Cell(std::string("stopped")));
}

// Steps 0 to 4, 7 to 9, 10 to 11: the second run went on at step 7, the third at step 10.
TEST(Report, StepsThatNoTraceOfARunHasAreAFinding) {
  const auto write = [](SyntheticTrace& trace, uint64_t first, uint64_t last) {
    StepRow row = SyntheticTrace::default_step();
    for (row.step = first; row.step < last; ++row.step) trace.sink().end_step(row);
    trace.sink().close();
  };
  const auto run = [](const std::string& id, const std::string& parent, int64_t step) {
    RunInfo info;
    info.run_id = id;
    info.parent_run = parent;
    info.parent_step = step;
    return info;
  };
  SyntheticTrace a(run("a", "", -1)), b(run("b", "a", 7)), c(run("c", "b", 10));
  write(a, 0, 5);
  write(b, 7, 10);
  write(c, 10, 12);
  const std::string paths[] = {a.path(), b.path(), c.path()};
  const Snapshot whole("run", paths);
  for (const Report& report : {analyze_info(whole), analyze_all(whole, {})}) {
    const Finding* missing = find_finding(report, "recording.missing_steps");
    ASSERT_NE(missing, nullptr) << report.analysis;
    EXPECT_EQ(missing->severity, Severity::warning);
    EXPECT_EQ(missing->title, "2 steps of the run are in no trace (first: step 5).");
    ASSERT_EQ(missing->evidence.size(), 1u);
    EXPECT_EQ(missing->evidence[0].key.step, 5u);
    EXPECT_EQ(missing->evidence[0].values[0].value, Cell(int64_t{2}));
  }
  ReportOptions later;
  later.steps = {6, 12};
  EXPECT_EQ(find_finding(analyze_all(whole, later), "recording.missing_steps")->title,
            "1 step of the run is in no trace (first: step 6).");
  later.steps = {7, 12};
  EXPECT_EQ(find_finding(analyze_all(whole, later), "recording.missing_steps"), nullptr);
  // What the first of several went on from is another run's.
  const Snapshot end("end", std::span(paths).subspan(1));
  EXPECT_EQ(find_finding(analyze_info(end), "recording.missing_steps"), nullptr);
  EXPECT_EQ(find_finding(analyze_info(Snapshot(paths[1])), "recording.missing_steps"), nullptr);
}

// A run that was killed before its first step was committed.
TEST(Report, StepsBeforeTheSecondTraceAreMissingWhereTheFirstIsEmpty) {
  RunInfo first, second;
  first.run_id = "a";
  second.run_id = "b";
  second.parent_run = "a";
  second.parent_step = 26;
  SyntheticTrace a(first), b(second);
  StepRow row = SyntheticTrace::default_step();
  row.step = 26;
  b.sink().end_step(row);
  a.sink().close();
  b.sink().close();
  const std::string paths[] = {a.path(), b.path()};
  EXPECT_EQ(find_finding(analyze_info(Snapshot("run", paths)), "recording.missing_steps")->title,
            "26 steps of the run are in no trace (first: step 0).");
}

TEST(Info, UnknownIsNotNanAndNanIsNotUnknown) {
  SyntheticTrace trace;
  StepRow unknown = SyntheticTrace::default_step(NAN);
  unknown.loss_known = false;
  trace.end_step(unknown);
  trace.end_step(SyntheticTrace::default_step(NAN));
  const Report report = analyze_info(trace.read());
  EXPECT_TRUE(is_unknown(fact(report, "first_loss")));
  EXPECT_TRUE(std::isnan(std::get<double>(fact(report, "final_loss"))));
  SyntheticTrace empty;
  const Report nothing = analyze_info(empty.read());
  EXPECT_TRUE(is_unknown(fact(nothing, "final_loss")));
  EXPECT_TRUE(is_unknown(fact(nothing, "bytes_per_row")));
  EXPECT_TRUE(is_unknown(fact(nothing, "peak_memory_bytes")));
}

// Why no weight changed: the learning rate, gradients that were zero, or updates that were rounded away.
TEST(Report, SaysWhyNoUpdateWasApplied) {
  struct Said {
    std::string why, advice;
    bool operator==(const Said&) const = default;
  };
  const auto told = [](double rate, uint64_t nonzero) {
    SyntheticTrace trace;
    const uint32_t weight = trace.add_tensor("fc", "sgd_update", Phase::optimizer, Role::weight, DType::f16, "fc.weight");
    for (int step = 0; step < 2; ++step) {
      trace.add_update(weight, nonzero, nonzero, 0);
      StepRow row = SyntheticTrace::default_step();
      row.learning_rate = rate;
      trace.end_step(row);
    }
    const Report report = analyze_all(trace.read());
    const Finding* finding = find_finding(report, "updates.none_applied");
    if (finding == nullptr) return Said();
    EXPECT_EQ(finding->title.front().text(), "No weight changed in any of 2 recorded updates.");
    return Said{finding->title.from(1).text(), std::string(finding->suggestion.front().id())};
  };
  EXPECT_EQ(told(0, 0), (Said{"The learning rate is 0 in every step.", "advice.raise_learning_rate"}));
  for (const double rate : {0.1, kUnknown}) {
    EXPECT_EQ(told(rate, 0), (Said{"Every update is zero.", "advice.where_gradients_vanish"}));
    EXPECT_EQ(told(rate, 7), (Said{"Every nonzero update was rounded away: w + dw == w.", "advice.masters_or_learning_rate"}));
  }
}

TEST(Report, GathersAllPartsBySeverityAndLeavesOutWhatWasNotAskedFor) {
  RunInfo run;
  run.precision = "fp16";
  SyntheticTrace trace(run);
  const uint32_t gradient = trace.add_tensor("fc", "linear_backward", Phase::backward, Role::weight_gradient, DType::f16);
  const uint32_t weight = trace.add_tensor("fc", "sgd_update", Phase::optimizer, Role::master_weight, DType::f32, "fc.weight");
  for (int step = 0; step < 3; ++step) {
    trace.add(gradient, make_row({1e-9, 1e-10}, DType::f16));
    trace.add_update(weight, 0, 0, 0);
    if (step == 1) {
      trace.add_event(EventKind::level_lowered, -1, 0, 0, "the file reached its limit");
      trace.add_event(EventKind::stopped, -1, 0, 0, "no more rows");
      trace.add_event(EventKind::stopped, -1, 0, 0, "no more steps");
      trace.add_event(EventKind::cut_short, -1, 0, 0, "the limit is near");
    }
    trace.end_step(SyntheticTrace::default_step(step == 2 ? NAN : 1.0));
  }
  const Snapshot reader = trace.read();
  const Report report = analyze_all(reader);
  for (const char* code :
       {"range.gradients_vanish", "updates.none_applied", "run.loss_nonfinite", "recording.level_lowered", "scale.missing"}) {
    EXPECT_NE(find_finding(report, code), nullptr) << code;
  }
  for (size_t i = 1; i < report.findings.size(); ++i) EXPECT_GE(report.findings[i - 1].severity, report.findings[i].severity);
  EXPECT_EQ(find_finding(report, "run.loss_nonfinite")->evidence[0].key.step, 2u);
  EXPECT_EQ(find_finding(report, "recording.level_lowered")->title, "the file reached its limit");
  EXPECT_EQ(find_finding(report, "recording.ended_early"), nullptr);  // no error ended it
  EXPECT_EQ(find_finding(report, "recording.cut_short")->title, "The recording was cut short: the limit is near.");
  std::vector<std::string> stopped;
  for (const Finding& finding : report.findings) {
    if (finding.code != "run.stopped") continue;
    EXPECT_EQ(finding.severity, Severity::warning);
    EXPECT_EQ(finding.evidence[0].key.step, 1u);
    stopped.push_back(finding.title.text());
  }
  EXPECT_EQ(stopped, (std::vector<std::string>{"Training stopped early: no more rows.", "Training stopped early: no more steps."}));
  EXPECT_EQ(report.verdict, Verdict::broken);
  EXPECT_TRUE(has_finding(report, Severity::error));
  ReportOptions options;
  options.only = {"recording"};
  const Report one = analyze_all(reader, options);
  ASSERT_EQ(one.findings.size(), 4u) << "a lowered level, two stops, and a recording cut short";
  EXPECT_FALSE(has_finding(one, Severity::error));
  EXPECT_TRUE(has_finding(one, Severity::warning));
  options.only = {"updates"};
  EXPECT_EQ(analyze_all(reader, options).findings.size(), 1u);
}

TEST(Report, AHealthyRunHasNoWarnings) {
  SyntheticTrace trace;
  const uint32_t gradient = trace.add_tensor("fc", "linear_backward", Phase::backward, Role::weight_gradient, DType::f16);
  const uint32_t weight = trace.add_tensor("fc", "sgd_update", Phase::optimizer, Role::master_weight, DType::f32, "fc.weight");
  trace.add(gradient, make_row({1.0, 2.0}, DType::f16, 1024.0));
  trace.add_update(weight, 100, 10, 0);
  trace.end_step(SyntheticTrace::default_step(1.0, 1024.0));
  const Report report = analyze_all(trace.read());
  EXPECT_FALSE(has_finding(report, Severity::warning)) << report.findings.front().code;
  EXPECT_NE(find_finding(report, "range.gradients_fit"), nullptr);
}

TEST(Report, NotesAreNoWarnings) {
  SyntheticTrace trace;
  trace.add_event(EventKind::note, -1, 0, 0, "the writer caught up");
  trace.end_step();
  const Report report = analyze_all(trace.read());
  EXPECT_FALSE(has_finding(report, Severity::warning));
  ASSERT_NE(find_finding(report, "recording.note"), nullptr);
  EXPECT_EQ(find_finding(report, "recording.note")->title, "the writer caught up");
}

// A warning has no part in the verdict; where the run is at fault it is no second one beside its causes.
TEST(Report, WhatTheProgramWarnedOfIsNoFaultOfTheRun) {
  for (const bool is_at_fault : {false, true}) {
    SyntheticTrace trace;
    trace.add_event(EventKind::warning, -1, 0, 0, "optimizer.eps = 1e-08 is 0 in FP16");
    trace.end_step(SyntheticTrace::default_step(is_at_fault ? NAN : 1.0));
    const Report report = analyze_all(trace.read());
    EXPECT_EQ(report.verdict, is_at_fault ? Verdict::broken : Verdict::ok);
    const Finding* const warning = find_finding(report, "recording.warning");
    ASSERT_NE(warning, nullptr);
    EXPECT_EQ(warning->severity, is_at_fault ? Severity::info : Severity::warning);
    EXPECT_EQ(report.causes.size(), is_at_fault ? 1u : 0u);
  }
}

// Of steps or tensors alone the verdict says so, and once; of parts of a report, which are of the whole run, that they were asked
// for.
TEST(Report, SaysOnceWhatTheVerdictIsOf) {
  SyntheticTrace trace;
  for (int step = 0; step < 3; ++step) trace.end_step();
  const Snapshot reader = trace.read();
  ReportOptions options;
  EXPECT_EQ(analyze_all(reader, options).verdict_text, "no numerical problem in 3 steps.");
  options.steps = {0, 2};
  EXPECT_EQ(analyze_all(reader, options).verdict_text, "In the selection: no numerical problem in 2 steps.");
  options.steps = {};
  options.only = {"run"};
  EXPECT_EQ(analyze_all(reader, options).verdict_text, "no numerical problem in 3 steps.");
}

// A run that ended before it was to end is not said to be fine as if it had: of 20 steps it did 3.
TEST(Report, SaysWhereARunEndedEarly) {
  const auto verdict_of = [](std::optional<EventKind> end, const std::string& steps, bool skips = false) {
    RunInfo run;
    run.producer = "ulpscope train";
    SyntheticTrace trace(run, {{"training.steps", steps, SettingKind::other, true}});
    for (int step = 0; step < 3; ++step) {
      if (end && step == 2) trace.add_event(*end, -1, 0, 0, "training stopped: interrupted");
      StepRow row = SyntheticTrace::default_step();
      row.skipped = skips && step == 0;
      trace.end_step(row);
    }
    const Snapshot reader = trace.read();
    ReportOptions first;
    first.steps.last = 2;
    EXPECT_EQ(analyze_all(reader, first).verdict_text.front().id(), "verdict.in_selection");
    EXPECT_EQ(analyze_all(reader, first).verdict_text.text().find("stopped"), std::string::npos) << "in steps before that";
    const Report report = analyze_all(reader);
    EXPECT_EQ(report.verdict, Verdict::ok);
    return report.verdict_text.text();
  };
  EXPECT_EQ(verdict_of(EventKind::stopped, "20"), "stopped after 3 of 20 steps; no numerical problem in 3 recorded steps.");
  EXPECT_EQ(verdict_of(EventKind::stopped, "20", true),
            "stopped after 3 of 20 steps; no numerical problem in 3 recorded steps, 1 skipped.");
  EXPECT_EQ(verdict_of(EventKind::stopped, "0"), "stopped after 3 steps; no numerical problem in 3 recorded steps.");
  EXPECT_EQ(verdict_of(EventKind::cut_short, "20"),
            "the recording was cut short at step 2; no numerical problem in 3 recorded steps.");
  EXPECT_EQ(verdict_of({}, "3"), "no numerical problem in 3 steps.");
}

// Of relus in a module that has none, and of a phase in steps that do not have it: nothing is said of the run.
TEST(Report, OfNoRowSaysThatAndGivesNoVerdict) {
  SyntheticTrace trace;
  const uint32_t linear = trace.add_tensor("fc", "linear", Phase::forward, Role::activation, DType::f32);
  const uint32_t relu = trace.add_tensor("act", "relu", Phase::forward, Role::activation, DType::f32);
  for (int step = 0; step < 3; ++step) {
    trace.add(linear, make_row({1.0}, DType::f32));
    if (step == 2) trace.add(relu, make_row({1.0}, DType::f32));
    trace.end_step();
  }
  const Snapshot reader = trace.read();
  ReportOptions none, too_early, some;
  none.modules = {"fc"};
  none.ops = {"relu"};
  too_early.modules = {"act"};
  too_early.steps.last = 2;
  some.modules = {"act"};
  for (const ReportOptions& options : {none, too_early}) {
    const Report report = analyze_all(reader, options);
    EXPECT_FALSE(report.verdict);
    EXPECT_TRUE(report.facts.empty());
    ASSERT_EQ(report.findings.size(), 1u);
    EXPECT_EQ(report.findings[0].code, "range.no_rows");
  }
  EXPECT_TRUE(analyze_all(reader, some).verdict);
}

// What findings of one part ask is there, whichever parts are asked for.
TEST(Report, OfEachPartAloneIsMade) {
  RunInfo run;
  run.precision = "fp16";
  SyntheticTrace trace(run);
  const uint32_t gradient = trace.add_tensor("fc", "linear_backward", Phase::backward, Role::weight_gradient, DType::f16);
  const uint32_t weight = trace.add_tensor("fc", "sgd_update", Phase::optimizer, Role::master_weight, DType::f32, "fc.weight");
  for (int step = 0; step < 40; ++step) {
    trace.add(gradient, make_row({step < 30 ? 1e-9 : static_cast<double>(NAN)}, DType::f16));
    trace.add_update(weight, 10, 9, 0);
    if (step == 30) trace.add_event(EventKind::nonfinite, static_cast<int64_t>(gradient), 1);
    trace.end_step(SyntheticTrace::default_step(step < 30 ? 1.0 : static_cast<double>(NAN)));
  }
  const Snapshot reader = trace.read();
  for (const std::string& part : report_parts()) {
    ReportOptions options;
    options.only = {part};
    EXPECT_TRUE(analyze_all(reader, options).complete) << part;
    EXPECT_EQ(find_finding(analyze_all(reader, options), "run.loss_nonfinite") != nullptr, part == "run") << part;
  }
}

TEST(Report, ChangedMemoryIsAnErrorThatNamesTheFirst) {
  for (const int changes : {1, 7}) {
    SyntheticTrace trace;
    const uint32_t state = trace.add_tensor("fc", "adam_update", Phase::optimizer, Role::optimizer_state, DType::f32, "fc.weight");
    trace.end_step();
    for (int step = 1; step <= changes; ++step) {
      trace.add_event(EventKind::memory_changed, state, static_cast<uint64_t>(step - 1), 0, fmt::format("it changed {}", step));
      trace.end_step();
    }
    const Snapshot reader = trace.read();
    const Report report = analyze_all(reader);
    const Finding* finding = find_finding(report, "recording.memory_changed");
    ASSERT_NE(finding, nullptr);
    EXPECT_EQ(finding->severity, Severity::error);
    const std::string first =
        "Memory changed: `fc.weight state` differs between step 0, which wrote it, and step 1, which "
        "read it. ";
    EXPECT_EQ(finding->title,
              first + (changes == 1 ? "" : "It is the first of 7 changes. ") + "No recorded op wrote it in between.");
    ASSERT_EQ(finding->evidence.size(), changes == 1 ? 1u : 5u);
    EXPECT_EQ(finding->evidence[0].key.step, 1u);
    EXPECT_EQ(finding->evidence[0].key.parameter, "fc.weight");
    EXPECT_EQ(finding->evidence[0].values[0].value, Cell(int64_t{0}));
    EXPECT_EQ(finding->evidence[0].values.size(), 1u);
    if (changes > 1) {
      EXPECT_EQ(finding->evidence[1].values[1].value, Cell(std::string("it changed 2")));
    }
    ReportOptions later;
    later.steps.first = static_cast<uint64_t>(changes);
    EXPECT_EQ(find_finding(analyze_all(reader, later), "recording.memory_changed")->evidence.at(0).key.step, changes);
    ReportOptions others;
    others.only = {"updates"};
    EXPECT_EQ(find_finding(analyze_all(reader, others), "recording.memory_changed"), nullptr);
  }
}

TEST(Report, LostUpdatesAreCountedPerParameter) {
  SyntheticTrace trace;
  const uint32_t bad = trace.add_tensor("a", "adam_update", Phase::optimizer, Role::master_weight, DType::f16, "a.weight");
  const uint32_t good = trace.add_tensor("b", "adam_update", Phase::optimizer, Role::master_weight, DType::f16, "b.weight");
  for (int step = 0; step < 2; ++step) {
    trace.add_update(bad, 100, 75, 5);
    trace.add_update(good, 100, 50, 0);
    trace.end_step();
  }
  const Report report = analyze_all(trace.read());
  const Finding* finding = find_finding(report, "updates.lost");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(
      finding->title,
      "62.5% of the nonzero updates to FP16 weights were rounded away: below half an ulp, w + dw == w. 1 of 2 parameters lost "
      "more than 50% (worst: `a.weight`, 75%).");
  ASSERT_EQ(finding->evidence.size(), 1u);
  EXPECT_EQ(finding->evidence[0].key.parameter, "a.weight");
  EXPECT_EQ(finding->evidence[0].values[0].value, Cell(0.75));
  EXPECT_EQ(finding->evidence[0].values[2].value, Cell(int64_t{10}));
}

// What a lost update says depends on how the weight was rounded, and an FP32 weight is always rounded to nearest.
TEST(Report, LostUpdatesAreJudgedByTheRoundingOfTheWeight) {
  struct Row {
    RoundingMode mode;
    DType dtype;
    uint64_t lost;
    const char* code;
    Severity severity;
  };
  for (const Row& row : {Row{RoundingMode::nearest_even, DType::bf16, 75, "updates.lost", Severity::warning},
                         Row{RoundingMode::stochastic, DType::bf16, 75, "updates.lost", Severity::info},
                         Row{RoundingMode::toward_zero, DType::bf16, 48, "updates.biased", Severity::warning},
                         Row{RoundingMode::stochastic, DType::f32, 75, "updates.lost", Severity::warning},
                         Row{RoundingMode::toward_zero, DType::f32, 48, nullptr, Severity::info}}) {
    SyntheticTrace trace;
    TensorInfo weight;
    weight.role = Role::weight;
    weight.dtype = row.dtype;
    weight.parameter = "a.weight";
    weight.shape = {10, 10};  // of one dimension it is a bias, which may have gradients of rounding noise
    weight.rounding = row.mode;
    const OpInfo update{7, 0, "adam_update", "a", Phase::optimizer, "", {}};
    trace.add_update(trace.add_output(update, weight), 100, row.lost, 0);
    trace.end_step();
    const Report report = analyze_all(trace.read());
    for (const char* code : {"updates.lost", "updates.biased"}) {
      const Finding* finding = find_finding(report, code);
      const bool expected = row.code != nullptr && std::string_view(code) == row.code;
      ASSERT_EQ(finding != nullptr, expected) << code;
      EXPECT_TRUE(finding == nullptr || finding->severity == row.severity);
      // No advice that the run follows already, or that would lose what is biased.
      if (finding == nullptr) continue;
      EXPECT_EQ(finding->suggestion.text().find("master weights") != std::string::npos,
                row.dtype == DType::bf16 && row.severity == Severity::warning);
      EXPECT_EQ(finding->suggestion.text().find("= \"rne\""), std::string::npos) << finding->suggestion;
    }
  }
}

TEST(Report, CopesWithATraceOfNoSteps) {
  SyntheticTrace trace;
  const Report report = analyze_all(trace.read());
  EXPECT_FALSE(has_finding(report, Severity::warning));
  EXPECT_TRUE(report.complete);
}

// Two runs of one experiment: same op ids, since each trace numbers them in the same order.
void add_steps(SyntheticTrace& trace, int steps, double value, double drift) {
  const uint32_t a = trace.add_tensor("fc", "linear", Phase::forward, Role::activation, DType::f16);
  const uint32_t b = trace.add_tensor("fc", "relu", Phase::forward, Role::activation, DType::f16);
  for (int step = 0; step < steps; ++step) {
    trace.add(a, make_row({value, 1e-9}, DType::f16));
    trace.add(b, make_row({value}, DType::f16));
    trace.end_step(SyntheticTrace::default_step(2.0 + (step >= 3 ? drift : 0.0)));
  }
}

TEST(Compare, MatchesOpsByIdAndFindsTheFirstDifference) {
  SyntheticTrace first, second;
  add_steps(first, 6, 1.0, 0.0);
  add_steps(second, 6, 70000.0, 0.5);
  const Snapshot a = first.read(), b = second.read();
  const Report report = analyze_compare(a, b);
  const Finding* difference = find_finding(report, "compare.first_difference");
  ASSERT_NE(difference, nullptr);
  EXPECT_EQ(difference->evidence[0].key.step, 3u);
  EXPECT_EQ(find_finding(report, "compare.ops_unmatched"), nullptr);
  const Table& tensors = table(report, "tensors");
  ASSERT_EQ(tensors.rows.size(), 2u);
  const size_t linear = row_of(tensors, "fc linear");
  EXPECT_EQ(cell(tensors, linear, "flushed_a"), Cell(0.5));
  EXPECT_EQ(cell(tensors, linear, "overflow_a"), Cell(0.0));
  EXPECT_EQ(cell(tensors, linear, "overflow_b"), Cell(0.5));
  EXPECT_EQ(cell(tensors, row_of(tensors, "fc relu"), "overflow_b"), Cell(1.0));
  const Table& summary = table(report, "summary");
  const size_t loss = row_of(summary, "mean_loss_of_last_6_steps");
  EXPECT_EQ(cell(summary, loss, "a"), Cell(2.0));
  EXPECT_EQ(cell(summary, loss, "b"), Cell(2.25));
  EXPECT_EQ(cell(summary, loss, "b_over_a"), Cell(1.125));
}

// A row of the picture is of an output that both have; its cells are what norms of three and four elements say.
TEST(Compare, DifferencesOverTheStepsAreThoseOfTheNorms) {
  SyntheticTrace first, second;
  const auto add_all = [](SyntheticTrace& trace, bool is_second) {
    const uint32_t same = trace.add_tensor("a", "linear", Phase::forward, Role::activation, DType::f32);
    const uint32_t late = trace.add_tensor("b", "linear", Phase::forward, Role::activation, DType::f32);
    const uint32_t scaled = trace.add_tensor("c", "linear_backward", Phase::backward, Role::activation_gradient, DType::f32);
    const uint32_t broken = trace.add_tensor("d", "linear_backward", Phase::backward, Role::activation_gradient, DType::f32);
    for (int step = 0; step < 6; ++step) {
      const double scale = is_second ? 1024 : 8;
      trace.add(same, make_row({1.0, 2.0, -2.0}, DType::f32));
      // |(0, 3, 4)| = 5 and |(0, 0, 4)| = 4.
      trace.add(late, make_row({0.0, is_second && step >= 4 ? 0.0 : 3.0, 4.0}, DType::f32));
      trace.add(scaled, make_row({0.5 * scale, 0.25 * scale}, DType::f32, scale));
      trace.add(broken, make_row({is_second && step == 5 ? static_cast<double>(INFINITY) : 1.0}, DType::f32));
      trace.end_step(SyntheticTrace::default_step(1.0, scale));
    }
  };
  add_all(first, false);
  add_all(second, true);
  const Snapshot a = first.read(), b = second.read();
  const Report report = analyze_compare(a, b);
  ASSERT_EQ(report.plots.size(), 1u);
  const Plot& plot = report.plots[0];
  EXPECT_EQ(plot.kind, PlotKind::heatmap);
  ASSERT_EQ(plot.series.size(), 2u) << "other loss scales are no difference";
  EXPECT_EQ(plot.series[0].name, "(first) b linear");
  EXPECT_EQ(plot.series[0].key.name, "b linear");
  EXPECT_EQ(plot.series[0].x, (std::vector<double>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(plot.series[0].y, (std::vector<double>{0, 0, 0, 0, 0.2, 0.2}));
  EXPECT_EQ(plot.series[1].name, "d linear_backward");
  EXPECT_EQ(plot.series[1].y, (std::vector<double>{0, 0, 0, 0, 0, 1}));
  ASSERT_EQ(plot.marks.size(), 1u);
  EXPECT_EQ(plot.marks[0].from, 4);
  EXPECT_EQ(plot.marks[0].text, "first difference: b linear, zeros 1 and 2");
  EXPECT_EQ(fact(report, "first_different_step"), Cell(int64_t{4}));
  EXPECT_EQ(fact(report, "first_different_output"), Cell(std::string("b linear")));
  AnalysisOptions options;
  options.steps = {0, 4};
  const Report equal = analyze_compare(a, b, options);
  EXPECT_TRUE(equal.plots.empty());
  EXPECT_EQ(fact(equal, "first_different_step"), Cell(NotApplicable{}));
  options.steps = {7, 8};
  EXPECT_EQ(fact(analyze_compare(a, b, options), "first_different_step"), Cell(Unknown{})) << "nothing was compared";
  options.steps = {};
  options.limit = 1;
  const Report one = analyze_compare(a, b, options);
  ASSERT_EQ(one.plots[0].series.size(), 1u);
  EXPECT_EQ(one.plots[0].series[0].name, "d linear_backward") << "the largest difference";
  EXPECT_EQ(one.plots[0].series_left_out, 1u);
}

// A loss that falls: what a run that ended earlier had not reached yet is no loss of accuracy.
TEST(Compare, LossesOfTheSameStepsAreHeldAgainstEachOther) {
  const auto write = [](SyntheticTrace& trace, int steps, double factor) {
    const uint32_t tensor = trace.add_tensor("a", "linear", Phase::forward, Role::activation, DType::f32);
    for (int step = 0; step < steps; ++step) {
      trace.add(tensor, make_row({1.0}, DType::f32));
      trace.end_step(SyntheticTrace::default_step(factor * 100 / (100.0 + step)));
    }
    return trace.read();
  };
  SyntheticTrace long_run, short_run, worse_run, few_steps;
  const Snapshot all = write(long_run, 400, 1), some = write(short_run, 100, 1), worse = write(worse_run, 150, 1.5);
  for (const auto& [a, b] : {std::pair(&all, &some), std::pair(&some, &all)}) {
    const Report report = analyze_compare(*a, *b);
    EXPECT_EQ(report.verdict, Verdict::ok) << report.verdict_text;
    EXPECT_EQ(report.verdict_text, "the losses of 100 common steps are bit-equal.");
  }
  const Report compared = analyze_compare(all, worse);
  const Finding* const higher = find_finding(compared, "compare.loss_higher");
  ASSERT_NE(higher, nullptr);
  double mean = 0;
  for (int step = 125; step < 150; ++step) mean += 100 / (100.0 + step) / 25;
  EXPECT_NEAR(std::get<double>(higher->evidence[0].values[0].value), mean, 1e-12);
  EXPECT_NEAR(std::get<double>(higher->evidence[0].values[1].value), 1.5 * mean, 1e-12);
  EXPECT_EQ(find_finding(analyze_compare(worse, all), "compare.loss_higher"), nullptr);
  EXPECT_EQ(compared.verdict, Verdict::warning);
  EXPECT_THAT(compared.verdict_text.text(),
              ::testing::StartsWith("The second run loses accuracy: its mean loss over the last 25 common steps is "));
  const Sentence change = higher->title.front()["change"].find<Value::Phrase>()->front();
  EXPECT_NEAR(std::get<double>(change["change"].find<Value::Number>()->cell), 0.5, 1e-12);
  EXPECT_EQ(change.text(), ", +50.0%");
  EXPECT_EQ(analyze_compare(all, write(few_steps, 8, 1.5)).verdict_text,
            "losses were not judged: the runs have 8 common steps, and 10 are needed.");
}

// Losses of other seeds, or of other samples, differ for that alone.
TEST(Compare, LossesOfRunsThatBeginOtherwiseAreNotJudged) {
  // Steps from `first` on; each reads `batch` samples, those of step N from N on.
  const auto write = [](SyntheticTrace& trace, double factor, uint64_t first_sample, uint64_t first = 0, uint64_t batch = 1) {
    for (uint64_t step = first; step < 60; ++step) {
      for (uint64_t i = 0; i < batch; ++i) trace.sink().add_batch({.step = step, .sample = first_sample + step + i});
      StepRow row = SyntheticTrace::default_step(factor * 100 / (100.0 + static_cast<double>(step)));
      row.step = step;
      trace.sink().end_step(row);
    }
    return trace.read();
  };
  RunInfo other;
  other.run_id = "0123456789abcdef0123456789abcdef";
  other.seed = 7;
  SyntheticTrace good, worse, of_other_seed(other), of_other_samples;
  const Snapshot a = write(good, 1, 0);
  EXPECT_NE(find_finding(analyze_compare(a, write(worse, 1.5, 0)), "compare.loss_higher"), nullptr);
  // A run that was resumed, and one of another batch size.
  SyntheticTrace resumed, of_other_batches;
  EXPECT_NE(find_finding(analyze_compare(a, write(resumed, 1.5, 0, 20)), "compare.loss_higher"), nullptr);
  EXPECT_EQ(find_finding(analyze_compare(a, write(of_other_batches, 1.5, 0, 0, 2)), "compare.loss_higher"), nullptr);
  const Report seeds = analyze_compare(a, write(of_other_seed, 1.5, 0)),
               samples = analyze_compare(a, write(of_other_samples, 1.5, 9));
  for (const Report* report : {&seeds, &samples}) {
    EXPECT_EQ(find_finding(*report, "compare.loss_higher"), nullptr);
    EXPECT_EQ(report->verdict, Verdict::ok) << report->verdict_text;
  }
  EXPECT_EQ(fact(seeds, "losses_judged"), Cell(std::string("no: other seeds")));
  EXPECT_EQ(fact(samples, "losses_judged"), Cell(std::string("no: other samples, or another order")));
  EXPECT_EQ(seeds.verdict_text, "losses were not judged, since runs of different seeds end with different ones.");
  EXPECT_EQ(samples.verdict_text, "losses were not judged: the runs trained on different samples, or in another order.");
}

// Where the samples were not recorded, what went in tells that others did, and what the weights were that another seed drew them:
// of types that hold it as it was. A loss that is half as large again is no loss of accuracy then.
TEST(Compare, LossesOfRunsThatWereGivenOtherwiseAreNotJudged) {
  struct Given {
    double input = 2, weight = 1, narrow = 1, evaluated = 1, later = 3;
  };
  const auto write = [](SyntheticTrace& trace, double factor, const Given& given) {
    const auto add = [&](uint64_t id, Role role, DType dtype, Phase phase = Phase::data) {
      OpInfo source{id, 0, "source", "", phase, "", {}};
      source.kind = OpKind::source;
      source.function = OpFunction::source;
      TensorInfo tensor;
      tensor.role = role;
      tensor.dtype = dtype;
      return trace.add_output(source, tensor);
    };
    const uint32_t input = add(1, Role::input, DType::f32), weight = add(2, Role::weight, DType::f32),
                   narrow = add(3, Role::weight, DType::f16), evaluated = add(4, Role::input, DType::f32, Phase::evaluation);
    for (int step = 0; step < 60; ++step) {
      if (step == 0) {
        trace.add(weight, make_row({given.weight, 0.5}, DType::f32));
        trace.add(narrow, make_row({given.narrow}, DType::f16));
        trace.add(evaluated, make_row({given.evaluated}, DType::f32));
      }
      trace.add(input, make_row({step == 0 ? given.input : given.later, 0.25}, DType::f32));
      trace.end_step(SyntheticTrace::default_step(factor * 100 / (100.0 + step)));
    }
    return trace.read();
  };
  SyntheticTrace first;
  const Snapshot a = write(first, 1, {});
  const auto compared = [&](const Given& given) {
    SyntheticTrace second;
    return analyze_compare(a, write(second, 1.5, given));
  };
  for (const Given& same : {Given{}, Given{.narrow = 1.5}, Given{.evaluated = 2}})
    EXPECT_NE(find_finding(compared(same), "compare.loss_higher"), nullptr);
  for (const auto& [given, text] :
       {std::pair(Given{.input = 2.5}, "losses were not judged: the runs trained on different samples, or in another order."),
        {Given{.weight = 1.25}, "losses were not judged: the runs began with different weights."}}) {
    const Report report = compared(given);
    EXPECT_EQ(find_finding(report, "compare.loss_higher"), nullptr);
    EXPECT_EQ(report.verdict, Verdict::ok);
    EXPECT_EQ(report.verdict_text, text);
  }
}

// The verdict has the means that were compared, and what one run each can tell.
TEST(Compare, AVerdictWithoutAFindingSaysWhatWasCompared) {
  const auto verdict = [](double factor, double noise) {
    SyntheticTrace first, second;
    for (int step = 0; step < 60; ++step) {
      const double loss = 0.5 + (step % 2 == 0 ? noise : -noise);
      first.end_step(SyntheticTrace::default_step(loss));
      second.end_step(SyntheticTrace::default_step(factor * loss + 1e-9));
    }
    const Report report = analyze_compare(first.read(), second.read());
    EXPECT_EQ(report.verdict, Verdict::ok) << report.verdict_text;
    for (const Finding& finding : report.findings)
      EXPECT_EQ(finding.suggestion.text().find("ulpscope "), std::string::npos) << "a command has to show what is promised of it";
    return report.verdict_text.text();
  };
  EXPECT_EQ(verdict(0.98, 0),
            "no regression seen: mean loss of the last 25 common steps 0.49 (second run) against 0.5 (first), -2.0%. One run each "
            "resolves 5% at best.");
  EXPECT_EQ(verdict(1.00002, 0),
            "no regression seen: mean loss of the last 25 common steps 0.5 (second run) against 0.5 (first), less than 0.1% "
            "apart. One run each resolves 5% at best.");
  // 13 losses of 0.3 and 12 of 0.7 have the mean 0.492 and the variance 0.0416, and 2 sqrt(0.0416 (1 + 1.06^2) / 25) is 0.1189.
  EXPECT_THAT(verdict(1.06, 0.2),
              ::testing::HasSubstr(", +6.0%. One run each resolves 24.2% here, as these losses vary, and 5% at"));
}

TEST(Compare, OfRunsThatHaveNothingInCommonGivesNoVerdict) {
  const auto run_of_steps = [](uint64_t first, uint64_t last) {
    SyntheticTrace trace;
    StepRow row = SyntheticTrace::default_step();
    for (row.step = first; row.step < last; ++row.step) trace.sink().end_step(row);
    return trace.read();
  };
  const Report report = analyze_compare(run_of_steps(0, 5), run_of_steps(7, 12));
  EXPECT_FALSE(report.verdict);
  EXPECT_EQ(fact(report, "compared"), Cell(std::string("nothing: no row of one run has its like in the other")));
}

// The table that advice sends to begins with what differs most.
TEST(Compare, TheTableOfTensorsBeginsWithWhatDiffersMost) {
  const auto write = [](SyntheticTrace& trace, double factor, double largest) {
    const uint32_t calm = trace.add_tensor("calm", "linear", Phase::forward, Role::activation, DType::f16);
    const uint32_t hot = trace.add_tensor("hot", "linear", Phase::forward, Role::activation, DType::f16);
    for (int step = 0; step < 60; ++step) {
      trace.add(calm, make_row({1.0, factor}, DType::f16));
      trace.add(hot, make_row({largest, 1.0}, DType::f16));
      trace.end_step(SyntheticTrace::default_step(factor));
    }
    return trace.read();
  };
  SyntheticTrace first, second;
  const Report report = analyze_compare(write(first, 1, 2), write(second, 1.5, 70000));
  ASSERT_NE(find_finding(report, "compare.loss_higher"), nullptr);
  EXPECT_EQ(find_finding(report, "compare.loss_higher")->suggestion,
            "See the table of tensors: those whose underflow, overflow, NaN and Inf differ most come first.");
  EXPECT_EQ(cell(table(report, "tensors"), 0, "tensor"), Cell(std::string("hot linear")));
}

// Columns of a long run have the largest of their steps.
TEST(Compare, ALongRunHasColumnsOfSeveralSteps) {
  SyntheticTrace first, second;
  for (SyntheticTrace* trace : {&first, &second}) {
    const uint32_t tensor = trace->add_tensor("a", "linear", Phase::forward, Role::activation, DType::f32);
    for (int step = 0; step < 600; ++step) {
      trace->add(tensor, make_row({trace == &second && step == 333 ? 3.0 : 4.0}, DType::f32));
      trace->end_step();
    }
  }
  const Plot plot = analyze_compare(first.read(), second.read()).plots.at(0);
  ASSERT_EQ(plot.series[0].y.size(), 150u) << "of four steps each";
  for (size_t column = 0; column < 150; ++column) EXPECT_EQ(plot.series[0].y[column], column == 333 / 4 ? 0.25 : 0.0) << column;
  EXPECT_EQ(plot.x_end, 600);
  EXPECT_EQ(plot.marks[0].from, 333);
}

// Of runs that are read as one an output is a tensor for each type and arithmetic that it had.
TEST(Compare, AnOutputIsOneRowWhateverItsTypesAndArithmetic) {
  SyntheticTrace first, second;
  const OpInfo linear{1, 0, "linear", "fc", Phase::forward, "", {}};
  TensorInfo nearest, toward_zero, wide;
  nearest.dtype = toward_zero.dtype = DType::f16;
  toward_zero.rounding = RoundingMode::toward_zero;
  first.add(first.add_output(linear, nearest), make_row({1.0, 1e-9, 1.0, 1.0}, DType::f16));
  first.end_step();
  const uint32_t before = second.add_output(linear, nearest), after = second.add_output(linear, toward_zero),
                 last = second.add_output(linear, wide);
  second.add(before, make_row({4.0, 4.0, 4.0, 4.0}, DType::f16));
  second.end_step();
  second.add(after, make_row({1e-9, 1.0, 1.0, 1.0}, DType::f16));
  second.end_step();
  second.add(last, make_row({1e-9, 1.0, 1.0, 1.0}, DType::f32));
  second.end_step();
  const Snapshot a = first.read(), b = second.read();
  const Selection selection(b, {});
  EXPECT_EQ(selection.name(before), "fc linear (FP16) (rounding rne)");
  EXPECT_EQ(selection.name(after), "fc linear (FP16) (rounding rz)");
  EXPECT_EQ(selection.output_name(last), "fc linear");
  const Table tensors = table(analyze_compare(a, b), "tensors");
  ASSERT_EQ(tensors.rows.size(), 1u);
  EXPECT_EQ(cell(tensors, 0, "tensor"), Cell(std::string("fc linear")));
  EXPECT_EQ(tensors.rows[0].key.name, "fc linear");
  EXPECT_EQ(cell(tensors, 0, "type_b"), Cell(std::string("f16 and f32")));
  EXPECT_EQ(cell(tensors, 0, "flushed_a"), Cell(0.25));
  EXPECT_EQ(cell(tensors, 0, "flushed_b"), Cell(0.125));  // of what was rounded to 16 bits
  EXPECT_EQ(cell(tensors, 0, "largest_b"), Cell(2.0));
}

TEST(Compare, SaysWhereMachinesOrTheirThreadsDiffer) {
  RunInfo two, four;
  two.machine = "a CPU, avx2, 2 threads";
  four.machine = "a CPU, avx2, 4 threads";
  SyntheticTrace first(two), second(four);
  const Snapshot a = first.read(), b = second.read();
  const Report report = analyze_compare(a, b);
  const Finding* finding = find_finding(report, "compare.different_machines");
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->title.text().find("2 threads' and 'a CPU, avx2, 4 threads'"), std::string::npos);
  EXPECT_EQ(find_finding(analyze_compare(a, a), "compare.different_machines"), nullptr);
}

TEST(Compare, SaysWhereTheLibraryTookOtherAlgorithms) {
  const std::vector<ProductInfo> products{
      {"4 x 8 x 16", "algorithm 1"}, {"4 x 8 x 32", "algorithm 2"}, {"1 x 1 x 1", "algorithm 3"}};
  SyntheticTrace first, second, third, fourth, none;
  for (const ProductInfo& product : products) first.sink().add_product(product);
  // In another order, one of them by another algorithm, and one that the first run does not have.
  second.sink().add_product({"4 x 8 x 32", "algorithm 7"});
  second.sink().add_product(products[0]);
  second.sink().add_product({"5 x 5 x 5", "algorithm 1"});
  third.sink().add_product(products[2]);
  third.sink().add_product(products[0]);
  // Of two algorithms for one product, both are told.
  fourth.sink().add_product(products[0]);
  fourth.sink().add_product({products[0].product, "algorithm 9"});
  for (SyntheticTrace* trace : {&first, &second, &third, &fourth, &none}) trace->end_step(SyntheticTrace::default_step(1.0));
  const Snapshot a = first.read(), b = second.read(), c = third.read(), d = none.read();
  const Report report = analyze_compare(a, b);
  const Finding* finding = find_finding(report, "compare.different_algorithms");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->title,
            "The device's library used different algorithms for 1 of 2 matrix products that both runs have. First '4 x 8 x 32': "
            "'algorithm 2' in the first run, 'algorithm 7' in the second.");
  const Snapshot e = fourth.read();
  const Report several = analyze_compare(a, e);
  ASSERT_NE(find_finding(several, "compare.different_algorithms"), nullptr);
  EXPECT_NE(find_finding(several, "compare.different_algorithms")
                ->title.text()
                .find("'4 x 8 x 16': 'algorithm 1' in the first run, 'algorithm 1 or algorithm 9' in the second"),
            std::string::npos);
  // Another machine's library has other numbers.
  RunInfo elsewhere;
  elsewhere.machine = "another GPU";
  SyntheticTrace fifth(elsewhere);
  fifth.sink().add_product({products[0].product, "algorithm 9"});
  fifth.end_step(SyntheticTrace::default_step(1.0));
  EXPECT_EQ(find_finding(analyze_compare(a, fifth.read()), "compare.different_algorithms"), nullptr);
  for (const Snapshot* other : {&a, &c, &d})
    EXPECT_EQ(find_finding(analyze_compare(a, *other), "compare.different_algorithms"), nullptr);
}

TEST(Compare, EqualRunsAreSaidToBeEqualNansIncluded) {
  SyntheticTrace first, second, third;
  for (SyntheticTrace* trace : {&first, &second, &third}) {
    trace->end_step(SyntheticTrace::default_step(1.0));
    trace->end_step(SyntheticTrace::default_step(NAN));
    if (trace == &third) trace->end_step(SyntheticTrace::default_step(2.0));
  }
  const Snapshot a = first.read(), b = second.read(), c = third.read();
  const Report equal = analyze_compare(a, b);
  EXPECT_NE(find_finding(equal, "compare.losses_equal"), nullptr);
  EXPECT_EQ(find_finding(equal, "compare.first_difference"), nullptr);
  EXPECT_EQ(find_finding(equal, "compare.steps_differ"), nullptr);
  EXPECT_NE(find_finding(analyze_compare(a, c), "compare.steps_differ"), nullptr);
}

TEST(Compare, MeanLossIsThatOfTheLastFiftySteps) {
  SyntheticTrace first, second;
  for (int step = 0; step < 120; ++step) first.end_step(SyntheticTrace::default_step(step));
  for (int step = 0; step < 30; ++step) second.end_step(SyntheticTrace::default_step(step));
  const Snapshot a = first.read(), b = second.read();
  const auto means = [](const Report& report, const char* name) {
    const Table& summary = table(report, "summary");
    const size_t row = row_of(summary, name);
    return std::pair(cell(summary, row, "a"), cell(summary, row, "b"));
  };
  EXPECT_EQ(means(analyze_compare(a, a), "mean_loss_of_last_50_steps"), std::pair(Cell((70 + 119) / 2.0), Cell((70 + 119) / 2.0)));
  // Of as many in both: those that the shorter run has.
  EXPECT_EQ(means(analyze_compare(a, b), "mean_loss_of_last_30_steps"), std::pair(Cell((90 + 119) / 2.0), Cell(29 / 2.0)));
}

TEST(Compare, ASecondRunThatBreaksIsAnError) {
  SyntheticTrace healthy, broken;
  healthy.end_step();
  broken.end_step(SyntheticTrace::default_step(INFINITY));
  const Snapshot a = healthy.read(), b = broken.read();
  EXPECT_EQ(find_finding(analyze_compare(a, b), "compare.loss_nonfinite")->severity, Severity::error);
  EXPECT_EQ(find_finding(analyze_compare(b, a), "compare.loss_nonfinite")->severity, Severity::info);
  EXPECT_EQ(find_finding(analyze_compare(a, a), "compare.loss_nonfinite"), nullptr);
  EXPECT_EQ(find_finding(analyze_compare(b, b), "compare.loss_nonfinite")->severity, Severity::error)
      << "no run that is NaN is fine";
}

TEST(Compare, OneSkippedStepOfTheSecondRunIsWhatAReportSaysThatItIs) {
  SyntheticTrace first, second;
  for (int step = 0; step < 60; ++step) {
    StepRow row = SyntheticTrace::default_step(1.0 / (1 + step));
    first.end_step(row);
    if (step == 20) {
      row.loss = NAN;
      row.skipped = true;
    }
    second.end_step(row);
  }
  const Snapshot a = first.read(), b = second.read();
  EXPECT_EQ(analyze_all(b, {}).verdict, Verdict::ok);
  const Report compared = analyze_compare(a, b, {});
  EXPECT_EQ(compared.verdict, Verdict::ok) << compared.verdict_text;
  EXPECT_EQ(find_finding(compared, "compare.loss_nonfinite")->severity, Severity::info);
  EXPECT_EQ(compared.verdict_text,
            "losses were not judged: the second run's loss was NaN or Inf in 1 step, which did no lasting harm.");
}

TEST(Compare, NamesWhatOnlyOneTraceHasAndHowFarLossesLieApart) {
  SyntheticTrace left, right;
  left.add(left.add_tensor("fc", "linear", Phase::forward, Role::activation, DType::f32), make_row({1.0}, DType::f32));
  const uint32_t both = right.add_tensor("fc", "linear", Phase::forward, Role::activation, DType::f32);
  const uint32_t extra = right.add_tensor("fc", "relu", Phase::forward, Role::activation, DType::f32);
  right.add(both, make_row({1.0}, DType::f32));
  right.add(extra, make_row({1.0}, DType::f32));
  left.end_step(SyntheticTrace::default_step(2.5));
  right.end_step(SyntheticTrace::default_step(2.5 + 0x1p-30));
  const Snapshot a = left.read(), b = right.read();
  const Report report = analyze_compare(a, b);
  const Finding* unmatched = find_finding(report, "compare.ops_unmatched");
  ASSERT_NE(unmatched, nullptr);
  ASSERT_EQ(unmatched->evidence.size(), 1u);
  EXPECT_EQ(unmatched->evidence[0].key.op_name, "relu");
  EXPECT_EQ(unmatched->evidence[0].values[0].value, Cell(std::string("b")));
  const Finding* losses = find_finding(report, "compare.first_difference");
  ASSERT_NE(losses, nullptr);
  EXPECT_EQ(losses->evidence[0].values[2].value, Cell(0x1p-30));
}

TEST(Report, PaddingCountsAProductOnceWhateverItsArithmetic) {
  SyntheticTrace trace;
  const ProductShape shape{16, 10, 32};
  const OpInfo linear{1, 0, "linear", "fc", Phase::forward, "", shape.numbers()};
  TensorInfo nearest, toward_zero;
  nearest.dtype = toward_zero.dtype = DType::f16;
  toward_zero.rounding = RoundingMode::toward_zero;
  for (const TensorInfo& tensor : {nearest, toward_zero}) {
    trace.add(trace.add_output(linear, tensor), make_row({1.0}, DType::f16));
    trace.end_step();
  }
  const Snapshot reader = trace.read();
  ReportOptions options;
  options.only = {"tensor_cores"};
  const Report report = analyze_all(reader, options);
  ASSERT_EQ(report.findings.size(), 1u);
  const Evidence& evidence = report.findings[0].evidence.at(0);
  EXPECT_EQ(evidence.values.at(3).name, "products");
  EXPECT_EQ(evidence.values.at(3).value, Cell(int64_t{1}));
}

// The bias comes first: which input is which factor only our own engine's ops say.
TEST(Report, PaddingIsNotGuessedOfOtherProducers) {
  for (const char* producer : {"torch", "ulpscope train"}) {
    RunInfo run;
    run.run_id = "0123456789abcdef0123456789abcdef";
    run.producer = producer;
    SyntheticTrace trace(run);
    TensorInfo tensor;
    tensor.dtype = DType::f16;
    uint64_t id = 0;
    for (const std::vector<int64_t>& shape : {std::vector<int64_t>{16, 10}, {32, 10}, {16, 32}}) {
      tensor.shape = shape;
      const char* const name = id < 2 ? "source" : "linear";
      trace.add(trace.add_output({++id, 0, name, "fc", Phase::forward, "", {}}, tensor), make_row({1.0}, DType::f16));
    }
    for (const uint8_t input : {0, 1}) trace.sink().add_edge({0, 2, input, input, 0});
    trace.end_step();
    ReportOptions options;
    options.only = {"tensor_cores"};
    EXPECT_EQ(analyze_all(trace.read(), options).findings.size(), producer == std::string("torch") ? 0u : 1u) << producer;
  }
}

TEST(Report, OfARangeOfStepsHoldsNoFigureOfOtherSteps) {
  SyntheticTrace trace;
  const uint32_t tensor = trace.add_tensor("fc", "linear", Phase::forward, Role::activation, DType::f16);
  for (int step = 0; step < 4; ++step) {
    trace.add(tensor, make_row({1.0}, DType::f16));
    if (step == 1 || step == 3) trace.add_event(EventKind::metric, -1, 0, 0.25 * step, "test_accuracy");
    trace.end_step();
  }
  const Snapshot reader = trace.read();
  const auto has = [](const Report& report, const std::string& name) {
    return std::any_of(report.facts.begin(), report.facts.end(), [&](const Quantity& fact) { return fact.name == name; });
  };
  ReportOptions options;
  EXPECT_EQ(fact(analyze_all(reader, options), "test_accuracy"), Cell(0.75));
  options.steps = {0, 3};
  EXPECT_EQ(fact(analyze_all(reader, options), "test_accuracy"), Cell(0.25));
  options.steps = {2, 3};
  EXPECT_FALSE(has(analyze_all(reader, options), "test_accuracy"));
}

TEST(CheckAskedFor, RefusesNamesAndStepsThatNoTraceHas) {
  SyntheticTrace trace;
  trace.add_tensor("features.0", "linear", Phase::forward, Role::activation, DType::f16);
  for (int step = 0; step < 3; ++step) trace.end_step();
  const Snapshot reader = trace.read();
  const auto refusal = [&](const AnalysisOptions& options) -> std::string {
    try {
      check_asked_for({&reader}, options);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  AnalysisOptions options;
  options.modules = {"features", "*.0"};
  options.ops = {"lin*"};
  options.steps = {2, 100};
  EXPECT_EQ(refusal(options), "");
  AnalysisOptions module, op, steps;
  module.modules = {"features", "nope"};
  EXPECT_EQ(refusal(module), "no module of the trace matches 'nope'; expected features.0");
  op.ops = {"linaer"};
  EXPECT_EQ(refusal(op), "no op of the trace matches 'linaer'; did you mean 'linear'?");
  steps.steps = {1000, 1001};
  EXPECT_EQ(refusal(steps), "no step of the trace is in what --step asks for; expected one of 0 to 2");
}

}  // namespace
}  // namespace ulpscope::analyzers_test
