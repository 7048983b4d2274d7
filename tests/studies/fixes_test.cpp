// What counts as a failure and as a fix, on runs whose faults were built in.
#include "ulpscope/studies/fixes.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>

#include "tests/support/project_files.h"
#include "tests/support/said.h"
#include "tests/support/temporary_folder.h"
#include "ulpscope/base/error.h"
#include "ulpscope/kernels/cpu_in_use.h"
#include "ulpscope/studies/nan_trials.h"
#include "ulpscope/studies/trial_report.h"

namespace ulpscope {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(FailureWatch, AFailureLastsToTheEnd) {
  const auto failure = [](const std::vector<std::pair<double, bool>>& steps, bool finite = true) {
    FailureWatch watch;
    for (size_t i = 0; i < steps.size(); ++i) watch.add(100 + i, steps[i].first, steps[i].second);
    return watch.failure(finite);
  };
  EXPECT_FALSE(failure({{1, false}, {NAN, false}, {1, false}}));
  const auto lost = failure({{1, false}, {NAN, false}, {INFINITY, true}});
  ASSERT_TRUE(lost);
  EXPECT_EQ(lost->way, RunFailure::Way::loss);
  EXPECT_EQ(lost->step, 101u);
  EXPECT_FALSE(failure(std::vector<std::pair<double, bool>>(FailureWatch::kSkipped - 1, {1, true})));
  std::vector<std::pair<double, bool>> stuck(FailureWatch::kSkipped, {1, true});
  stuck.insert(stuck.begin(), {1, false});
  const auto skipped = failure(stuck);
  ASSERT_TRUE(skipped);
  EXPECT_EQ(skipped->way, RunFailure::Way::skipped);
  EXPECT_EQ(skipped->step, 101u);
  EXPECT_EQ(failure({{1, false}}, false)->way, RunFailure::Way::weights);
  // What goes on behind it loses the loss as well.
  const RunFailure weights{RunFailure::Way::weights, 7}, loss{RunFailure::Way::loss, 9}, before{RunFailure::Way::loss, 7};
  EXPECT_TRUE(weights.is_like(weights));
  EXPECT_TRUE(loss.is_like(weights));
  EXPECT_FALSE(before.is_like(weights));
  EXPECT_FALSE(weights.is_like(loss));
}

TEST(FailureWatch, StepsAreSkippedAtTheEnd) {
  const auto skipped = [](const std::string& steps) {  // 's': skipped
    FailureWatch watch;
    for (size_t i = 0; i < steps.size(); ++i) watch.add(i, 1, steps[i] == 's');
    return watch.skipped_at_end();
  };
  const auto times = [](size_t n, const std::string& text) {
    std::string all;
    while (n-- > 0) all += text;
    return all;
  };
  EXPECT_EQ(skipped(times(30, ".") + times(9, "s")), 0u) << "a scale that comes down";
  EXPECT_EQ(skipped(times(30, ".") + times(10, "s")), 10u);
  EXPECT_EQ(skipped(times(30, "s.")), 10u);
  EXPECT_EQ(skipped(times(30, ".") + times(10, "s") + times(11, ".")), 0u) << "it came down";
  EXPECT_EQ(skipped(times(18, "s") + "."), 0u) << "a search from far too high";
  EXPECT_EQ(skipped(times(5, "s") + "." + times(12, "s")), 12u);
}

// What is wrong with it, `tables` and the `layers` behind its own say.
Experiment fixed_experiment(const std::string& precision, const std::string& tables = "", const std::string& layers = "") {
  return parse_experiment("precision = \"" + precision + R"("
seed = 3
[data]
kind = "random_classification"
shape = [16]
train_size = 256
test_size = 32
[model]
layers = [
  { type = "linear", name = "first", out_features = 32 },
  { type = "relu" },
  { type = "linear", name = "head", out_features = 10 },
)" + layers + R"(]
[training]
batch_size = 32
steps = 60
)" + tables,
                          "test");
}

const FixTrial* find(const FixStudy& study, const std::string& begin) {
  const auto found = std::find_if(study.trials.begin(), study.trials.end(),
                                  [&](const FixTrial& trial) { return trial.fix.text().find(begin) == 0; });
  return found == study.trials.end() ? nullptr : &*found;
}

FixStudy study_of(const Experiment& fixed_experiment, const RunFailure& failure) {
  Trial start;
  start.experiment = fixed_experiment;
  return try_fixes(start, failure, "head", {.budget = 1e9});
}

TEST(Fixes, AFixedScaleTooLargeIsMendedByADynamicOneAndByBf16) {
  const Experiment run =
      fixed_experiment("fp16", "[scaler]\ninitial = \"2^24\"\ndynamic = false\n[optimizer]\nlearning_rate = 0.01\n");
  const FixStudy study = study_of(run, {RunFailure::Way::skipped, 0});
  ASSERT_TRUE(study.fails_again);
  EXPECT_EQ(study.reference.name, "FP32");
  EXPECT_LT(study.reference.end, study.reference.start);
  const FixTrial* const dynamic = find(study, "dynamic loss scale");
  const FixTrial* const bf16 = find(study, "BF16");
  const FixTrial* const rate = find(study, "learning rate / 10:");
  ASSERT_TRUE(dynamic && bf16 && rate);
  EXPECT_EQ(bf16->result, FixResult::verified);
  EXPECT_LE(*bf16->end_loss, study.reference.bound());
  EXPECT_EQ(rate->result, FixResult::fails);
  EXPECT_EQ(dynamic->result, FixResult::verified);
}

TEST(Fixes, NoFormatMendsALearningRate) {
  const Experiment run = fixed_experiment("fp16", "[optimizer]\ntype = \"sgd\"\nlearning_rate = 50\n");
  // What it fails in is found by running it: this is about what is tried.
  FailureWatch watch;
  Trial again;
  again.experiment = run;
  again.steps = 60;
  again.goes_on = [&](const StepResult& step) {
    watch.add(step.step, step.loss, step.skipped);
    return true;
  };
  ulpscope::run(again);
  const auto failure = watch.failure();
  ASSERT_TRUE(failure);
  const FixStudy study = study_of(run, *failure);
  ASSERT_TRUE(study.fails_again);
  EXPECT_THAT(study.reference.name, HasSubstr("learning rate"));
  for (const FixTrial& trial : study.trials)
    EXPECT_FALSE(is_format(trial.fix.what) && trial.result == FixResult::verified) << trial.fix.text();
  const bool rate_helps = std::any_of(study.trials.begin(), study.trials.end(), [](const FixTrial& trial) {
    return trial.result == FixResult::verified && trial.fix.text().find("learning rate") != std::string::npos;
  });
  EXPECT_TRUE(rate_helps);
}

// The loss falls at first, as in the reference; then probabilities become zero and steps are skipped.
TEST(Fixes, WhatSkipsItsLastStepsIsNoFix) {
  const Experiment run = fixed_experiment("fp16", "[loss]\nfunction = \"nll\"\n[optimizer]\nlearning_rate = 3\n", R"(
  { type = "softmax", dtype = "fp16" },
  { type = "log" },
)");
  const FixStudy study = study_of(run, {RunFailure::Way::loss, 1});
  ASSERT_TRUE(study.fails_again);
  const FixTrial* const slower = find(study, "learning rate / 100:");
  ASSERT_TRUE(slower && slower->end_loss);
  EXPECT_TRUE(study.reference.is_reached_by(*slower->end_loss)) << "its loss alone would make it one";
  EXPECT_EQ(slower->result, FixResult::skips_steps);
  unsigned skipped = 0;
  Trial again;
  again.experiment = slower->fix.experiment;
  again.steps = study.steps;
  for (const TrialStep& step : ulpscope::run(again).steps) skipped += step.result.step + 20 >= study.steps && step.result.skipped;
  EXPECT_EQ(slower->skipped_at_end, skipped);
  EXPECT_GE(skipped, 10u);
}

// What hides bad data or memory is not offered as what to do.
TEST(Fixes, NoneIsOfferedForWhatNoSettingCauses) {
  FixStudy study;
  study.fails_again = true;
  study.failure = RunFailure{RunFailure::Way::loss, 1};
  study.reference.name = "FP32";
  study.reference.losses = {2, 1};
  study.reference.end = 0.25;
  study.steps = 50;
  for (const auto& [words, offered] : {std::pair("rnn in FP32", "It broke. Verified fix: a = 1 (50 steps, loss 0.5; FP32: 0.25)."),
                                       {"FP32", "It broke. Verified fix: a = 1 (50 steps, loss 0.5)."}}) {
    study.trials = {{.fix = {words, {{.name = "a", .to = "1"}}, ChangeOf::type, {}, {}},
                     .result = FixResult::verified,
                     .failure = {},
                     .end_loss = 0.5,
                     .refusal = ""}};
    for (const auto& [code, expected] : {std::pair("run.diverged", offered),
                                         {"data.nonfinite", "It broke."},
                                         {"data.outlier", "It broke."},
                                         {"recording.memory_changed", "It broke."}}) {
      Report report;
      report.findings.push_back({code, Severity::error, said("It broke."), {}, {}, {}, {}});
      report.causes.push_back({0, {}});
      report.verdict_text = said("It broke.");
      add_fixes(study, report);
      EXPECT_EQ(report.verdict_text, expected) << code;
    }
  }
}

// A first loss that is far above guessing says nothing: below it a run may end that learned nothing.
TEST(Fixes, WhatEndsNoBetterThanGuessingIsVerifiedByNothing) {
  const Experiment run = parse_experiment(R"(precision = "fp16"
seed = 3
[data]
kind = "csv"
path = ")" + project_file("experiments/failures/features.csv") +
                                              R"("
target_columns = ["label"]
input_columns = ["a", "b", "c", "d"]
classes = 3
std = 5e-4
[model]
layers = [{ type = "linear", name = "first", out_features = 32 }, { type = "relu" }, { type = "linear", name = "head", out_features = 3 }]
[training]
batch_size = 16
steps = 40
evaluation = "never"
[optimizer]
type = "sgd"
learning_rate = 0.1
)",
                                          "test");
  std::vector<double> losses;
  FailureWatch watch;
  Trial again;
  again.experiment = run;
  again.steps = 40;
  again.goes_on = [&](const StepResult& step) {
    losses.push_back(step.loss);
    watch.add(step.step, step.loss, step.skipped);
    return true;
  };
  ulpscope::run(again);
  ASSERT_TRUE(watch.failure());
  ASSERT_GT(losses.front(), 100);
  const FixStudy study = study_of(run, *watch.failure());
  ASSERT_TRUE(study.fails_again);
  EXPECT_FALSE(study.reference.exists()) << study.reference.name;
  bool ended_between = false;
  for (const FixTrial& trial : study.trials) {
    EXPECT_NE(trial.result, FixResult::verified) << trial.fix.text();
    if (!trial.end_loss || *trial.end_loss < std::log(3)) continue;
    EXPECT_EQ(trial.result, FixResult::trains_worse) << trial.fix.text();
    ended_between |= *trial.end_loss < losses.front();
  }
  EXPECT_TRUE(ended_between);
}

TEST(Fixes, AReferenceEndsBelowGuessingAndBelowTheOnset) {
  TimedTrials::Outcome outcome{.ran = true, .failure = {}, .losses = {300}, .guessing = std::log(10), .refusal = ""};
  outcome.losses.insert(outcome.losses.end(), 20, 218);
  EXPECT_TRUE(outcome.trains());
  EXPECT_EQ(reference_of("FP32", outcome).lack, "FP32 ends at a loss of 218, not below what guessing gives, 2.303");
  outcome.losses.insert(outcome.losses.end(), 20, 2);
  Reference reference = reference_of("FP32", outcome);
  ASSERT_TRUE(reference.exists());
  // 31.8 by its fall alone.
  EXPECT_FALSE(reference.is_reached_by(std::log(10)));
  EXPECT_TRUE(reference.is_reached_by(2.3));
  reference.demand_below(2.25, "the loss at the onset");
  EXPECT_FALSE(reference.is_reached_by(2.25));
  EXPECT_TRUE(reference.is_reached_by(2.2));
  reference.demand_below(2, "the loss at the onset");
  EXPECT_FALSE(reference.exists());
  EXPECT_FALSE(reference.is_reached_by(0));
}

TEST(Fixes, GuessingIsWhatOneAnswerForAllGives) {
  const auto guessing = [](const Experiment& of) {
    Trial trial;
    trial.experiment = of;
    trial.steps = 1;
    trial.guesses = true;
    return ulpscope::run(trial).loss_of_guessing;
  };
  EXPECT_EQ(guessing(fixed_experiment("fp32")), std::log(10));
  EXPECT_EQ(guessing(fixed_experiment("fp32", "[loss]\nfactor = 4\n")), 4 * std::log(10));
  Experiment values = fixed_experiment("fp32");
  values.data.target = TargetSource::input;
  values.model.layers.back().set("out_features", int64_t{16});
  values.loss.function = LossFunction::mse;
  // Of the same numbers, by their definition.
  std::vector<float> all;
  {
    const Trainer trainer(values, {});
    Batch batch;
    std::vector<int64_t> samples(256);
    std::iota(samples.begin(), samples.end(), 0);
    trainer.training_data().fill_batch(samples, batch);
    all = batch.values;
  }
  ASSERT_EQ(all.size(), 256u * 16);
  double sum = 0, squares = 0;
  for (const float value : all) {
    sum += value;
    squares += static_cast<double>(value) * value;
  }
  const double n = 256 * 16, variance = squares / n - (sum / n) * (sum / n);
  EXPECT_NEAR(*guessing(values), variance, 1e-12 * n);
  values.loss.function = LossFunction::l1;
  std::sort(all.begin(), all.end());
  double deviation = 0;
  for (const float value : all) deviation += std::abs(value - (double{all[all.size() / 2]} + all[all.size() / 2 - 1]) / 2);
  EXPECT_NEAR(*guessing(values), deviation / n, 1e-12 * n);
  values.loss.function = LossFunction::kl_div;
  EXPECT_FALSE(guessing(values));
}

// What can be changed of layers and groups is tried where there are such, and nowhere else.
TEST(Fixes, LayersAndGroupsAreChangedWhereTheyAre) {
  const auto texts = [](const Experiment& of) {
    std::string all;
    for (const Fix& fix : fixes_of(of, "", {})) all += fix.text() + "\n";
    return all;
  };
  const char* const kLayers = R"(precision = "fp32"
[model]
layers = [{ type = "residual", layers = [
  { type = "softmax", subtract_max = false }, { type = "rms_norm", fused = false },
  { type = "attention", heads = 1, causal = true, mask_value = -1e9 },
] }]
[optimizer]
learning_rate = 0.01
[[inject]]
op = "relu"
set = nan
[[optimizers]]
modules = ["head"]
learning_rate = 5
)";
  const Experiment run = parse_experiment(kLayers, "test");
  EXPECT_THAT(texts(run), AllOf(HasSubstr("mask_value = -1e4"), HasSubstr("subtract_max = true"), HasSubstr("fused = true"),
                                HasSubstr("learning rate of head as of the others: optimizers[0].learning_rate = 0.01")));
  for (const Fix& fix : fixes_of(run, "", {})) {
    const bool is_of_softmax = fix.text().find("subtract_max") != std::string::npos;
    EXPECT_EQ(fix.experiment.model.layers[0].layers("layers")[0].flag("subtract_max"), is_of_softmax) << fix.text();
  }
  EXPECT_THAT(texts(fixed_experiment("fp32", "[[inject]]\nop = \"relu\"\nset = nan\n")),
              Not(AnyOf(HasSubstr("mask"), HasSubstr("softmax"), HasSubstr("norms"))));
}

// FP32 is no way out for a run in FP64, which has no weights or updates in a narrower format either.
TEST(Fixes, NothingIsWiderThanFp64) {
  const Experiment run = fixed_experiment("fp64", "[optimizer]\ntype = \"sgd\"\nlearning_rate = 3e38\n");
  FailureWatch watch;
  Trial again;
  again.experiment = run;
  again.goes_on = [&](const StepResult& step) {
    watch.add(step.step, step.loss, step.skipped);
    return true;
  };
  again.steps = 60;
  ulpscope::run(again);
  ASSERT_TRUE(watch.failure());
  const FixStudy study = study_of(run, *watch.failure());
  ASSERT_TRUE(study.fails_again);
  for (const FixTrial& trial : study.trials) {
    EXPECT_FALSE(is_format(trial.fix.what)) << trial.fix.text();
    EXPECT_EQ(dtype_of(trial.fix.experiment.precision), DType::f64) << trial.fix.text();
    EXPECT_NE(trial.result, FixResult::fp32_fails);
  }
  EXPECT_TRUE(study.reference.name.empty() || study.reference.name.starts_with("FP64 and ")) << study.reference.name;
  // Of pure FP16 they are.
  bool is_offered = false;
  for (const Fix& fix : fixes_of(fixed_experiment("pure_fp16"), "", {}))
    is_offered |= fix.text().starts_with("FP32 master weights");
  EXPECT_TRUE(is_offered);
}

// The run in FP32 is what tells whether a change of formats trains: without it nothing does.
TEST(Fixes, WhyThereIsNoReferenceIsSaid) {
  const Experiment run =
      fixed_experiment("fp16", "[scaler]\ninitial = \"2^24\"\ndynamic = false\n[optimizer]\nlearning_rate = 0.01\n");
  Trial start;
  start.experiment = run;
  FixOptions options{.budget = 1e9};
  options.watch = [](std::string_view trial) { return !trial.starts_with("FP32"); };
  const FixStudy study = try_fixes(start, {RunFailure::Way::skipped, 0}, "", options);
  ASSERT_TRUE(study.fails_again);
  EXPECT_EQ(study.reference.lack, "no time was left to run FP32");
  ASSERT_NE(find(study, "BF16"), nullptr);
  EXPECT_EQ(find(study, "BF16")->result, FixResult::not_tried);
  // Of one step nothing can be said of it or of the others.
  start.experiment = load_experiment(project_file("experiments/failures/activations_overflow_fp16.toml"));
  const FixStudy one = try_fixes(start, {RunFailure::Way::loss, 0}, "", {.steps_after = 1, .budget = 1e9});
  ASSERT_TRUE(one.fails_again);
  EXPECT_EQ(one.reference.lack, "one step of FP32 does not tell whether it trains");
  ASSERT_NE(find(one, "BF16"), nullptr);
  EXPECT_EQ(find(one, "BF16")->result, FixResult::stays_finite);
  start.experiment = run;
  Report report;
  add_fixes(study, report);
  EXPECT_EQ(find_fact<std::string>(report, "reference"), "none: no time was left to run FP32");
  options.watch = [](std::string_view) { return false; };
  const FixStudy none = try_fixes(start, {RunFailure::Way::skipped, 0}, "", options);
  Report empty;
  add_fixes(none, empty);
  EXPECT_EQ(find_fact<std::string>(empty, "run_again"), "no time was left; nothing was tried");
}

// A path in the experiment is from where the run was trained, and this one has no file beside which data could lie.
TEST(Fixes, DataThatAreElsewhereAreSaidToBe) {
  Experiment run = fixed_experiment("fp32");
  run.data.kind = DataKind::csv;
  run.data.path = "no_such_folder/features.csv";
  run.data.shape = {128};
  run.data.train_size = run.data.test_size = 0;
  EXPECT_THAT(study_of(run, {RunFailure::Way::loss, 5}).refusal,
              AllOf(HasSubstr("no_such_folder/features.csv"),
                    HasSubstr("is not in the folder '" + std::filesystem::current_path().string() + "'")));
}

// A run that ends soon does not say how a change trains: trials have as many steps as they say.
TEST(Fixes, TrialsGoOnBehindTheEndOfTheRun) {
  Experiment run = fixed_experiment("fp16", "[scaler]\ninitial = \"2^24\"\ndynamic = false\n[optimizer]\nlearning_rate = 0.01\n");
  run.training.steps = 22;
  const FixStudy study = study_of(run, {RunFailure::Way::skipped, 0});
  ASSERT_TRUE(study.fails_again);
  EXPECT_EQ(study.steps, 50u);
  Experiment longer = run;
  longer.precision = Precision::fp32;
  longer.training.steps = 50;
  std::vector<double> losses;
  TrainerOptions options;
  Trainer trainer(longer, options);
  while (!trainer.finished()) losses.push_back(trainer.step().loss);
  EXPECT_EQ(study.reference.losses, losses);
}

// What was skipped at first is made up for by as many steps.
TEST(Fixes, AStepThatWasSkippedIsNoLoss) {
  TimedTrials::Outcome outcome{.ran = true, .failure = {}, .losses = {}, .guessing = {}, .refusal = ""};
  for (int i = 0; i < 50; ++i) outcome.losses.push_back(100 - i);
  const Reference reference = reference_of("FP32", outcome);
  ASSERT_TRUE(reference.exists());
  EXPECT_DOUBLE_EQ(reference.end, 55.5);
  EXPECT_DOUBLE_EQ(reference.bound(), 55.5 + 0.1 * 44.5);
  EXPECT_DOUBLE_EQ(reference.bound(8), 63.5 + 0.1 * 36.5);
  EXPECT_FALSE(reference.is_reached_by(62));
  EXPECT_TRUE(reference.is_reached_by(62, 8));
  // The report says how far it ends above the reference, and that it skipped steps where these make up for it.
  EXPECT_EQ(as_reference(reference, 55.5, 0), "trains like the reference");
  EXPECT_EQ(as_reference(reference, 55.5 * 1.04, 0), "trains like the reference");
  EXPECT_EQ(as_reference(reference, 55.5 * 1.06, 0), "trains; its loss ends 6% above the reference's");
  EXPECT_EQ(as_reference(reference, 55.5 * 1.12, 8), "trains; its loss ends 12% above the reference's, after 8 skipped steps");
  // Not by more than there were.
  EXPECT_DOUBLE_EQ(reference.bound(1000), reference.bound(40));
}

TEST(Fixes, ARunThatGoesOnIsNotRunAgain) {
  TemporaryFolder folder;
  const Experiment run = fixed_experiment("fp32");
  TrainerOptions options;
  options.trace_path = folder.file("run.h5");
  options.trace.flush_interval = std::chrono::milliseconds(1);
  Trainer trainer(run, options);
  trainer.step();
  try {
    trial_from_start(Snapshot(options.trace_path));
    FAIL() << "it is still being written";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("run.h5' is still being written"));
  }
  trainer.finish();
  EXPECT_EQ(*trial_from_start(Snapshot(options.trace_path)).experiment, run);
}

// Rows of an embedding that no batch reads: Adam without eps makes them 0 / 0, and no loss tells of it.
TEST(Fixes, AWeightThatBecomesNanFailsARunOfFiniteLosses) {
  TemporaryFolder folder;
  const Experiment run = parse_experiment(R"(precision = "fp32"
seed = 5
[model]
layers = [
  { type = "embedding", name = "tokens", num_embeddings = 256, features = 8 },
  { type = "linear", name = "head", out_features = 256 },
]
[data]
kind = "text"
path = ")" + project_file("LICENSE") + R"("
context = 16
train_size = 8
[training]
batch_size = 8
steps = 30
evaluation = "never"
[optimizer]
type = "adam"
eps = 0
learning_rate = 0.01
)",
                                          "test");
  TrainerOptions options;
  options.trace_path = folder.file("run.h5");
  const TrainResult trained = train(run, options);
  const Snapshot trace(options.trace_path);
  trace.visit_steps({}, [](std::span<const StepRow> rows) {
    for (const StepRow& row : rows) EXPECT_TRUE(std::isfinite(row.loss)) << row.step;
    return true;
  });
  const auto failure = failure_of(trace);
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->way, RunFailure::Way::weights);
  EXPECT_EQ(failure->step, 0u);
  const FixStudy study = study_of(run, *failure);
  ASSERT_TRUE(study.fails_again);
  ASSERT_NE(find(study, "larger eps"), nullptr);
  EXPECT_EQ(find(study, "larger eps")->result, FixResult::verified);
  ASSERT_NE(find(study, "gradient clipping"), nullptr);
  EXPECT_EQ(find(study, "gradient clipping")->result, FixResult::fails);

  Experiment sound = run;
  sound.optimizer.eps = 1e-5;
  options.trace_path = folder.file("sound.h5");
  train(sound, options);
  EXPECT_FALSE(failure_of(Snapshot(options.trace_path)));
}

// Sums may depend on how many threads share them.
TEST(Fixes, TrialsHaveTheThreadsOfTheRun) {
  TemporaryFolder folder;
  TrainerOptions options;
  options.trace_path = folder.file("run.h5");
  options.cpu.threads = 3;
  Experiment run = fixed_experiment("fp32");
  run.training.steps = 2;
  train(run, options);
  EXPECT_EQ(trial_from_start(Snapshot(options.trace_path)).cpu.threads, 3);
  const auto cpu = cpu_options_of("A CPU, with 8 threads, avx2, 1 thread, oneDNN 2.6.3 on avx2");
  ASSERT_TRUE(cpu);
  EXPECT_EQ(cpu->threads, 1);
  EXPECT_EQ(cpu->isa, "avx2");
  for (const char* const other : {"", "NVIDIA H100", "avx2, 2 threads", "x, avx2, two threads, y", "x, mmx, 2 threads, y",
                                  "x, avx2, 0 threads, y", "x, avx2, 99999999999 threads, y", " thread", ", thread"})
    EXPECT_EQ(cpu_options_of(other).has_value(), std::string(other) == "avx2, 2 threads") << other;
}

TEST(Fixes, WhatCannotBeRunAgainIsSaidWithItsReason) {
  Experiment run = fixed_experiment("fp32");
  run.data.kind = DataKind::csv;
  run.data.path = "/nonexistent/features.csv";
  run.data.shape = {128};
  run.data.train_size = run.data.test_size = 0;
  const FixStudy study = study_of(run, {RunFailure::Way::loss, 5});
  EXPECT_FALSE(study.fails_again);
  EXPECT_THAT(study.refusal, HasSubstr("/nonexistent/features.csv"));
}

TEST(Fixes, WhatDoesNotFailAgainProvesNothing) {
  const FixStudy study = study_of(fixed_experiment("fp32"), {RunFailure::Way::loss, 5});
  EXPECT_FALSE(study.fails_again);
  EXPECT_FALSE(study.failure);
  EXPECT_TRUE(study.trials.empty());
}

TEST(Fixes, WhatThereIsNoTimeForIsSaid) {
  Trial start;
  start.experiment = fixed_experiment("fp16", "[scaler]\ninitial = \"2^24\"\ndynamic = false\n[optimizer]\nlearning_rate = 0.01\n");
  size_t begun = 0;
  FixOptions options{.budget = 1e9};
  options.watch = [&](std::string_view) { return ++begun <= 2; };  // the run as it was, and one more
  const FixStudy study = try_fixes(start, {RunFailure::Way::skipped, 0}, "", options);
  ASSERT_TRUE(study.fails_again);
  ASSERT_GT(study.trials.size(), 2u);
  // What the others are held against goes before them.
  for (const FixTrial& trial : study.trials)
    EXPECT_EQ(trial.result != FixResult::not_tried, trial.fix.text().starts_with("FP32:")) << trial.fix.text();
}

}  // namespace
}  // namespace ulpscope
