// What counts as a failure and as a fix, on runs whose faults were built in.
#include "ulpscope/studies/fixes.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "tests/support/temporary_folder.h"
#include "ulpscope/base/error.h"
#include "ulpscope/studies/nan_trials.h"

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
}

// What is wrong with it, `tables` say.
Experiment experiment(const std::string& precision, const std::string& tables = "") {
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
]
[training]
batch_size = 32
steps = 60
)" + tables,
                          "test");
}

const FixTrial* find(const FixStudy& study, const std::string& begin) {
  const auto found = std::find_if(study.trials.begin(), study.trials.end(),
                                  [&](const FixTrial& trial) { return trial.fix.text.find(begin) == 0; });
  return found == study.trials.end() ? nullptr : &*found;
}

FixStudy study_of(const Experiment& experiment, const RunFailure& failure) {
  Trial start;
  start.experiment = experiment;
  return try_fixes(start, failure, "head", {.budget = 1e9});
}

TEST(Fixes, AFixedScaleTooLargeIsMendedByADynamicOneAndByBf16) {
  const Experiment run = experiment("fp16", "[scaler]\ninitial = \"2^24\"\ndynamic = false\n[optimizer]\nlearning_rate = 0.01\n");
  const FixStudy study = study_of(run, {RunFailure::Way::skipped, 0});
  ASSERT_TRUE(study.fails_again);
  EXPECT_EQ(study.reference.name, "FP32");
  EXPECT_LT(study.reference.end, study.reference.start);
  const FixTrial* const dynamic = find(study, "a dynamic loss scale");
  const FixTrial* const bf16 = find(study, "BF16");
  const FixTrial* const rate = find(study, "the learning rate / 10:");
  ASSERT_TRUE(dynamic && bf16 && rate);
  EXPECT_EQ(bf16->result, FixResult::verified);
  EXPECT_LE(*bf16->end_loss, study.reference.bound);
  EXPECT_EQ(rate->result, FixResult::fails);
  EXPECT_EQ(dynamic->result, FixResult::verified);
}

TEST(Fixes, NoFormatMendsALearningRate) {
  const Experiment run = experiment("fp16", "[optimizer]\ntype = \"sgd\"\nlearning_rate = 50\n");
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
    EXPECT_FALSE(trial.fix.is_format && trial.result == FixResult::verified) << trial.fix.text;
  const bool rate_helps = std::any_of(study.trials.begin(), study.trials.end(), [](const FixTrial& trial) {
    return trial.result == FixResult::verified && trial.fix.text.find("learning rate") != std::string::npos;
  });
  EXPECT_TRUE(rate_helps);
}

// What can be changed of layers and groups is tried where there are such, and nowhere else.
TEST(Fixes, LayersAndGroupsAreChangedWhereTheyAre) {
  const auto texts = [](const Experiment& of) {
    std::string all;
    for (const Fix& fix : fixes_of(of, "")) all += fix.text + "\n";
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
                                HasSubstr("the learning rate of head as of the others: 0.01")));
  for (const Fix& fix : fixes_of(run, "")) {
    const bool is_of_softmax = fix.text.find("subtract_max") != std::string::npos;
    EXPECT_EQ(fix.experiment.model.layers[0].layers("layers")[0].flag("subtract_max"), is_of_softmax) << fix.text;
  }
  EXPECT_THAT(texts(experiment("fp32", "[[inject]]\nop = \"relu\"\nset = nan\n")),
              Not(AnyOf(HasSubstr("mask"), HasSubstr("softmax"), HasSubstr("norms"))));
}

// FP32 is no way out for a run in FP64, which has no weights or updates in a narrower format either.
TEST(Fixes, NothingIsWiderThanFp64) {
  const Experiment run = experiment("fp64", "[optimizer]\ntype = \"sgd\"\nlearning_rate = 3e38\n");
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
    EXPECT_FALSE(trial.fix.is_format) << trial.fix.text;
    EXPECT_EQ(dtype_of(trial.fix.experiment.precision), DType::f64) << trial.fix.text;
    EXPECT_NE(trial.result, FixResult::fp32_fails);
  }
  EXPECT_TRUE(study.reference.name.empty() || study.reference.name.starts_with("FP64 and ")) << study.reference.name;
  // Of pure FP16 they are.
  bool is_offered = false;
  for (const Fix& fix : fixes_of(experiment("pure_fp16"), "")) is_offered |= fix.text.starts_with("FP32 master weights");
  EXPECT_TRUE(is_offered);
}

// The run in FP32 is what tells whether a change of formats trains: without it nothing does.
TEST(Fixes, WhyThereIsNoReferenceIsSaid) {
  const Experiment run = experiment("fp16", "[scaler]\ninitial = \"2^24\"\ndynamic = false\n[optimizer]\nlearning_rate = 0.01\n");
  Trial start;
  start.experiment = run;
  FixOptions options{.budget = 1e9};
  options.watch = [](std::string_view trial) { return !trial.starts_with("FP32"); };
  const FixStudy study = try_fixes(start, {RunFailure::Way::skipped, 0}, "", options);
  ASSERT_TRUE(study.fails_again);
  EXPECT_EQ(study.reference.lack, "the time was up before FP32 had been run");
  ASSERT_NE(find(study, "BF16"), nullptr);
  EXPECT_EQ(find(study, "BF16")->result, FixResult::stays_finite);
  Report report;
  add_fixes(study, report);
  EXPECT_EQ(find_fact<std::string>(report, "reference"), "none: the time was up before FP32 had been run");
  options.watch = [](std::string_view) { return false; };
  const FixStudy none = try_fixes(start, {RunFailure::Way::skipped, 0}, "", options);
  Report empty;
  add_fixes(none, empty);
  EXPECT_EQ(find_fact<std::string>(empty, "run_again"), "the time was up; nothing was tried");
}

// A path in the experiment is from where the run was trained.
TEST(Fixes, DataThatAreElsewhereAreSaidToBe) {
  Experiment run = experiment("fp32");
  run.data.kind = DataKind::csv;
  run.data.path = "no_such_folder/features.csv";
  run.data.shape = {128};
  run.data.train_size = run.data.test_size = 0;
  EXPECT_THAT(study_of(run, {RunFailure::Way::loss, 5}).refusal,
              AllOf(HasSubstr("no_such_folder/features.csv"), HasSubstr("relative to the folder in which the run was trained")));
}

TEST(Fixes, ARunThatGoesOnIsNotRunAgain) {
  TemporaryFolder folder;
  const Experiment run = experiment("fp32");
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

TEST(Fixes, WhatCannotBeRunAgainIsSaidWithItsReason) {
  Experiment run = experiment("fp32");
  run.data.kind = DataKind::csv;
  run.data.path = "/nonexistent/features.csv";
  run.data.shape = {128};
  run.data.train_size = run.data.test_size = 0;
  const FixStudy study = study_of(run, {RunFailure::Way::loss, 5});
  EXPECT_FALSE(study.fails_again);
  EXPECT_THAT(study.refusal, HasSubstr("/nonexistent/features.csv"));
}

TEST(Fixes, WhatDoesNotFailAgainProvesNothing) {
  const FixStudy study = study_of(experiment("fp32"), {RunFailure::Way::loss, 5});
  EXPECT_FALSE(study.fails_again);
  EXPECT_FALSE(study.failure);
  EXPECT_TRUE(study.trials.empty());
}

TEST(Fixes, WhatThereIsNoTimeForIsSaid) {
  Trial start;
  start.experiment = experiment("fp16", "[scaler]\ninitial = \"2^24\"\ndynamic = false\n[optimizer]\nlearning_rate = 0.01\n");
  size_t begun = 0;
  FixOptions options{.budget = 1e9};
  options.watch = [&](std::string_view) { return ++begun <= 2; };  // the run as it was, and one more
  const FixStudy study = try_fixes(start, {RunFailure::Way::skipped, 0}, "", options);
  ASSERT_TRUE(study.fails_again);
  ASSERT_GT(study.trials.size(), 2u);
  EXPECT_NE(study.trials.front().result, FixResult::not_tried);
  for (size_t i = 1; i < study.trials.size(); ++i) EXPECT_EQ(study.trials[i].result, FixResult::not_tried);
}

}  // namespace
}  // namespace ulpscope
