// The losses of a run, and what is said of them.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>

#include "report_access.h"
#include "synthetic_trace.h"
#include "ulpscope/analyzers/judgements/loss_ends.h"
#include "ulpscope/analyzers/report/text.h"
#include "ulpscope/analyzers/subject/trend.h"
#include "ulpscope/analyzers/verbs/all_findings.h"
#include "ulpscope/analyzers/verbs/compare.h"
#include "ulpscope/analyzers/verbs/scale.h"

namespace ulpscope::analyzers_test {
namespace {

using ::testing::HasSubstr;

// By all orders in which seven values can stand: U has the mean and the variance that the deviations are of.
TEST(RankSum, StandsWhereChanceWouldPutIt) {
  double sum = 0, squares = 0;
  int orders = 0;
  std::vector<bool> is_later{false, false, false, true, true, true, true};
  std::vector<double> all;
  do {
    std::vector<double> earlier, later;
    int u = 0;
    for (int i = 0; i < 7; ++i) {
      (is_later[i] ? later : earlier).push_back(std::ldexp(1.0, i));  // only the order counts
      if (!is_later[i]) continue;
      for (int j = 0; j < i; ++j) u += !is_later[j];
    }
    sum += u;
    squares += u * u;
    ++orders;
    all.push_back(rank_sum_deviations(earlier, later));
  } while (std::next_permutation(is_later.begin(), is_later.end()));
  ASSERT_EQ(orders, 35);
  const double mean = sum / orders, deviation = std::sqrt(squares / orders - mean * mean);
  // The last order has all later ones first: U = 0; the first has them last: U = 12.
  EXPECT_NEAR(all.front(), (12 - mean) / deviation, 1e-12);
  EXPECT_NEAR(all.back(), (0 - mean) / deviation, 1e-12);
}

TEST(RankSum, EqualValuesCountHalfAndNanIsInfinite) {
  EXPECT_EQ(rank_sum_deviations(std::vector<double>{1, 1}, std::vector<double>{1, 1}), 0);
  EXPECT_GT(rank_sum_deviations(std::vector<double>{1, 2, 3}, std::vector<double>{NAN, NAN, 4}), 0);
}

// A producer that has no losses in its step table.
class LossesOfTensors : public ::testing::Test {
 protected:
  LossesOfTensors() {
    for (const DType dtype : {DType::f32, DType::f16})
      tensors_.push_back(trace_.add_tensor("", "mse_" + std::to_string(tensors_.size()), Phase::forward, Role::loss, dtype));
  }
  static RunInfo run() {
    RunInfo run;
    run.run_id = "0123456789abcdef0123456789abcdef";
    run.producer = "torch";
    run.precision = "fp16";
    return run;
  }
  static StepRow without_loss() {
    StepRow row;
    row.scale_before = row.scale_after = 1;
    row.level = RecordLevel::stats;
    return row;
  }
  void add(double value, double scale = 1, uint32_t micro_batch = 0, uint8_t loss_index = 0, size_t tensor = 0) {
    TensorRow row = make_stored_row({value}, tensor == 0 ? DType::f32 : DType::f16, scale);
    row.micro_batch = micro_batch;
    row.loss_index = loss_index;
    trace_.add(tensors_[tensor], row);
  }
  std::vector<double> losses() {
    std::vector<double> all;
    for (const StepLoss& loss : known_losses(trace_.read(), {})) all.push_back(loss.loss);
    return all;
  }
  SyntheticTrace trace_{run()};
  std::vector<uint32_t> tensors_;
};

TEST_F(LossesOfTensors, AreThoseOfTheirStepsWithoutTheLossScale) {
  add(3 * 1024.0, 1024);
  trace_.end_step(without_loss());
  // Micro-batches are averaged, losses added up, and the scaled one, which FP16 cannot hold, is not asked beside the other.
  add(4);
  add(INFINITY, 65536, 0, 0, 1);
  add(0.5, 1, 0, 1);
  add(6, 1, 1);
  trace_.end_step(without_loss());
  // The last one computed in a pass is what the earlier ones were added up to.
  add(1);
  add(5);
  trace_.end_step(without_loss());
  trace_.end_step(without_loss());
  add(7);
  trace_.end_step(SyntheticTrace::default_step(8));
  EXPECT_EQ(losses(), (std::vector<double>{3, (4 + 0.5 + 6) / 2, 5, 8}));
}

TEST_F(LossesOfTensors, AreNoneOfEvaluationOrOfManyElements) {
  const uint32_t evaluated = trace_.add_tensor("", "mse", Phase::evaluation, Role::loss, DType::f32);
  const uint32_t gradient = trace_.add_tensor("", "seed", Phase::backward, Role::loss, DType::f32);
  for (const uint32_t tensor : {evaluated, gradient}) trace_.add(tensor, make_stored_row({2}, DType::f32));
  trace_.add(tensors_[0], make_stored_row({1, 3}, DType::f32));
  trace_.end_step(without_loss());
  trace_.add(tensors_[0], make_health_row({2}, DType::f32));
  trace_.end_step(without_loss());
  trace_.add(tensors_[0], make_health_row({-INFINITY}, DType::f32));
  trace_.end_step(without_loss());
  EXPECT_EQ(losses(), (std::vector<double>{-INFINITY}));
}

TEST_F(LossesOfTensors, ThatEndInNanBreakTheRun) {
  for (int step = 0; step < 6; ++step) {
    add(step < 4 ? 2.0 : NAN);
    trace_.end_step(without_loss());
  }
  const Snapshot trace = trace_.read();
  const Report report = analyze_all(trace, {});
  EXPECT_EQ(report.verdict, Verdict::broken) << report.verdict_text;
  const Finding* nan = find_finding(report, "run.loss_nonfinite");
  ASSERT_NE(nan, nullptr);
  EXPECT_THAT(nan->title.text(), HasSubstr("in 2 of 6 steps (first: step 4)"));
  EXPECT_EQ(analyze_compare(trace, trace, {}).verdict, Verdict::broken);
}

// As a step that an exception ended.
TEST_F(LossesOfTensors, ThatAreNotKnownAtTheEndAreNoRecovery) {
  for (const double loss : {2.0, 1.0, static_cast<double>(NAN)}) {
    add(loss);
    trace_.end_step(without_loss());
  }
  trace_.end_step(without_loss());
  const Report report = analyze_all(trace_.read(), {});
  EXPECT_EQ(report.verdict, Verdict::broken) << report.verdict_text;
  const Finding* nan = find_finding(report, "run.loss_nonfinite");
  ASSERT_NE(nan, nullptr);
  EXPECT_EQ(nan->title.text(), "The loss was NaN or Inf in 1 of 4 steps (first: step 2).");
}

TEST_F(LossesOfTensors, AreNotKnownWhereNothingTellsThem) {
  const uint32_t hidden = trace_.add_tensor("0", "linear", Phase::forward, Role::activation, DType::f32);
  for (int step = 0; step < 3; ++step) {
    trace_.add(hidden, make_stored_row({1}, DType::f32));
    trace_.end_step(without_loss());
  }
  const Snapshot trace = trace_.read();
  const Report report = analyze_all(trace, {});
  EXPECT_EQ(report.verdict, Verdict::ok);
  EXPECT_EQ(report.verdict_text, "no numerical problem in 3 steps.");
  EXPECT_THAT(report.checked.text(), HasSubstr("Not checked: the loss (the trace has none)"));
  EXPECT_EQ(analyze_scale(trace, {}).verdict, Verdict::ok);
  EXPECT_EQ(analyze_compare(trace, trace, {}).verdict, Verdict::ok);
}

Report report_of(const std::function<double(size_t)>& loss, size_t steps) {
  SyntheticTrace trace;
  for (size_t step = 0; step < steps; ++step) trace.end_step(SyntheticTrace::default_step(loss(step)));
  return analyze_all(trace.read(), {});
}
bool is_said_to_rise(const std::function<double(size_t)>& loss, size_t steps) {
  return find_finding(report_of(loss, steps), "run.loss_rose") != nullptr;
}
// From -1 to 1.
double noise(size_t step) {
  std::minstd_rand random(static_cast<uint32_t>(7 * step + 1));
  random.discard(3);
  return 2.0 * static_cast<double>(random() % 1001) / 1000 - 1;
}

TEST(LossRose, ComesDownAndGoesUp) {
  const auto valley = [](size_t step) { return step < 60 ? 2.0 - 0.02 * step : 0.8 + 0.01 * (step - 60.0); };
  EXPECT_TRUE(is_said_to_rise(valley, 140));
  EXPECT_FALSE(is_said_to_rise(valley, 60));
  // Two odd batches in the best part hide nothing.
  EXPECT_TRUE(is_said_to_rise([&](size_t step) { return step == 52 || step == 57 ? 3.0 : valley(step); }, 140));
}

TEST(LossRose, BehindAFirstLossThatWasHuge) {
  const auto loss = [](size_t step) {
    return step < 20 ? 1e4 * std::exp(-0.5 * step) : step < 60 ? 0.01 : 1.0 + 0.1 * noise(step);
  };
  EXPECT_TRUE(is_said_to_rise(loss, 120));
  // What is left of a loss that came down by five powers of ten may double.
  EXPECT_FALSE(is_said_to_rise([](size_t step) { return step < 20 ? 100.0 : step < 60 ? 1e-3 : 2e-3; }, 120));
}

TEST(LossRose, InARunThatHadComeDownBefore) {
  EXPECT_TRUE(is_said_to_rise([](size_t step) { return 0.5 + (step < 40 ? 0 : 0.2) + 0.02 * noise(step); }, 120));
  // By less than a twentieth.
  EXPECT_FALSE(is_said_to_rise([](size_t step) { return 0.5 + (step < 40 ? 0 : 0.02) + 0.001 * noise(step); }, 120));
}

// The lowest of many parts of a loss that only varies is below its end, and says nothing.
TEST(LossRose, NoiseIsNone) {
  for (size_t seed = 0; seed < 40; ++seed) {
    std::mt19937 random(static_cast<uint32_t>(seed));
    std::lognormal_distribution<double> distribution(0, 1);
    std::vector<double> losses(2000);
    for (double& loss : losses) loss = distribution(random);
    losses[0] = 1.2;
    EXPECT_FALSE(is_said_to_rise([&](size_t step) { return losses[step]; }, losses.size())) << seed;
  }
}

TEST(LossStayed, InARunFromItsStart) {
  const auto is_said_to_stay = [](const std::function<double(size_t)>& loss, size_t steps) {
    return find_finding(report_of(loss, steps), "run.loss_stayed") != nullptr;
  };
  EXPECT_TRUE(is_said_to_stay([](size_t) { return 1.0; }, 40));
  EXPECT_FALSE(is_said_to_stay([](size_t) { return 1.0; }, 39));
  EXPECT_FALSE(is_said_to_stay([](size_t step) { return 1.0 - 0.001 * step; }, 40));
}

// Of two models that work against each other, each updated by a backward pass of its own.
TEST(LossStayed, SaysNothingOfModelsInTurns) {
  for (const bool in_turns : {false, true}) {
    SyntheticTrace trace;
    const uint32_t first = trace.add_tensor("d", "matmul_d", Phase::backward, Role::weight_gradient, DType::f32, "d.weight");
    const uint32_t first_weight = trace.add_tensor("d", "adam_update", Phase::optimizer, Role::weight, DType::f32, "d.weight");
    const uint32_t second = trace.add_tensor("g", "matmul_g", Phase::backward, Role::weight_gradient, DType::f32, "g.weight");
    const uint32_t second_weight = trace.add_tensor("g", "adam_update", Phase::optimizer, Role::weight, DType::f32, "g.weight");
    for (int step = 0; step < 60; ++step) {
      for (const uint32_t tensor : in_turns ? std::vector{first, first_weight, second, second_weight}
                                            : std::vector{first, second, first_weight, second_weight})
        trace.add(tensor, make_stored_row({1}, DType::f32));
      trace.end_step(SyntheticTrace::default_step(1.0 + 0.1 * step));
    }
    const Report report = analyze_all(trace.read(), {});
    EXPECT_EQ(report.verdict == Verdict::ok, in_turns) << report.verdict_text;
  }
}

// Too few for anything but that each of the last ones is far above each of the first.
TEST(Diverged, InARunOfAFewSteps) {
  const auto is_said_to_diverge = [](const std::vector<double>& losses) {
    return find_finding(report_of([&](size_t step) { return losses[step]; }, losses.size()), "run.diverged") != nullptr;
  };
  EXPECT_TRUE(is_said_to_diverge({1, 1, 1.2, 4, 5, 7}));
  EXPECT_FALSE(is_said_to_diverge({1, 1, 1.2, 3.5, 5, 7}));
  EXPECT_FALSE(is_said_to_diverge({1, 1, 4, 5}));
}

// Most losses are near zero, so that no median tells, and others far above the first one.
TEST(Diverged, ByLossesThatScatter) {
  const auto title = [](size_t from, size_t every, size_t until = SIZE_MAX) {
    const auto loss = [&](size_t step) {
      return step >= from && step < until && step % every == 0 ? 30.0 + step : step == 0 ? 2.0 : 0;
    };
    const Report report = report_of(loss, 100);
    const Finding* const found = find_finding(report, "run.diverged");
    return found ? found->title.text() : std::string();
  };
  EXPECT_EQ(title(30, 5),
            "The run diverged: 10 of the last 50 losses exceed 10x the first (2), and the highest is 125 (step 95). No step that "
            "was taken held NaN or Inf.");
  EXPECT_EQ(title(30, 20), "");     // a few batches
  EXPECT_EQ(title(5, 5), "");       // batches that are so from the start
  EXPECT_EQ(title(30, 5, 90), "");  // it came back
}

// A run of these losses, in which each update is `ratio` times as long as the weight.
Report report_of_updates(const std::vector<double>& losses, double ratio) {
  SyntheticTrace trace;
  TensorInfo weight;
  weight.role = Role::weight;
  weight.dtype = DType::f32;
  weight.parameter = "a.weight";
  weight.shape = {4, 4};
  const uint32_t tensor = trace.add_output({7, 0, "sgd_update", "a", Phase::optimizer, "", {}}, weight);
  for (uint64_t step = 0; step < losses.size(); ++step) {
    trace.sink().add_parameter({.step = step, .tensor = tensor, .weight_norm = 2, .update_norm = 2 * ratio, .nonzero = 16});
    trace.end_step(SyntheticTrace::default_step(losses[step]));
  }
  return analyze_all(trace.read());
}

// Losses that rise by less, where updates are a large part of the weights.
TEST(Diverged, InARunOfAFewStepsByItsUpdates) {
  const auto severity = [](const std::vector<double>& losses, double ratio) {
    const Report report = report_of_updates(losses, ratio);
    const Finding* const finding = find_finding(report, "run.diverged");
    if (finding == nullptr) return std::optional<Severity>();
    EXPECT_THAT(finding->title, HasSubstr(fmt::format("{:.4g}x the ", ratio)));
    return std::optional(finding->severity);
  };
  EXPECT_EQ(severity({1, 1.1, 1.2, 1.3, 1.5, 1.4}, 0.5), Severity::warning);
  EXPECT_EQ(severity({1, 1.1, 1.2, 1.3, 1.5, 1.4}, 0.2), std::nullopt);  // as of healthy runs
  EXPECT_EQ(severity({1, 1.1, 1.2, 0.9, 1.5, 1.4}, 0.5), std::nullopt);  // it was better on the way
  // The first update threw it up, from where it comes down.
  EXPECT_EQ(severity({1.6, 10, 9.1, 9.3, 5.2, 4.6, 3.1, 3.1, 2.2, 3.7, 2.5, 2.1}, 8), Severity::warning);  // it cost steps
  EXPECT_EQ(severity({1.6, 3.1, 3.0, 2.2, 1.1, 1.0, 1.1}, 8), std::nullopt);
  EXPECT_EQ(severity({1.6, 10, 9.1, 9.3, 8.2, 9.6, 8.1, 9.1, 8.2, 7.7, 8.5, 6.1}, 8), Severity::warning);
  EXPECT_EQ(severity({1.6, 10, 9.1, 9.3, 5.2, 4.6, 3.1, 3.1, 2.2, 3.7, 2.5, 2.1}, 0.5), std::nullopt);
  EXPECT_EQ(severity({1, 1.1, 1.2, 1.3, 1.5}, 0.5), std::nullopt);            // too few
  EXPECT_EQ(severity({1, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3}, 0.5), std::nullopt);  // it trains
}

// The first loss is what the others are compared with, and none of them.
TEST(Diverged, TheFirstLossIsNotAmongThoseItIsComparedWith) {
  const auto told = [](const std::vector<double>& losses) {
    const Report report = report_of_updates(losses, 10);
    const Finding* const finding = find_finding(report, "run.diverged");
    return finding == nullptr ? std::string() : finding->title.text();
  };
  EXPECT_THAT(told({2, 1000, NAN, NAN}),
              HasSubstr("Then the loss rose from 2 (step 0) to 1,000, and was NaN or Inf from step 2 on."));
  EXPECT_THAT(told({2, 1000, 3000, 2000, NAN}),
              HasSubstr("from 2 (step 0) to a median of 2,000 over 3 steps, and was NaN or Inf from step 4 on."));
  EXPECT_THAT(told({2, 3, 4, 5, 6, 7, 8, 9, 10, 11}), HasSubstr("from 2 (step 0) to 7, the median of its last 9 values"));
}

// Test losses after steps 19, 39 and 59; the loss of training falls from 2 by `fall` a step.
TEST(Overfits, WhereTheTestLossRoseWhileThatOfTrainingFell) {
  const auto title = [](const std::vector<double>& test_losses, double fall) {
    SyntheticTrace trace;
    for (size_t step = 0; step < 60; ++step) {
      if (step % 20 == 19) trace.add_event(EventKind::metric, -1, 0, test_losses[step / 20], "test_loss");
      trace.end_step(SyntheticTrace::default_step(2 - fall * static_cast<double>(step)));
    }
    const Report report = analyze_all(trace.read());
    const Finding* const finding = find_finding(report, "run.overfits");
    if (finding == nullptr) return std::string();
    EXPECT_EQ(finding->severity, Severity::info);
    return finding->title.text();
  };
  // The medians of steps 20 to 39 and of 40 to 59 are those of steps 29.5 and 49.5.
  EXPECT_EQ(
      title({1.2, 1, 1.6}, 0.01),
      "The run overfits: its test loss rose from 1 (step 39) to 1.6 (step 59). Meanwhile its training loss fell from 1.705 to "
      "1.505.");
  EXPECT_EQ(title({1.2, 1, 1.4}, 0.01), "");   // little
  EXPECT_EQ(title({1.2, 1, 1.6}, -0.01), "");  // both rose
  EXPECT_EQ(title({1.6, 1.2, 1}, 0.01), "");   // lowest at the end
}

// Squared errors of a model that gives a constant, and of one that does not.
// A model whose loss is the mean of squared errors; returns its targets, to which rows are added.
// `casts`: to a narrow type of the targets before it, and of the loss behind it.
uint32_t add_regression(SyntheticTrace& trace, bool casts = false) {
  TensorInfo output, target, loss;
  target.role = Role::input;
  target.name = "targets";
  loss.role = Role::loss;
  OpInfo source{1, 0, "source", "", Phase::data, "", {}};
  source.kind = OpKind::source;
  const uint32_t targets = trace.add_output(source, target);
  trace.add_output({2, 0, "linear", "head", Phase::forward, "", {}}, output);
  OpInfo mse{3, 0, "mse", "", Phase::loss, "", {}};
  mse.kind = OpKind::loss;
  mse.function = OpFunction::mse;
  trace.add_output(mse, loss);
  trace.sink().add_edge({0, 2, 0, 1, 0});
  trace.sink().add_edge({0, 2, 1, casts ? 3u : 0u, 0});
  if (!casts) return targets;
  trace.add_output({4, 0, "cast", "", Phase::loss, "", {}}, {});
  trace.add_output({5, 0, "cast", "", Phase::loss, "", {}}, {});
  trace.sink().add_edge({0, 3, 0, 0, 0});
  trace.sink().add_edge({0, 4, 0, 2, 0});
  return targets;
}

TEST(Guessing, TheMeanOfTheTargetsIsWhatARegressionIsComparedWith) {
  for (const double kept : {1.0, 0.9, 3.0}) {
    SyntheticTrace trace;
    const uint32_t targets = add_regression(trace, kept == 1);
    for (int step = 0; step < 60; ++step) {
      const double spread = step % 2 == 0 ? 1 : 3;  // around 2: the mean costs 1 and 9
      trace.add(targets, make_row({2 - spread, 2 + spread}, DType::f32));
      trace.end_step(SyntheticTrace::default_step(kept * spread * spread));
    }
    const Report report = analyze_all(trace.read(), {});
    const Finding* const found = find_finding(report, "run.no_better_than_guessing");
    ASSERT_EQ(found != nullptr, kept >= 1) << kept;
    if (!found) continue;
    EXPECT_EQ(
        found->title,
        fmt::format("The run {} than guessing: its mean loss over the last 50 steps is {}, and predicting the mean target (2) "
                    "costs 5.",
                    kept > 1 ? "ended worse" : "is no better", 5 * kept));
  }
}

// A run of a classifier among 8 classes, whose loss of guessing is 2.079.
class Classification {
 public:
  explicit Classification(const char* attributes = "") {
    TensorInfo inputs, logits, loss;
    inputs.role = Role::input;
    inputs.name = "inputs";
    logits.shape = {32, 8};
    loss.role = Role::loss;
    OpInfo source{1, 0, "source", "", Phase::data, "", {}};
    source.kind = OpKind::source;
    inputs_ = trace.add_output(source, inputs);
    trace.add_output({2, 0, "linear", "head", Phase::forward, "", {}}, logits);
    trace.add_output({3, 0, "cross_entropy", "", Phase::loss, attributes, {}}, loss);
    trace.sink().add_edge({0, 2, 0, 1, 0});
    trace.sink().add_edge({0, 1, 0, 0, 0});
  }
  void step(double loss, const std::vector<double>& inputs = {-1, 1}) {
    trace.add(inputs_, make_row(inputs, DType::f32));
    trace.end_step(SyntheticTrace::default_step(loss));
  }
  // With the title's identifiers first, and nothing where nothing is said.
  std::string told() {
    const Report report = analyze_all(trace.read());
    const Finding* const found = find_finding(report, "run.no_better_than_guessing");
    if (found == nullptr) return "";
    suggestion = found->suggestion.text();
    title = found->title.text();
    return fmt::format("{} {}", found->severity == Severity::error ? "error" : "info", found->title.front().id());
  }

  SyntheticTrace trace;
  std::string title, suggestion;

 private:
  uint32_t inputs_;
};

TEST(Guessing, AShortRunWhoseLossStillFallsHasNotFailed) {
  struct Case {
    int steps;
    double fall;  // of the loss in a step; batches differ by 0.02
    const char* told;
  };
  for (const Case& each :
       {Case{60, 0.004, "info run.no_better_than_guessing.yet"}, Case{60, 0, "error run.no_better_than_guessing"},
        Case{240, 0.001, "error run.no_better_than_guessing"}}) {
    Classification run;
    for (int step = 0; step < each.steps; ++step)
      run.step(2.08 + each.fall * static_cast<double>(each.steps - step) + 0.02 * (step % 2));
    EXPECT_EQ(run.told(), each.told) << each.steps << " " << each.fall;
  }
}

TEST(Guessing, InputsThatAreFarFrom1AreNamed) {
  for (const auto& [size, is_named] : {std::pair{100.0, true}, {0.01, true}, {10.0, false}, {0.2, false}}) {
    Classification run;
    for (int step = 0; step < 40; ++step) run.step(3, {-size, size, 0, 0});
    EXPECT_EQ(run.told(), "error run.no_better_than_guessing");
    // The variance of -s, s, 0 and 0 is s^2 / 2.
    const std::string named =
        fmt::format("Normalize the inputs: `inputs` has mean 0 and standard deviation {:.3g}.", size / std::sqrt(2));
    EXPECT_EQ(run.suggestion, fmt::format("{}Check the learning rate and its schedule.", is_named ? named + " " : ""));
  }
}

TEST(Guessing, InputsThatAreAllOneNumberAreNamed) {
  Classification run;
  for (int step = 0; step < 40; ++step) run.step(3, {0.7, 0.7, 0.7});
  EXPECT_EQ(run.told(), "error run.no_better_than_guessing");
  EXPECT_EQ(run.suggestion, "Check the data: every element of `inputs` is 0.7, so that samples look alike.");
}

// With 0.99 of the share spread over all 8 classes the target is 0.01125 more likely than the others, and knowing it lowers the
// loss by 0.0003.
TEST(Guessing, LabelsThatAreSmoothedFarAreTheCause) {
  Classification run("label_smoothing=0.99");
  for (int step = 0; step < 40; ++step) run.step(std::log(8) + 1e-4 * (step % 3 - 1));
  EXPECT_EQ(run.told(), "error run.no_better_than_guessing.hardly_better");
  double least = 0;
  for (int i = 0; i < 8; ++i) {
    const double share = 0.99 / 8 + (i == 0 ? 0.01 : 0);
    least -= share * std::log(share);
  }
  EXPECT_THAT(run.title, HasSubstr(fmt::format("has a loss of {:.6g}; guessing has {:.6g}.", least, std::log(8))));
  EXPECT_EQ(run.suggestion, "Lower the label smoothing.");
}

TEST(Guessing, ClippingThatShortensUpdatesIsNamed) {
  for (const auto& [rule, is_named] : {std::pair{"sgd_update", true}, {"adam_update", false}}) {
    Classification run;
    TensorInfo weight;
    weight.role = Role::weight;
    run.trace.add_output({4, 0, rule, "head", Phase::optimizer, "", {}}, weight);
    TensorInfo clipped;
    clipped.role = Role::unscaled_gradient;
    run.trace.add_output({5, 0, "clip_norm", "head", Phase::scaling, "", {}}, clipped);
    for (int step = 0; step < 40; ++step) {
      StepRow row = SyntheticTrace::default_step(2.08);
      row.norm_known = true;
      row.gradient_norm = 0.5 + 0.1 * (step % 3);
      row.clipped_gradient_norm = 0.025;
      run.trace.end_step(row);
    }
    EXPECT_EQ(run.told(), "error run.no_better_than_guessing");
    EXPECT_EQ(run.suggestion ==
                  "Clip to a larger norm: gradient norms are 0.5 to 0.7, and clipping makes SGD's updates at least 20x shorter.",
              is_named)
        << run.suggestion;
  }
}

// Targets of three steps decide the mean of all, and what giving it costs.
TEST(Guessing, AFewTargetsFarAwayDecideNothing) {
  for (const bool has_learned : {true, false}) {
    SyntheticTrace trace;
    const uint32_t targets = add_regression(trace);
    for (int step = 0; step < 60; ++step) {
      const bool is_far = step % 20 == 19;
      trace.add(targets, make_row(is_far ? std::vector<double>{1, 1e5} : std::vector<double>{1, 3}, DType::f32));
      trace.end_step(SyntheticTrace::default_step(is_far ? 5e9 : has_learned ? 0.1 : 1));
    }
    EXPECT_EQ(find_finding(analyze_all(trace.read(), {}), "run.no_better_than_guessing") == nullptr, has_learned);
  }
}

// A run that is well all the same does not say that nothing was wrong.
TEST(Losses, OneThatWasNanAndSkippedIsInTheVerdict) {
  const auto verdict_of = [](uint64_t nonfinite) {
    SyntheticTrace trace;
    for (uint64_t step = 0; step < 20; ++step) {
      StepRow row = SyntheticTrace::default_step(step == nonfinite ? NAN : 3 - 0.1 * static_cast<double>(step));
      row.skipped = step == nonfinite;
      trace.end_step(row);
    }
    const Report report = analyze_all(trace.read(), {});
    EXPECT_EQ(report.verdict, Verdict::ok);
    return report.verdict_text.text();
  };
  EXPECT_THAT(verdict_of(20), HasSubstr("no numerical problem in"));
  EXPECT_THAT(verdict_of(7), HasSubstr("no lasting numerical problem in"));
  EXPECT_THAT(verdict_of(7), HasSubstr("1 skipped, but the loss was NaN or Inf in 1 step (first: step 7)."));
}

// Losses of which most are not known were not all checked, and what is not known is no fact.
TEST(Losses, ThoseThatAreNotKnownAreCounted) {
  SyntheticTrace trace;
  for (uint64_t step = 0; step < 20; ++step) {
    StepRow row = SyntheticTrace::default_step(1);
    row.loss_known = step == 7;
    trace.end_step(row);
  }
  const std::string page = render_text(analyze_all(trace.read(), {}), {});
  EXPECT_THAT(page, HasSubstr("Not checked: the loss of 19 of 20 steps (not known)"));
  EXPECT_EQ(page.find("loss ?"), std::string::npos) << page;
  EXPECT_EQ(page.find("Run      -"), std::string::npos) << page;
}

TEST(Losses, ARunWithoutStepsIsBroken) {
  SyntheticTrace trace;
  const Report report = analyze_all(trace.read(), {});
  EXPECT_EQ(report.verdict, Verdict::broken);
  EXPECT_EQ(report.verdict_text, "No step was recorded: the trace tells nothing of the run.");
  EXPECT_EQ(report.checked.text(), "nothing.");
  SyntheticTrace other;
  other.end_step();
  EXPECT_EQ(find_finding(analyze_all(other.read(), {}), "run.no_steps"), nullptr);
}

}  // namespace
}  // namespace ulpscope::analyzers_test
