// What `ulpscope updates` says of traces whose updates are known.
#include "ulpscope/analyzers/verbs/updates.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "report_access.h"
#include "synthetic_trace.h"
#include "tests/support/said.h"
#include "ulpscope/analyzers/report/json.h"
#include "ulpscope/analyzers/totals/update_history.h"
#include "ulpscope/analyzers/verbs/all_findings.h"

namespace ulpscope::analyzers_test {
namespace {

uint32_t add_weight(SyntheticTrace& trace, const std::string& module, DType dtype,
                    RoundingMode rounding = RoundingMode::nearest_even) {
  static uint64_t next_id = 1000;
  TensorInfo weight;
  weight.role = Role::weight;
  weight.dtype = dtype;
  weight.parameter = module + ".weight";
  weight.shape = {10, 10};
  weight.rounding = rounding;
  return trace.add_output({next_id++, 0, "adam_update", module, Phase::optimizer, "", {}}, weight);
}

void add(SyntheticTrace& trace, uint32_t tensor, ParameterRow row) {
  row.step = trace.step();
  row.tensor = tensor;
  trace.sink().add_parameter(row);
}

TEST(Updates, EachParameterHasItsSharesAndTheWorstIsFirst) {
  SyntheticTrace trace;
  const uint32_t good = add_weight(trace, "good", DType::f32), bad = add_weight(trace, "bad", DType::bf16),
                 idle = add_weight(trace, "idle", DType::bf16);
  for (uint64_t step = 0; step < 20; ++step) {
    add(trace, good, {.learning_rate = 0.1, .weight_norm = 4, .update_norm = step < 10 ? 1.0 : 2.0, .nonzero = 100, .lost = 1});
    add(trace, bad,
        {.learning_rate = 0.1 * static_cast<double>(20 - step),
         .weight_norm = 8,
         .update_norm = 2,
         .decay_known = true,
         .decay_asked = 2,
         .decay_applied = 0.5,
         .nonzero = 50,
         .lost = step < 2     ? 10U
                 : step >= 18 ? 45U
                              : 40U,
         .lost_to_decay = 5});
    add(trace, idle, {.weight_norm = 0, .update_norm = 0, .decay_known = true, .decay_asked = 3, .decay_applied = 3});
    trace.end_step();
  }
  const Report report = analyze_updates(trace.read());
  EXPECT_EQ(fact(report, "steps"), Cell(int64_t{20}));
  EXPECT_EQ(fact(report, "parameters"), Cell(int64_t{3}));
  EXPECT_EQ(fact(report, "nonzero_updates"), Cell(int64_t{3000}));
  EXPECT_EQ(fact(report, "lost"), Cell((20.0 + 20 + 16 * 40 + 90) / 3000));
  EXPECT_EQ(fact(report, "lost_to_decay"), Cell(100.0 / 3000));
  EXPECT_EQ(fact(report, "lost_in_first_tenth"), Cell((2.0 + 20) / 300));
  EXPECT_EQ(fact(report, "lost_in_last_tenth"), Cell((2.0 + 90) / 300));
  EXPECT_EQ(fact(report, "decay_arrived"), Cell(70.0 / 100));
  EXPECT_TRUE(not_applicable(fact(report, "learning_stalls_in_step")));

  const Table& parameters = table(report, "parameters");
  ASSERT_EQ(parameters.rows.size(), 3u);
  for (size_t row = 0; row < 3; ++row)
    EXPECT_EQ(cell(parameters, row, "tensor"), Cell(std::vector<std::string>{"bad.weight", "good.weight", "idle.weight"}[row]));
  EXPECT_EQ(parameters.rows[0].key.parameter, "bad.weight");
  EXPECT_EQ(cell(parameters, 0, "type"), Cell(std::string("bf16")));
  EXPECT_EQ(cell(parameters, 0, "updates"), Cell(int64_t{20}));
  EXPECT_EQ(cell(parameters, 0, "nonzero"), Cell(int64_t{1000}));
  EXPECT_EQ(cell(parameters, 0, "lost"), Cell(0.75));
  EXPECT_EQ(cell(parameters, 0, "lost_to_decay"), Cell(0.1));
  EXPECT_EQ(cell(parameters, 0, "first_tenth"), Cell(0.2));
  EXPECT_EQ(cell(parameters, 0, "last_tenth"), Cell(0.9));
  EXPECT_EQ(cell(parameters, 0, "update_over_weight"), Cell(0.25));
  EXPECT_EQ(cell(parameters, 0, "learning_rate"), Cell(0.1));
  EXPECT_EQ(cell(parameters, 1, "update_over_weight"), Cell(0.375));  // of ten 0.25 and ten 0.5
  EXPECT_TRUE(not_applicable(cell(parameters, 2, "lost")));
  EXPECT_TRUE(is_unknown(cell(parameters, 2, "update_over_weight")));

  const Table& decay = table(report, "decay");
  ASSERT_EQ(decay.rows.size(), 2u);
  EXPECT_EQ(cell(decay, 0, "tensor"), Cell(std::string("bad.weight")));
  EXPECT_EQ(cell(decay, 0, "asked"), Cell(40.0));
  EXPECT_EQ(cell(decay, 0, "applied"), Cell(10.0));
  EXPECT_EQ(cell(decay, 0, "arrived"), Cell(0.25));
  EXPECT_EQ(cell(decay, 1, "arrived"), Cell(1.0));
  EXPECT_NE(find_finding(report, "updates.lost"), nullptr);
  EXPECT_NE(find_finding(report, "updates.decay_lost"), nullptr);

  ASSERT_EQ(report.plots.size(), 2u) << "and its picture";
  const std::vector<Series>& series = report.plots[0].series;
  ASSERT_EQ(series.size(), 3u);  // of the one that lost nothing there is none
  EXPECT_EQ(series[0].name, "all parameters");
  EXPECT_EQ(series[1].name, "bad.weight");
  EXPECT_EQ(series[1].y.front(), 0.2);
  EXPECT_EQ(series[1].y.back(), 0.9);
  EXPECT_EQ(series[0].y.front(), 11.0 / 150);
  EXPECT_EQ(series[0].x.back(), 19);
}

// What is lost where the loss is nothing beside the first one is lost to nobody; what is nothing is told by that, and by 1.
TEST(Updates, WhatIsLostInFittedStepsIsNotMissed) {
  const auto is_missed = [](double first, double last) {
    SyntheticTrace trace;
    const uint32_t weight = trace.add_tensor("fc", "sgd_update", Phase::optimizer, Role::weight, DType::f32, "fc.weight");
    for (int step = 0; step < 20; ++step) {
      trace.add_update(weight, 100, step < 5 ? 0 : 100, 0);
      trace.end_step(SyntheticTrace::default_step(step < 5 ? first : last));
    }
    const Report report = analyze_all(trace.read());
    return find_finding(report, "updates.lost") != nullptr;
  };
  const double unit = std::ldexp(1.0, -24);
  EXPECT_FALSE(is_missed(1, 0));
  EXPECT_FALSE(is_missed(0.5, 0.5 * unit));
  EXPECT_TRUE(is_missed(0.5, 0.6 * unit));
  EXPECT_FALSE(is_missed(1000, unit));
  EXPECT_TRUE(is_missed(1000, 2 * unit));
  EXPECT_TRUE(is_missed(1, -1));  // a loss that may be negative is no less for that
  EXPECT_TRUE(is_missed(0, 0));   // nothing was learned
}

TEST(Updates, TheLimitCountsWhatItLeavesOut) {
  SyntheticTrace trace;
  for (const char* module : {"a", "b", "c"})
    add(trace, add_weight(trace, module, DType::bf16),
        {.decay_known = true, .decay_asked = 1, .decay_applied = 1, .nonzero = 4, .lost = 1});
  trace.end_step();
  AnalysisOptions options;
  options.limit = 2;
  const Snapshot reader = trace.read();
  const Report some = analyze_updates(reader, options);
  for (const char* name : {"parameters", "decay"}) {
    EXPECT_EQ(table(some, name).rows.size(), 2u);
    EXPECT_EQ(table(some, name).rows_left_out, 1u);
  }
  EXPECT_EQ(some.plots[0].series.size(), 3u);
  options.limit = 0;
  EXPECT_EQ(table(analyze_updates(reader, options), "parameters").rows.size(), 3u);
  EXPECT_EQ(some.verdict, Verdict::ok);
  options.modules = {"b"};
  EXPECT_EQ(fact(analyze_updates(reader, options), "parameters"), Cell(int64_t{1}));
  options.modules.clear();
  options.phases = {Phase::forward};
  EXPECT_EQ(analyze_updates(reader, options).verdict_text, "No update was recorded in the selection.");
}

// Of stochastic rounding a weight that stays is no loss: neither it nor the run stalls.
TEST(Updates, WeightsStallByThemselvesAndTogether) {
  for (const RoundingMode other : {RoundingMode::nearest_even, RoundingMode::stochastic}) {
    SyntheticTrace trace;
    const uint32_t stalls = add_weight(trace, "stalls", DType::bf16), moves = add_weight(trace, "moves", DType::bf16, other);
    for (uint64_t step = 0; step < 50; ++step) {
      add(trace, stalls, {.nonzero = 1000, .lost = step < 30 ? 500U : 1000U});
      add(trace, moves, {.nonzero = 10, .lost = step < 40 ? 0U : 10U});
      trace.end_step();
    }
    const Report report = analyze_updates(trace.read());
    const bool stochastic = other == RoundingMode::stochastic;
    const Table& parameters = table(report, "parameters");
    const size_t row = row_of(parameters, "moves.weight");
    EXPECT_EQ(cell(parameters, row_of(parameters, "stalls.weight"), "stalls_in_step"), Cell(int64_t{30}));
    EXPECT_EQ(cell(parameters, row, "stalls_in_step"), stochastic ? Cell(NotApplicable{}) : Cell(int64_t{40}));
    EXPECT_EQ(cell(parameters, row, "stalls"), stochastic ? Cell(NotApplicable{}) : Cell(std::string("recorded")));
    EXPECT_EQ(fact(report, "stall"), Cell(std::string("recorded")));
    // Until step 39 ten of 1010 updates arrive, which is less than 1%.
    EXPECT_EQ(fact(report, "learning_stalls_in_step"), Cell(int64_t{30}));
    EXPECT_EQ(parameters.note.find("Stochastic rounding") != std::string::npos, stochastic);
    EXPECT_EQ(fact(report, "lost_in_last_tenth"), Cell(1.0));  // of all
    EXPECT_EQ(fact(report, "lost_in_first_tenth"), Cell(500.0 / 1010));
  }
}

TEST(Updates, OfStochasticRoundingAloneNothingIsSaidOfStalls) {
  SyntheticTrace trace;
  const uint32_t weight = add_weight(trace, "a", DType::bf16, RoundingMode::stochastic);
  for (uint64_t step = 0; step < 50; ++step) {
    add(trace, weight, {.nonzero = 1000, .lost = 1000});
    trace.end_step();
  }
  const Report report = analyze_updates(trace.read());
  EXPECT_EQ(fact(report, "lost"), Cell(1.0));
  EXPECT_TRUE(not_applicable(fact(report, "stall")));
  EXPECT_TRUE(not_applicable(fact(report, "learning_stalls_in_step")));
}

TEST(Updates, WhatIsExtrapolatedIsCalledSo) {
  SyntheticTrace trace;
  const uint32_t weight = add_weight(trace, "a", DType::bf16);
  for (uint64_t step = 0; step < 300; ++step) {
    const double share = 1 / (1 + std::exp(3 - 0.02 * static_cast<double>(step)));
    add(trace, weight, {.nonzero = 1000000, .lost = static_cast<uint64_t>(std::llround(1e6 * share))});
    trace.end_step();
  }
  const Report report = analyze_updates(trace.read());
  EXPECT_EQ(fact(report, "stall"), Cell(std::string("extrapolated")));
  const Cell step = fact(report, "learning_stalls_in_step");
  EXPECT_TRUE(lower(step) <= 379.8 && 379.7 <= upper(step) && upper(step) - lower(step) <= 2) << lower(step);
  EXPECT_EQ(cell(table(report, "parameters"), 0, "stalls_in_step"), step);
}

// Steps after the loss became NaN for good say nothing of a format.
TEST(Updates, OnlyStepsBeforeTheRunBrokeAreJudged) {
  SyntheticTrace trace;
  const uint32_t weight = add_weight(trace, "a", DType::bf16);
  for (uint64_t step = 0; step < 30; ++step) {
    add(trace, weight, {.nonzero = 100, .lost = step < 12 ? 10U : 100U});
    trace.end_step(SyntheticTrace::default_step(step < 12 ? 1.0 : NAN));
  }
  const Report report = analyze_updates(trace.read());
  EXPECT_EQ(fact(report, "lost"), Cell(0.1));
  EXPECT_EQ(cell(table(report, "parameters"), 0, "updates"), Cell(int64_t{12}));
  EXPECT_TRUE(not_applicable(fact(report, "learning_stalls_in_step")));
  EXPECT_NE(table(report, "parameters").note.find("the steps before step 12"), std::string::npos);
}

// Ranks that hold parts of a weight add up, in the steps that they have.
TEST(Updates, SeriesOfRanksAddUp) {
  UpdateSeries one{{{0, 10, 1, 3, 1}, {1, 10, 2, 3, 1}}}, other{{{1, 5, 5, 4, 1, 0.5}, {2, 7, 0, 1, 1}}};
  one.beside(other);
  ASSERT_EQ(one.steps.size(), 3u);
  EXPECT_EQ(one.steps[0].lost, 1u);
  EXPECT_EQ(one.steps[1].step, 1u);
  EXPECT_EQ(one.steps[1].nonzero, 15u);
  EXPECT_EQ(one.steps[1].lost, 7u);
  EXPECT_EQ(one.steps[1].weight_norm, 5);
  EXPECT_EQ(one.steps[1].update_norm, std::sqrt(2.0));
  EXPECT_EQ(one.steps[2].nonzero, 7u);
  EXPECT_EQ(one.steps[1].learning_rate, 0.5);
}

// A cell is the share of the nonzero updates of its steps; one without any is empty.
// A tenth of what was added, and a tenth of the sum, which has the first gradient besides: a few small addends are not missed.
TEST(Updates, SumsStagnateThatLoseATenth) {
  struct Case {
    double arrived, magnitude;  // 1000 were asked for
    bool stagnates;
    RoundingMode rounding = RoundingMode::nearest_even;
  };
  for (const auto& [arrived, magnitude, stagnates, rounding] :
       {Case{900, 900, true}, Case{901, 900, false}, Case{0, 9999, true}, Case{0, 10001, false}, Case{1200, 100, false},
        Case{0, 100, false, RoundingMode::stochastic}, Case{500, 100, true, RoundingMode::toward_zero}}) {
    SCOPED_TRACE(fmt::format("{} arrive in {}", arrived, magnitude));
    SyntheticTrace trace;
    TensorInfo sum;
    sum.role = Role::accumulated_gradient;
    sum.dtype = DType::bf16;
    sum.parameter = "head.weight";
    sum.shape = {10};
    sum.rounding = rounding;
    const uint32_t tensor = trace.add_output({77, 0, "accumulate", "head", Phase::backward, "", {}}, sum);
    for (int step = 0; step < 3; ++step) {
      // The first step loses nothing.
      const double of_step = step == 0 ? 1000 : 1.5 * arrived - 500;
      trace.add_sum({.tensor = tensor, .additions = 9, .counts = {5000, 4000, 3000, 1000, of_step, magnitude}});
      trace.end_step();
    }
    const Report report = analyze_updates(trace.read());
    const Finding* finding = find_finding(report, "precision.sum_stagnates");
    ASSERT_EQ(finding != nullptr, stagnates);
    const Table& sums = table(report, "sums");
    ASSERT_EQ(sums.rows.size(), 1u);
    EXPECT_EQ(cell(sums, 0, "additions"), Cell(int64_t{27}));
    EXPECT_EQ(cell(sums, 0, "absorbed"), Cell(0.75));
    EXPECT_NEAR(std::get<double>(cell(sums, 0, "lost")), std::max(0.0, 1 - arrived / 1000), 1e-12);
    if (!finding) continue;
    EXPECT_EQ(finding->severity, Severity::warning);
    EXPECT_NE(finding->title.text().find("`head.weight`"), std::string::npos) << finding->title;
    EXPECT_NE(finding->title.text().find("75% of 12,000 addends"), std::string::npos) << finding->title;
  }
}

// Each addition of a backward pass is an op, whose output is a tensor.
TEST(Updates, WhatABackwardPassAddsUpForAParameterIsOneSum) {
  SyntheticTrace trace;
  std::vector<uint32_t> sums;
  for (uint64_t i = 0; i < 10; ++i)
    for (const char* parameter : {"lost.weight", "kept.weight"}) {
      TensorInfo sum;
      sum.role = Role::accumulated_gradient;
      sum.dtype = DType::bf16;
      sum.parameter = parameter;
      sum.shape = {10};
      sums.push_back(trace.add_output({100 + sums.size(), 0, "accumulate", "cell", Phase::backward, "", {}}, sum));
    }
  for (int step = 0; step < 2; ++step) {
    for (size_t i = 0; i < sums.size(); ++i) {
      const double arrived = i % 2 == 0 && i >= 10 ? 0 : 8;
      trace.add_sum({.tensor = sums[i], .additions = 1, .counts = {8, 8, arrived == 0 ? 8u : 0u, 8, arrived, 40}});
    }
    trace.end_step();
  }
  const Report report = analyze_updates(trace.read());
  const Table& table_of_sums = table(report, "sums");
  ASSERT_EQ(table_of_sums.rows.size(), 2u);
  EXPECT_EQ(cell(table_of_sums, 0, "additions"), Cell(int64_t{20}));
  EXPECT_EQ(cell(table_of_sums, 0, "lost"), Cell(0.5));
  EXPECT_EQ(cell(table_of_sums, 1, "lost"), Cell(0.0));
  const Finding* finding = find_finding(report, "precision.sum_stagnates");
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->title.text().find("1 of 2 sums of gradients in BF16"), std::string::npos) << finding->title;
}

// A sum that the program keeps from step to step is no gradient of a step, and what it is for nobody knows.
TEST(Updates, OtherSumsThatStagnateAreNoted) {
  SyntheticTrace trace;
  const uint32_t total = trace.add_tensor("", "add", Phase::forward, Role::buffer, DType::bf16);
  for (int step = 0; step < 40; ++step) {
    const bool arrives = step < 20;
    trace.add_sum({.tensor = total, .additions = 1, .counts = {1, 1, arrives ? 0u : 1u, 1, arrives ? 1.0 : 0, 20}});
    trace.end_step();
  }
  const Report report = analyze_updates(trace.read());
  const Finding* finding = find_finding(report, "precision.sum_stagnates");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->severity, Severity::info);
  EXPECT_NE(finding->title.text().find("1 of 1 running sum in BF16"), std::string::npos) << finding->title;
  EXPECT_NE(finding->title.text().find("50% over 40 additions"), std::string::npos) << finding->title;
}

// A moment that stays at 2^-10, and gradients that are 0 from the second step on, or something else.
struct StuckMoment {
  DType dtype = DType::bf16;
  RoundingMode rounding = RoundingMode::nearest_even;
  std::string attributes = "beta2=0.999 eps=1e-08 weight_decay=0";
  int updates = 694;
  double later_gradient = 0;
  enum class Gap { none, skipped, unrecorded } gap = Gap::none;  // behind the 300th update

  Report report() const {
    SyntheticTrace trace;
    TensorInfo of_gradient, of_moment;
    of_gradient.role = Role::weight_gradient;
    of_moment.role = Role::optimizer_state;
    of_gradient.dtype = of_moment.dtype = dtype;
    of_gradient.parameter = of_moment.parameter = "fc.weight";
    of_gradient.shape = of_moment.shape = {2};
    of_moment.slot = 2;
    of_moment.rounding = rounding;
    OpInfo backward{1, 0, "linear_backward_weight", "fc", Phase::backward, "", {}};
    OpInfo update{2, 0, "adam_update", "fc", Phase::optimizer, "", {}};
    update.attributes = attributes;
    const uint32_t gradient = trace.add_output(backward, of_gradient), moment = trace.add_output(update, of_moment);
    trace.sink().add_edge({0, 1, 1, 0, 0});
    for (int step = 0; step < updates; ++step) {
      // The loss scale is in the gradients.
      trace.add(gradient, make_stored_row(std::vector<double>(2, 4 * (step == 0 ? 1 : later_gradient)), dtype, 4));
      trace.add(moment, make_stored_row({0x1p-10, 0x1p-10}, dtype));
      trace.end_step();
      if (step != 300 || gap == Gap::none) continue;
      StepRow without = SyntheticTrace::default_step();
      without.skipped = gap == Gap::skipped;
      trace.end_step(without);
    }
    return analyze_updates(trace.read());
  }
  std::optional<Severity> severity() const {
    const Report made = report();
    const Finding* finding = find_finding(made, "precision.second_moment_stuck");
    return finding ? std::optional(finding->severity) : std::nullopt;
  }
};

// 0.999^-693 = 2.0003: behind so many further updates the moment should be half of what it was.
TEST(Updates, SecondMomentsThatCannotFallAreComparedWithTheirGradients) {
  EXPECT_EQ(StuckMoment().severity(), Severity::warning);
  EXPECT_EQ(StuckMoment{.updates = 693}.severity(), Severity::info);
  const Report report = StuckMoment().report();
  const std::string title = find_finding(report, "precision.second_moment_stuck")->title.text();
  EXPECT_NE(title.find("0.999 v rounds back to v"), std::string::npos) << title;
  EXPECT_NE(title.find("`fc.weight`, 2 times"), std::string::npos) << title;
  // Gradients whose square it is keep it there.
  const Report exact = StuckMoment{.later_gradient = 0x1p-5}.report();
  EXPECT_EQ(find_finding(exact, "precision.second_moment_stuck")->severity, Severity::info);
  EXPECT_NEAR(std::get<double>(find_finding(exact, "precision.second_moment_stuck")->evidence.front().values.front().value), 1,
              1e-12);
  // Decay that is added to the gradient before it is squared is in no row.
  for (const char* decay : {"weight_decay=0.1", "weight_decay=varies", ""})
    EXPECT_EQ((StuckMoment{.attributes = fmt::format("beta2=0.999 {}", decay)}.severity()), Severity::info) << decay;
  // Nor is what the steps did that were not recorded; those that were skipped did nothing.
  EXPECT_EQ(StuckMoment{.gap = StuckMoment::Gap::unrecorded}.severity(), Severity::info);
  EXPECT_EQ(StuckMoment{.gap = StuckMoment::Gap::skipped}.severity(), Severity::warning);
  // An eps that is larger than the roots decides how long updates are.
  EXPECT_EQ((StuckMoment{.attributes = "beta2=0.999 eps=0.1 weight_decay=0"}.severity()), Severity::info);
  EXPECT_EQ((StuckMoment{.attributes = "beta2=0.999 weight_decay=0.1 decoupled=1"}.severity()), Severity::warning);
}

// Below 1 - 2^-8 each number falls, and above 1 - 2^-9 none does: of 1.0 it lies half-way.
TEST(Updates, SecondMomentsThatFallAreNotStuck) {
  EXPECT_EQ((StuckMoment{.attributes = "beta2=0.996 weight_decay=0"}.severity()), std::nullopt);
  EXPECT_EQ((StuckMoment{.attributes = "beta2=0.9985 weight_decay=0"}.severity()), Severity::warning);
  // Between the two many do, and not all: that is told where it does harm.
  EXPECT_EQ((StuckMoment{.attributes = "beta2=0.998 weight_decay=0"}.severity()), Severity::warning);
  EXPECT_EQ((StuckMoment{.attributes = "beta2=0.998 weight_decay=0", .updates = 100}.severity()), std::nullopt);
  EXPECT_EQ((StuckMoment{.dtype = DType::f16}.severity()), std::nullopt);
  EXPECT_EQ((StuckMoment{.dtype = DType::f32}.severity()), std::nullopt);
  EXPECT_EQ((StuckMoment{.rounding = RoundingMode::stochastic}.severity()), std::nullopt);
}

TEST(Updates, LostOnesOfEachParameterArePictured) {
  SyntheticTrace trace;
  const uint32_t none = add_weight(trace, "none", DType::bf16), bad = add_weight(trace, "bad", DType::bf16);
  for (uint64_t step = 0; step < 600; ++step) {
    add(trace, none, {.nonzero = 10, .lost = 0});
    add(trace, bad, {.nonzero = step < 8 ? 0U : 100U, .lost = step < 8 ? 0U : step % 4 == 0 ? 50U : 25U});
    trace.end_step();
  }
  const Report report = analyze_updates(trace.read());
  const auto plot =
      std::find_if(report.plots.begin(), report.plots.end(), [](const Plot& each) { return each.name == "lost_updates"; });
  ASSERT_NE(plot, report.plots.end());
  ASSERT_EQ(plot->series.size(), 2u);
  EXPECT_EQ(plot->series[0].name, "bad.weight") << "the one that lost most first";
  ASSERT_EQ(plot->series[0].y.size(), 150u) << "columns of four steps";
  for (size_t column = 0; column < 150; ++column) {
    EXPECT_EQ(plot->series[1].y[column], 0.0);
    if (column < 2)
      EXPECT_TRUE(std::isnan(plot->series[0].y[column]));
    else
      EXPECT_EQ(plot->series[0].y[column], (50 + 3 * 25) / 400.0);
  }
}

// Of updates with gradients g in every step the second moments are g^2 (1 - beta2^t): corrected they are g^2 in every step. Some
// are of larger gradients, and of some only counts are known.
TEST(Updates, EpsIsComparedWithEachStepsSecondMoments) {
  constexpr double kBeta2 = 0.999;
  for (const double eps : {0.9, 1.1}) {
    for (const int larger : {1, 3}) {
      SyntheticTrace trace;
      const OpInfo update{1, 0, "adam_update", "fc", Phase::optimizer, fmt::format("beta2={} eps={}", kBeta2, eps), {}};
      TensorInfo squares;
      squares.slot = 2;
      squares.role = Role::optimizer_state;
      squares.parameter = "fc.weight";
      const uint32_t moments = trace.add_output(update, squares);
      for (int t = 1; t <= 20; ++t) {
        const std::vector<double> values(10, (t <= larger ? 4 : 1) * (1 - std::pow(kBeta2, t)));
        trace.add(moments, t == 10 ? make_health_row(values, DType::f32) : make_row(values, DType::f32));
        trace.end_step();
      }
      const Report report = analyze_updates(trace.read());
      const Finding* finding = find_finding(report, "updates.damped_by_epsilon");
      ASSERT_EQ(finding != nullptr, eps > 1 && larger == 1) << eps;
      if (finding) {
        EXPECT_NEAR(lower(finding->evidence[0].values[0].value), eps, 1e-6);
        EXPECT_NE(finding->title.front().text().find("for 10 of 10 elements:"), std::string::npos) << finding->title;
        EXPECT_EQ(finding->title.from(1), "This holds in 18 of 19 recorded updates of their parameters.");
      }
    }
  }
}

}  // namespace
}  // namespace ulpscope::analyzers_test
