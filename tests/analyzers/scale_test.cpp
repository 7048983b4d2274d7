// The loss scale's history, driven by the rule that a scaler follows, with every finding provoked and absent.
#include "ulpscope/analyzers/verbs/scale.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "report_access.h"
#include "synthetic_trace.h"
#include "tests/support/said.h"
#include "tests/support/train_settings.h"
#include "ulpscope/analyzers/verbs/all_findings.h"
#include "ulpscope/analyzers/verbs/ranges.h"
#include "ulpscope/emulation/loss_scale.h"

namespace ulpscope::analyzers_test {
namespace {

RunInfo run_info(bool dynamic, const std::string& precision = "fp16") {
  RunInfo run;
  run.run_id = "0123456789abcdef0123456789abcdef";
  run.precision = precision;
  run.dynamic_loss_scale = dynamic;
  return run;
}

RunInfo scaled_run_info(const LossScaleRule& rule, bool scaler) {
  RunInfo run = run_info(scaler && rule.dynamic);
  if (!run.dynamic_loss_scale) return run;
  run.growth_interval = rule.growth_interval;
  run.growth_factor = rule.growth_factor;
  run.backoff_factor = rule.backoff_factor;
  return run;
}

std::vector<SettingInfo> settings_of(const LossScaleRule& rule) {
  std::vector<SettingInfo> settings = train_settings();
  for (SettingInfo& setting : settings)
    if (setting.kind == SettingKind::scale_growth_interval) setting.value = std::to_string(rule.growth_interval);
  settings.push_back({"scaler.cap", "0", SettingKind::scale_cap, false});
  return settings;
}

// A run of `steps` steps under the rule, whose true gradient magnitude in each step is `gradient(step)`.
struct ScaledRun {
  SyntheticTrace trace;
  uint32_t gradient;
  LossScaleState state;
  uint64_t skipped = 0;

  ScaledRun(const LossScaleRule& rule, int steps, const std::function<double(int)>& magnitude, bool scaler = true)
      : trace(scaled_run_info(rule, scaler), settings_of(rule)), state(initial_state(rule)) {
    gradient = trace.add_tensor("fc", "linear_backward", Phase::backward, Role::weight_gradient, DType::f16, "fc.weight");
    for (int step = 0; step < steps; ++step) {
      StepRow row = SyntheticTrace::default_step(1.0, scaler ? state.scale : 1.0);
      const double scaled = magnitude(step) * row.scale_before;
      std::vector<double> values(100, scaled / 2);
      values[7] = scaled;
      trace.add(gradient, make_row(values, DType::f16, row.scale_before));
      const bool overflow = !(std::fabs(scaled) < 65520);
      if (scaler) {
        update(rule, state, overflow);
        row.scale_after = state.scale;
        row.skipped = overflow;
        skipped += overflow;
        if (overflow) trace.add_event(EventKind::scale_backoff, gradient, 1, state.scale);
      }
      trace.end_step(row);
    }
  }
};

LossScaleRule rule(double initial, int64_t interval) {
  LossScaleRule result;
  result.initial = initial;
  result.growth_interval = interval;
  return result;
}

TEST(Scale, HistoryNamesEveryChangeAndItsCause) {
  // 2.0 * 2^15 overflows: the scale settles at 2^14, grows after 10 clean steps, backs off at once.
  ScaledRun run(rule(65536, 10), 30, [](int) { return 2.0; });
  const uint64_t skipped = run.skipped;
  const double final_scale = run.state.scale;
  const Report report = analyze_scale(run.trace.read());
  EXPECT_EQ(fact(report, "first_scale"), Cell(65536.0));
  EXPECT_EQ(fact(report, "final_scale"), Cell(final_scale));
  EXPECT_EQ(fact(report, "skipped_steps"), count_cell(skipped));
  const Table& changes = table(report, "changes");
  ASSERT_EQ(changes.rows.size(), 6u);  // two backoffs, then growth and backoff twice
  for (size_t i = 0; i < changes.rows.size(); ++i) {
    const bool growth = i == 2 || i == 4;
    EXPECT_EQ(cell(changes, i, "kind"), Cell(std::string(growth ? "growth" : "backoff")));
    EXPECT_EQ(lower(cell(changes, i, "after")), lower(cell(changes, i, "before")) * (growth ? 2 : 0.5));
    if (growth) {
      EXPECT_TRUE(not_applicable(cell(changes, i, "nonfinite_tensor")));
      EXPECT_EQ(cell(changes, i, "clean_steps_before"), Cell(int64_t{9}));
    } else {
      EXPECT_EQ(cell(changes, i, "nonfinite_tensor"), Cell(std::string("fc.weight gradient")));
      EXPECT_EQ(cell(changes, i, "nonfinite"), Cell(int64_t{1}));
      EXPECT_EQ(changes.rows[i].key.op_name, "linear_backward");
      EXPECT_EQ(count_cell(*changes.rows[i].key.step), cell(changes, i, "step"));
    }
  }
  EXPECT_EQ(fact(report, "largest_fitting_scale"), Cell(16384.0));  // 2 * 2^14 fits, 2 * 2^15 = 65536 does not
  const Finding* backoffs = find_finding(report, "scale.backoffs");
  ASSERT_NE(backoffs, nullptr);
  EXPECT_EQ(backoffs->severity, Severity::info);
  EXPECT_EQ(backoffs->evidence[0].key.op_name, "linear_backward");
  EXPECT_EQ(find_finding(report, "scale.collapse"), nullptr);
  EXPECT_EQ(find_finding(report, "scale.below_1000"), nullptr);
}

TEST(Scale, ASkippedStepWithoutAnEventIsBlamedOnTheFirstNonfiniteOutput) {
  SyntheticTrace trace(run_info(true));
  const uint32_t forward = trace.add_tensor("fc", "linear", Phase::forward, Role::activation, DType::f16);
  for (const bool with_event : {true, false}) {
    StepRow row = SyntheticTrace::default_step(1.0, 1024.0);
    row.skipped = true;  // hysteresis: the scale stays
    if (with_event) trace.sink().add_event({trace.step(), EventKind::nonfinite, forward, 2, 1, 3, 0, ""});
    trace.end_step(row);
  }
  const Report report = analyze_scale(trace.read());
  const Table& changes = table(report, "changes");
  ASSERT_EQ(changes.rows.size(), 2u);
  EXPECT_EQ(cell(changes, 0, "kind"), Cell(std::string("skip")));
  EXPECT_EQ(cell(changes, 0, "nonfinite_tensor"), Cell(std::string("fc linear")));
  EXPECT_EQ(changes.rows[0].key.micro_batch, 2u);
  EXPECT_EQ(changes.rows[0].key.loss_index, 1);
  EXPECT_TRUE(is_unknown(cell(changes, 1, "nonfinite_tensor")));
}

TEST(Scale, ThresholdsAreNotesUnlessStepsAreSkippedOrGradientsFlushed) {
  const auto severity = [](const Report& report, const char* code) -> std::optional<Severity> {
    const Finding* finding = find_finding(report, code);
    return finding ? std::optional(finding->severity) : std::nullopt;
  };
  LossScaleRule fixed = rule(64, 2000);
  ScaledRun low(fixed, 20, [](int) { return 1.0; });
  const Report low_report = analyze_scale(low.trace.read());
  EXPECT_EQ(severity(low_report, "scale.below_100"), Severity::info);
  EXPECT_FALSE(severity(low_report, "scale.below_1000"));  // said already
  // One step in twenty is the price of an outlier, five are waste.
  for (const auto& [skipped, expected] : {std::pair{1, Severity::info}, std::pair{5, Severity::warning}}) {
    ScaledRun skipping(fixed, 20, [&](int step) { return step >= 10 && step < 10 + skipped ? 1e5 : 1.0; });
    EXPECT_EQ(severity(analyze_scale(skipping.trace.read()), "scale.below_100"), expected) << skipped;
  }
  ScaledRun medium(rule(512, 2000), 20, [](int) { return 1.0; });
  EXPECT_EQ(severity(analyze_scale(medium.trace.read()), "scale.below_1000"), Severity::info);
  ScaledRun normal(rule(65536, 2000), 20, [](int) { return 0.1; });
  const Report normal_report = analyze_scale(normal.trace.read());
  EXPECT_TRUE(normal_report.findings.empty()) << normal_report.findings[0].code;
  // A healthy run passes 100000, and pays a skipped step for it now and then.
  ScaledRun high(rule(65536, 200), 1500, [](int) { return 0.1; });
  const Report high_report = analyze_scale(high.trace.read());
  EXPECT_EQ(severity(high_report, "scale.above_100000"), Severity::info);
  EXPECT_FALSE(severity(high_report, "scale.thrashing"));
  ScaledRun flushed(rule(131072, 2000), 20, [](int) { return 1e-14; });
  const Report flushed_report = analyze_scale(flushed.trace.read());  // in spite of the high scale: it is too low
  EXPECT_EQ(severity(flushed_report, "scale.above_100000"), Severity::info);
  EXPECT_EQ(severity(flushed_report, "scale.under_scaled"), Severity::warning);
}

TEST(Scale, CollapseIsAnErrorThatNamesTheTensor) {
  ScaledRun run(rule(65536, 2000), 40, [](int step) { return step < 5 ? 0.1 : INFINITY; });
  const Report report = analyze_scale(run.trace.read());
  const Finding* finding = find_finding(report, "scale.collapse");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->severity, Severity::error);
  ASSERT_EQ(finding->evidence.size(), 1u);
  EXPECT_EQ(finding->evidence[0].key.op_name, "linear_backward");
  EXPECT_EQ(find_finding(report, "scale.thrashing"), nullptr);
  // A scale that starts far too high is no collapse: Megatron's takes many steps to come down from 2^32.
  ScaledRun search(rule(0x1p32, 2000), 60, [](int) { return 1.0; });
  EXPECT_EQ(find_finding(analyze_scale(search.trace.read()), "scale.collapse"), nullptr);
  // Nor is one that is still coming down when the trace ends, unless it has reached its floor; a fixed scale cannot collapse.
  ScaledRun unfinished(rule(0x1p32, 2000), 12, [](int) { return 1.0; });
  EXPECT_EQ(find_finding(analyze_scale(unfinished.trace.read()), "scale.collapse"), nullptr);
  LossScaleRule floored = rule(0x1p20, 2000);
  floored.floor = 0x1p15;
  ScaledRun at_floor(floored, 30, [](int) { return 1e6; });
  EXPECT_NE(find_finding(analyze_scale(at_floor.trace.read()), "scale.collapse"), nullptr);
  LossScaleRule fixed = rule(65536, 2000);
  fixed.dynamic = false;
  ScaledRun constant(fixed, 30, [](int) { return 1e6; });
  EXPECT_EQ(find_finding(analyze_scale(constant.trace.read()), "scale.collapse"), nullptr);
}

// The first nonfinite output of the step is named, not the gradient that inherited it, in whatever order the events stand.
TEST(Scale, AForwardOverflowIsNotBlamedOnTheGradient) {
  SyntheticTrace trace(run_info(true));
  const uint32_t forward = trace.add_tensor("fc", "linear", Phase::forward, Role::activation, DType::f16);
  const uint32_t gradient = trace.add_tensor("fc", "matmul", Phase::backward, Role::weight_gradient, DType::f16);
  for (const bool backoff_first : {true, false}) {
    for (const bool backoff : {backoff_first, !backoff_first}) {
      if (backoff)
        trace.add_event(EventKind::scale_backoff, gradient, 280, 512.0);
      else
        trace.add_event(EventKind::nonfinite, forward, 187);
    }
    StepRow row = SyntheticTrace::default_step(1.0, 1024.0);
    row.skipped = true;
    row.scale_after = 512.0;
    trace.end_step(row);
  }
  const Report report = analyze_scale(trace.read());
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(cell(table(report, "changes"), i, "nonfinite_tensor"), Cell(std::string("fc linear")));
    EXPECT_EQ(cell(table(report, "changes"), i, "nonfinite"), Cell(int64_t{187}));
  }
}

TEST(Scale, ARunThatTookNoStepIsAnError) {
  const auto analyze = [](double scale, bool dynamic, int taken, StepRange range = {}) {
    SyntheticTrace trace(run_info(dynamic));
    for (int step = 0; step < 4; ++step) {
      StepRow row = SyntheticTrace::default_step(1.0, scale);
      row.skipped = step != taken;
      if (dynamic && row.skipped) scale = row.scale_after = scale / 2;
      trace.end_step(row);
    }
    ScaleOptions options;
    options.steps = range;
    return analyze_scale(trace.read(), options);
  };
  for (const auto& [scale, dynamic, advice] : {std::tuple{INFINITY, false, "advice.scale_is_infinite"},
                                               {INFINITY, true, "advice.scale_is_infinite"},
                                               {0x1p32, true, "advice.scale_comes_down"},
                                               {1.0, false, "advice.look_at_first_nonfinite"}}) {
    const Report report = analyze(scale, dynamic, -1);
    const Finding* finding = find_finding(report, "scale.no_step_taken");
    ASSERT_NE(finding, nullptr) << scale;
    EXPECT_EQ(finding->severity, Severity::error);
    EXPECT_EQ(finding->title, "All 4 steps were skipped: no weight was updated.");
    EXPECT_EQ(finding->suggestion.front().id(), advice);
  }
  // Of a gradient that is known a smaller scale is advice where its rounding overflowed, and none where it was infinite already.
  for (const double largest : {0x1p20, 1.0}) {
    SyntheticTrace trace(run_info(true));
    const uint32_t gradient = trace.add_tensor("fc", "matmul", Phase::backward, Role::weight_gradient, DType::f16);
    double scale = 1024;
    for (int step = 0; step < 4; ++step) {
      trace.add(gradient, make_row({largest, 1.0}, DType::f16, scale));
      StepRow row = SyntheticTrace::default_step(1.0, scale);
      row.skipped = true;
      scale = row.scale_after = scale / 2;
      trace.end_step(row);
    }
    const Report report = analyze_scale(trace.read());
    const Sentences& advice = find_finding(report, "scale.no_step_taken")->suggestion;
    ASSERT_EQ(advice.size(), 1u);
    EXPECT_EQ(advice.front().id(), largest > 1 ? "advice.scale_comes_down" : "advice.look_at_first_nonfinite");
    if (largest > 1) {
      EXPECT_EQ(advice.front()["first"].text(""), "2^10");
      EXPECT_EQ(advice.front()["last"].text(""), "2^6");
    }
  }
  EXPECT_EQ(find_finding(analyze(0x1p32, true, 2), "scale.no_step_taken"), nullptr);
  EXPECT_EQ(find_finding(analyze(0x1p32, true, 3, {0, 3}), "scale.no_step_taken"), nullptr);  // of the first steps only
}

TEST(Scale, SaysWhichLevelTellsWhatFits) {
  for (const bool health : {true, false}) {
    SyntheticTrace trace(run_info(true));
    const uint32_t gradient = trace.add_tensor("fc", "matmul", Phase::backward, Role::weight_gradient, DType::f16);
    trace.add(gradient, health ? make_health_row({1.0}, DType::f16, 8.0) : make_row({1.0}, DType::f16, 8.0));
    trace.end_step(SyntheticTrace::default_step(1.0, 8.0));
    const Report report = analyze_scale(trace.read());
    const Finding* finding = find_finding(report, "scale.fit_unknown");
    ASSERT_EQ(finding != nullptr, health);
    EXPECT_EQ(table(report, "fitting_scales").note.find("without magnitudes") != std::string::npos, health);
    if (finding) {
      EXPECT_NE(finding->suggestion.text().find("(recording.level, now \"stats\")"), std::string::npos);
    }
  }
}

TEST(Scale, ThrashingIsSkippingMoreThanGrowingCosts) {
  ScaledRun thrashing(rule(65536, 5), 200, [](int) { return 1.0; });
  const Report report = analyze_scale(thrashing.trace.read());
  const Finding* finding = find_finding(report, "scale.thrashing");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->severity, Severity::warning);
  // One skip, and then again and again five clean steps at 2^15 and a skip at 2^16.
  EXPECT_EQ(
      finding->title,
      "The loss scale oscillates: 33 of 199 steps (16.6%) were skipped after its initial descent. It doubles after every 5 clean "
      "steps (scaler.growth_interval = 5) until `fc.weight`'s gradient overflows.");
  EXPECT_EQ(finding->suggestion,
            "Set scaler.growth_interval = 2000, or cap the loss scale at 2^15 (scaler.cap), the largest that never overflowed.");
  EXPECT_THAT(finding->changes, ::testing::ElementsAre(SettingChange{.kind = SettingKind::scale_growth_interval, .value = "2000"},
                                                       SettingChange{.kind = SettingKind::scale_cap, .value = "32768"}));
  LossScaleRule steep = rule(65536, 5);
  steep.growth_factor = 16;
  ScaledRun overshoots(steep, 200, [](int) { return 1.0; });
  const Report overshot = analyze_scale(overshoots.trace.read());
  ASSERT_NE(find_finding(overshot, "scale.thrashing"), nullptr);
  EXPECT_EQ(find_finding(overshot, "scale.thrashing")->title.from(1),
            "Each growth multiplies the loss scale by 16 and takes 4 backoffs to undo, one skipped step each.");
  EXPECT_EQ(find_finding(overshot, "scale.thrashing")->suggestion, "Lower the growth factor to 2.");
  ScaledRun calm(rule(65536, 100), 1000, [](int) { return 1.0; });
  EXPECT_EQ(find_finding(analyze_scale(calm.trace.read()), "scale.thrashing"), nullptr);
}

TEST(Scale, UnderAndOverScaling) {
  LossScaleRule fixed = rule(2.0, 2000);
  fixed.dynamic = false;
  ScaledRun under(fixed, 20, [](int) { return 1e-8; });
  const Report under_report = analyze_scale(under.trace.read());
  const Finding* finding = find_finding(under_report, "scale.under_scaled");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->severity, Severity::warning);
  // 5e-9 (the other 99%) must stay above 2^-25: 2^3 * 5e-9 = 4e-8 does, 2^2 * 5e-9 = 2e-8 does not.
  EXPECT_EQ(fact(under_report, "smallest_fitting_scale"), Cell(8.0));
  ScaledRun fitting(fixed, 20, [](int) { return 1e-3; });
  EXPECT_EQ(find_finding(analyze_scale(fitting.trace.read()), "scale.under_scaled"), nullptr);
  fixed.initial = 65536;
  ScaledRun over(fixed, 20, [](int) { return 4.0; });
  const Report over_report = analyze_scale(over.trace.read());
  ASSERT_NE(find_finding(over_report, "scale.over_scaled"), nullptr);
  EXPECT_EQ(fact(over_report, "largest_fitting_scale"), Cell(8192.0));
}

// Gradients in FP32 know no limit of FP16, at whatever scale.
TEST(Scale, NoLimitOfFp16IsOneOfFp32) {
  for (const DType dtype : {DType::f16, DType::f32}) {
    SyntheticTrace trace(run_info(false));
    const uint32_t gradient = trace.add_tensor("a", "linear_backward", Phase::backward, Role::weight_gradient, dtype);
    for (int step = 0; step < 20; ++step) {
      trace.add(gradient, make_row({4.0 * 65536, 65536}, dtype, 65536));
      trace.end_step(SyntheticTrace::default_step(1, 65536));
    }
    const Snapshot snapshot = trace.read();
    EXPECT_EQ(find_finding(analyze_all(snapshot, {}), "scale.over_scaled") != nullptr, dtype == DType::f16);
  }
}

TEST(Scale, SaysWhenNoScaleFits) {
  SyntheticTrace trace(run_info(true));
  const uint32_t small = trace.add_tensor("a", "linear_backward", Phase::backward, Role::weight_gradient, DType::f16);
  const uint32_t large = trace.add_tensor("b", "linear_backward", Phase::backward, Role::weight_gradient, DType::f16);
  trace.add(small, make_row(std::vector<double>(50, 1e-9 * 1024), DType::f16, 1024.0));
  trace.add(large, make_row({30.0 * 1024, 40.0 * 1024, 1e-3}, DType::f16, 1024.0));
  trace.end_step(SyntheticTrace::default_step(1.0, 1024.0));
  EXPECT_EQ(find_finding(analyze_scale(trace.read()), "scale.no_scale_fits"), nullptr);

  SyntheticTrace wider(run_info(true));
  const uint32_t tiny = wider.add_tensor("a", "linear_backward", Phase::backward, Role::weight_gradient, DType::f16);
  const uint32_t huge = wider.add_tensor("b", "linear_backward", Phase::backward, Role::weight_gradient, DType::f16);
  wider.add(tiny, make_row(std::vector<double>(50, 1e-13 * 1024), DType::f16, 1024.0));
  wider.add(huge, make_row({30.0 * 1024, 40.0 * 1024}, DType::f16, 1024.0));
  wider.end_step(SyntheticTrace::default_step(1.0, 1024.0));
  const Report report = analyze_scale(wider.read());
  const Finding* finding = find_finding(report, "scale.no_scale_fits");
  ASSERT_NE(finding, nullptr);
  ASSERT_EQ(finding->evidence.size(), 2u);
  EXPECT_EQ(finding->evidence[0].key.module, "a");
  EXPECT_EQ(finding->evidence[1].key.module, "b");
}

TEST(Scale, StallsAreNoted) {
  LossScaleRule capped = rule(1024, 20);
  capped.cap = 2048;
  ScaledRun run(capped, 100, [](int) { return 0.01; });
  EXPECT_NE(find_finding(analyze_scale(run.trace.read()), "scale.stalled"), nullptr);
  ScaledRun growing(rule(1024, 20), 70, [](int) { return 0.001; });
  EXPECT_EQ(find_finding(analyze_scale(growing.trace.read()), "scale.stalled"), nullptr);
}

// What a trace shows of a scaler that grew every `interval` steps, `clean` of them before the first step seen, and stands still
// after `growths`.
Report stalled_report(int64_t told, uint64_t interval, uint64_t clean, int growths, uint64_t still) {
  RunInfo run = run_info(true);
  run.growth_interval = told;
  SyntheticTrace trace(run);
  double scale = 1024;
  for (int growth = 0; growth < growths; ++growth) {
    for (uint64_t step = growth == 0 ? clean : 0; step < interval; ++step) {
      StepRow row = SyntheticTrace::default_step(1.0, scale);
      if (step + 1 == interval) row.scale_after = scale *= 2;
      trace.end_step(row);
    }
  }
  for (uint64_t step = 0; step < still; ++step) trace.end_step(SyntheticTrace::default_step(1.0, scale));
  return analyze_scale(trace.read());
}

// A trace that begins within a clean run (a resumed run, a range of steps) shows its first growth too soon.
TEST(Scale, AStallIsJudgedByTheIntervalOfTheScaler) {
  EXPECT_EQ(find_finding(stalled_report(150, 150, 140, 1, 100), "scale.stalled"), nullptr);
  EXPECT_EQ(find_finding(stalled_report(0, 150, 140, 1, 100), "scale.stalled"), nullptr);
  EXPECT_EQ(find_finding(stalled_report(0, 30, 20, 2, 60), "scale.stalled"), nullptr);
  for (const int64_t told : {30, 0}) {
    const Report report = stalled_report(told, 30, 20, 2, 61);
    const Finding* finding = find_finding(report, "scale.stalled");
    ASSERT_NE(finding, nullptr);
    EXPECT_EQ(finding->title.from(1), "Its growth interval is 30 steps.");
  }
}

TEST(Scale, WithoutAScalerItAsksForOneOnlyWhereGradientsAreFlushed) {
  ScaledRun flushed(
      rule(1, 1), 10, [](int) { return 1e-9; }, false);
  const Report report = analyze_scale(flushed.trace.read());
  const Finding* finding = find_finding(report, "scale.missing");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->severity, Severity::warning);
  EXPECT_EQ(finding->suggestion, "Enable loss scaling (scaler.enabled = \"on\"), or use BF16.");
  for (const bool kept : {false, true}) {
    ScaledRun pure(
        rule(1, 1), 10, [](int) { return 1e-9; }, false);
    pure.trace.add_tensor("fc", "source", Phase::data, Role::weight, DType::f16, "fc.weight");
    if (kept) pure.trace.add_tensor("fc", "source", Phase::data, Role::master_weight, DType::f32, "fc.weight");
    const Report of_pure = analyze_scale(pure.trace.read());
    const bool asked =
        find_finding(of_pure, "scale.missing")->suggestion.text().find("Use FP32 master weights") != std::string::npos;
    EXPECT_EQ(asked, !kept);
  }
  ScaledRun fine(
      rule(1, 1), 10, [](int) { return 1e-3; }, false);
  const Report fine_report = analyze_scale(fine.trace.read());
  EXPECT_EQ(find_finding(fine_report, "scale.missing"), nullptr);
  EXPECT_NE(find_finding(fine_report, "scale.none"), nullptr);
}

TEST(Scale, AnFp32RunIsToldWhichScaleFp16WouldNeed) {
  SyntheticTrace trace(run_info(false, "fp32"));
  const uint32_t gradient = trace.add_tensor("fc", "linear_backward", Phase::backward, Role::weight_gradient, DType::f32);
  trace.add(gradient, make_row(std::vector<double>(100, 1e-8), DType::f32));
  trace.end_step();
  const Snapshot reader = trace.read();
  const Report report = analyze_scale(reader);
  EXPECT_EQ(fact(report, "fitting_scales_for"), Cell(std::string("fp16")));
  // 1e-8 * 2^2 = 4e-8 > 2^-25; 1e-8 * 2^42 = 43980 < 65520 <= 1e-8 * 2^43.
  EXPECT_EQ(fact(report, "smallest_fitting_scale"), Cell(4.0));
  EXPECT_EQ(fact(report, "largest_fitting_scale"), Cell(0x1p42));
  ScaleOptions options;
  options.format = &bfloat16;
  const Report in_bf16 = analyze_scale(reader, options);
  EXPECT_EQ(fact(in_bf16, "fitting_scales_for"), Cell(std::string("bf16")));
  for (const Finding& finding : in_bf16.findings) EXPECT_EQ(finding.title.text().find("fp16"), std::string::npos) << finding.title;
  const std::atomic<bool> cancel{true};
  options.cancel = &cancel;
  EXPECT_FALSE(analyze_scale(reader, options).complete);
}

// In FP16 the product of an FP32 run would read a gradient that is subnormal as zero, on hardware that flushes FP16 and BF16
// factors alone, and where the run flushes all inputs: 2^-20 is normal in FP16 from 2^6 on.
TEST(Scale, AnFp32RunIsToldOfSubnormalsThatFp16ProductsWouldReadAsZero) {
  for (const bool narrow_products : {true, false}) {
    SyntheticTrace trace(run_info(false, "fp32"));
    const OpInfo loss{1, 0, "cross_entropy_backward", "", Phase::backward, "", {}},
        matmul{2, 0, "matmul", "fc", Phase::backward, "", {}};
    TensorInfo read, product;
    read.role = product.role = Role::activation_gradient;
    read.shape = product.shape = {100};
    product.flushes_narrow_products = narrow_products;
    product.flushes_inputs = !narrow_products;
    const uint32_t gradient = trace.add_output(loss, read), made = trace.add_output(matmul, product);
    trace.sink().add_edge({0, 1, 0, 0, 0});
    trace.add(gradient, make_row(std::vector<double>(100, 0x1p-20), DType::f32));
    trace.add(made, make_row(std::vector<double>(100, 0x1p-10), DType::f32));
    trace.end_step();
    const Snapshot reader = trace.read();
    EXPECT_EQ(fact(analyze_scale(reader), "smallest_fitting_scale"), Cell(64.0));
    const Report ranges = analyze_ranges(reader);
    const Finding* finding = find_finding(ranges, "range.gradients_would_flush");
    ASSERT_NE(finding, nullptr);
    EXPECT_NE(finding->title.text().find("1 of 2 gradient tensors "), std::string::npos) << finding->title;
    EXPECT_EQ(finding->evidence[0].values[0].value, Cell(0.0));  // by its own rounding
    EXPECT_EQ(finding->evidence[0].values[1].value, Cell(1.0));
    // In BF16 2^-20 is far from subnormal.
    ScaleOptions options;
    options.format = &bfloat16;
    EXPECT_LT(upper(fact(analyze_scale(reader, options), "smallest_fitting_scale")), 0x1p-90);
  }
}

// A product's own results are flushed there too: 2^-20 is normal from 2^6 on, and a bias gradient is no product.
TEST(Scale, AnFp32RunIsToldOfSubnormalResultsThatFp16ProductsWouldFlush) {
  for (const uint32_t slot : {0, 1}) {
    SyntheticTrace trace(run_info(false, "fp32"));
    TensorInfo product;
    product.role = Role::weight_gradient;
    product.shape = {100};
    product.slot = slot;
    product.flushes_narrow_products = true;
    const uint32_t made = trace.add_output({2, 0, "conv2d_backward_weight", "fc", Phase::backward, "", {}}, product);
    trace.add(made, make_row(std::vector<double>(100, 0x1p-20), DType::f32));
    trace.end_step();
    // Beyond 2^-25 otherwise: 2^-20 2^-4 is.
    EXPECT_EQ(fact(analyze_scale(trace.read()), "smallest_fitting_scale"), Cell(slot == 0 ? 64.0 : 0x1p-4));
  }
}

// The loss, the seed of the backward pass and the scaled seed are FP32 in mixed precision too, and so are other gradients of values
// that autocast leaves alone.
TEST(Scale, WhatStaysWideDoesNotBoundTheScaleOfAnFp32Run) {
  SyntheticTrace trace(run_info(false, "fp32"));
  const uint32_t loss = trace.add_tensor("", "scale", Phase::loss, Role::loss, DType::f32);
  const uint32_t seed = trace.add_tensor("", "fill", Phase::backward, Role::loss, DType::f32);
  const uint32_t scaled_seed = trace.add_tensor("", "scale", Phase::backward, Role::activation_gradient, DType::f32, "", true);
  const uint32_t bias = trace.add_tensor("bn", "batch_norm_backward", Phase::backward, Role::weight_gradient, DType::f32, "", true);
  const uint32_t gradient = trace.add_tensor("fc", "linear_backward", Phase::backward, Role::weight_gradient, DType::f32);
  for (const uint32_t wide : {loss, seed, scaled_seed, bias}) trace.add(wide, make_row({1.0, 1e-30}, DType::f32, 0x1p-100));
  trace.add(gradient, make_row(std::vector<double>(100, 1e-8), DType::f32));
  trace.end_step();
  const Snapshot reader = trace.read();
  const Report report = analyze_scale(reader);
  EXPECT_EQ(fact(report, "smallest_fitting_scale"), Cell(4.0));
  EXPECT_EQ(fact(report, "largest_fitting_scale"), Cell(0x1p42));
  EXPECT_EQ(table(report, "fitting_scales").rows.size(), 1u);
  const Report ranges = analyze_ranges(reader);
  const Finding* finding = find_finding(ranges, "range.gradients_would_flush");
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->title.text().find("1 of 1 gradient tensor "), std::string::npos) << finding->title;
}

TEST(Scale, CopesWithNothing) {
  SyntheticTrace trace;
  const Report report = analyze_scale(trace.read());
  EXPECT_NE(find_finding(report, "scale.none"), nullptr);
  EXPECT_TRUE(is_unknown(fact(report, "final_scale")));
  EXPECT_TRUE(is_unknown(fact(report, "largest_fitting_scale")));
  EXPECT_TRUE(report.plots.empty());
}

// A scale that began low is not one that large values keep low.
TEST(Scale, NoOverflowIsBlamedForAScaleThatBeganLow) {
  for (const bool overflowed : {false, true}) {
    RunInfo run;
    run.dynamic_loss_scale = true;
    SyntheticTrace trace(run);
    const uint32_t gradient = trace.add_tensor("fc", "linear_backward", Phase::backward, Role::weight_gradient, DType::f16);
    trace.add(gradient, make_row({1e-9, 2e-9}, DType::f16, 2.0));
    StepRow row = SyntheticTrace::default_step(1.0, 2.0);
    row.skipped = overflowed;
    trace.end_step(row);
    trace.add(gradient, make_row({1e-9, 2e-9}, DType::f16, 2.0));
    trace.end_step(SyntheticTrace::default_step(1.0, 2.0));
    const Report report = analyze_scale(trace.read());
    const Finding* low = find_finding(report, "scale.below_100");
    ASSERT_NE(low, nullptr);
    EXPECT_EQ(low->suggestion.text().find("overflows first") != std::string::npos, overflowed) << low->suggestion;
  }
}

// Steps that are skipped since the loss is NaN are no matter of a scale; those before are.
TEST(Scale, ALowScaleIsJudgedByTheStepsBeforeTheRunBroke) {
  for (const bool overflowed : {false, true}) {
    RunInfo run;
    run.dynamic_loss_scale = true;
    SyntheticTrace trace(run);
    const uint32_t gradient = trace.add_tensor("fc", "linear_backward", Phase::backward, Role::weight_gradient, DType::f16);
    for (int step = 0; step < 40; ++step) {
      StepRow row = SyntheticTrace::default_step(step < 30 ? 1.0 : NAN, 64);
      row.skipped = step >= 30 || (overflowed && step >= 10 && step < 20);
      trace.add(gradient, make_row(std::vector<double>(10, row.skipped ? INFINITY : 1.0), DType::f16, 64));
      trace.end_step(row);
    }
    const Report report = analyze_scale(trace.read());
    const Finding* low = find_finding(report, "scale.below_100");
    ASSERT_NE(low, nullptr);
    EXPECT_EQ(low->severity, overflowed ? Severity::warning : Severity::info);
    EXPECT_EQ(low->suggestion.text().find("overflows first") != std::string::npos, overflowed) << low->suggestion;
    EXPECT_NE(low->title.text().find("It started at 2^6."), std::string::npos) << low->title;
  }
}

// Steps of a run in BF16 that went on from one in FP16, say.
TEST(Scale, StepsWithoutAScalerAreNotLow) {
  RunInfo run;
  run.dynamic_loss_scale = false;
  SyntheticTrace trace(run);
  for (int step = 0; step < 4; ++step) trace.end_step(SyntheticTrace::default_step(1.0, step < 2 ? 0x1p16 : 1));
  const Snapshot without = trace.read();
  EXPECT_EQ(find_finding(analyze_scale(without), "scale.below_100"), nullptr);
  run.dynamic_loss_scale = true;
  SyntheticTrace scaled(run);
  for (int step = 0; step < 4; ++step) scaled.end_step(SyntheticTrace::default_step(1.0, step < 2 ? 0x1p16 : 1));
  const Snapshot with = scaled.read();
  EXPECT_NE(find_finding(analyze_scale(with), "scale.below_100"), nullptr);
}

}  // namespace
}  // namespace ulpscope::analyzers_test
