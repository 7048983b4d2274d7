// info, report, and what is found besides ranges and scale.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "report_access.h"
#include "synthetic_trace.h"
#include "tests/support/said.h"
#include "ulpscope/analyzers/subject/selection.h"
#include "ulpscope/analyzers/verbs/all_findings.h"
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
    EXPECT_EQ(finding->title.front().text(), "No weight changed in any of 2 recorded updates of 1 parameter.");
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
        "Memory changed: `fc.weight` (state) differs between step 0, which wrote it, and step 1, which "
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
  ASSERT_NE(find_finding(report, "run.no_steps"), nullptr);
  EXPECT_EQ(find_finding(report, "run.no_steps")->severity, Severity::error);
  EXPECT_EQ(std::count_if(report.findings.begin(), report.findings.end(),
                          [](const Finding& finding) { return finding.severity > Severity::info; }),
            1);
  EXPECT_TRUE(report.complete);
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
