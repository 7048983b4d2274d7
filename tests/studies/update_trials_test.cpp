// What is tried where updates are lost: on runs of which it is known what each change does.
#include "ulpscope/studies/update_trials.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "tests/support/project_files.h"
#include "tests/support/said.h"
#include "tests/support/temporary_folder.h"
#include "ulpscope/analyzers/verbs/updates.h"

namespace ulpscope {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class UpdateTrialsTest : public ::testing::Test {
 protected:
  // A failure's experiment, with changes.
  static Experiment failure(const std::string& name, const std::vector<std::string>& changes = {}) {
    return load_experiment(project_file("experiments/failures/" + name + ".toml"),
                           std::vector<Override>(changes.begin(), changes.end()));
  }
  UpdateStudy study(const Experiment& experiment, uint64_t steps, double budget = 1e9) {
    Trial start;
    start.experiment = experiment;
    return try_updates(start, steps, {.scratch = folder_.file("scratch.h5"), .budget = budget});
  }
  static std::string fact(const UpdateStudy& study, const char* name) {
    Report report;
    add_trials(study, report);
    return find_fact<std::string>(report, name).value_or("");
  }
  // What its trials say, by how the change begins.
  static std::string detail(const UpdateStudy& study, const std::string& begin) {
    Report report;
    add_trials(study, report);
    for (const TableRow& row : report.tables.at(0).rows)
      if (std::get<std::string>(row.cells.front()).starts_with(begin)) return std::get<std::string>(row.cells.back());
    return "no such change";
  }
  static const UpdateTrial& find(const UpdateStudy& study, const std::string& begin) {
    const auto found = std::find_if(study.trials.begin(), study.trials.end(),
                                    [&](const UpdateTrial& trial) { return trial.text.starts_with(begin); });
    EXPECT_NE(found, study.trials.end()) << begin;
    return found != study.trials.end() ? *found : study.original;
  }
  // The median of the last ten.
  static double final_loss(const Experiment& experiment) {
    std::vector<double> losses;
    train(experiment, {}, [&](const StepResult& step) { losses.push_back(step.loss); });
    std::sort(losses.end() - 10, losses.end());
    return (losses[losses.size() - 6] + losses[losses.size() - 5]) / 2;
  }

  TemporaryFolder folder_;
};

TEST_F(UpdateTrialsTest, UpdatesBelowHalfAnUlpTakeMasterWeightsOrChance) {
  const Experiment run = failure("updates_lost_bf16");
  const UpdateStudy tried = study(run, 200);
  EXPECT_EQ(tried.original.result, FixResult::still_loses);
  EXPECT_GT(*tried.original.lost, 0.9);
  EXPECT_EQ(tried.reference.name, "FP32");
  // An update that is less than half an ulp is rounded away however exactly it was computed.
  EXPECT_EQ(find(tried, "update computed in FP32").result, FixResult::still_loses);
  const UpdateTrial &masters = find(tried, "FP32 master weights"), &chance = find(tried, "stochastic rounding of updates");
  EXPECT_EQ(masters.result, FixResult::verified);
  EXPECT_LT(*masters.lost, 0.01);
  EXPECT_EQ(chance.result, FixResult::verified);
  EXPECT_GT(*chance.lost, 0.5) << "most leave the weight as it was, and the others make up for them";
  // However low its loss ends: it is another training than was asked for.
  EXPECT_EQ(find(tried, "learning rate times 10:").result, FixResult::other_training);
  // As what is proposed does when somebody sets it.
  EXPECT_LE(final_loss(failure("updates_lost_bf16", {"optimizer.master_weights=true"})), tried.reference.bound());
  EXPECT_LE(final_loss(failure("updates_lost_bf16", {"arithmetic.ops.adam_update.rounding=sr", "optimizer.math=fp32"})),
            tried.reference.bound());
  EXPECT_GT(final_loss(run), tried.reference.bound());
  EXPECT_THAT(chance.text, HasSubstr("arithmetic.ops.adam_update.rounding = \"sr\", optimizer.math = \"fp32\""));

  Report report;
  report.verdict_text = said("It loses.");
  add_trials(tried, report);
  ASSERT_EQ(report.tables.size(), 1u);
  EXPECT_EQ(report.tables[0].rows.size(), tried.trials.size() + 1);
  EXPECT_THAT(
      report.verdict_text,
      StartsWith("It loses. Verified fix: arithmetic.ops.adam_update.rounding = \"sr\" and optimizer.math = \"fp32\" (200 steps, "
                 "loss "));
  EXPECT_THAT(tried.trials.back().text, StartsWith("learning rate"));
}

TEST_F(UpdateTrialsTest, DecayThatIsLostDoesNotShowInTheLoss) {
  const UpdateStudy tried = study(failure("weight_decay_lost_bf16"), 80);
  EXPECT_EQ(tried.original.result, FixResult::still_loses);
  EXPECT_LT(*tried.original.decay_arrived, 0.5);
  const UpdateTrial& masters = find(tried, "FP32 master weights");
  EXPECT_EQ(masters.result, FixResult::verified);
  // Of decay that is 10^-3 of a weight: its factor, the product, and the weight with and without it are rounded to FP32, each at a
  // magnitude of twice the weight at most, where weights are larger than the learning rate.
  const OptimizerSettings& adamw = failure("weight_decay_lost_bf16").optimizer;
  const double bound = 4 * 2 * 0x1p-24 / (adamw.learning_rate * adamw.weight_decay.value());
  EXPECT_LE(std::abs(*masters.decay_arrived - 1), bound);
}

TEST_F(UpdateTrialsTest, WhatLosesNothingIsNotTried) {
  const UpdateStudy tried = study(failure("updates_lost_bf16", {"precision=bf16"}), 30);
  EXPECT_TRUE(tried.trials.empty());
  Report report;
  add_trials(tried, report);
  EXPECT_TRUE(report.tables.empty());
  EXPECT_EQ(std::get<std::string>(report.facts.back().value), "loses nothing again; nothing was tried");
}

// An FP64 run that loses updates: its learning rate is so small beside the weights.
TEST_F(UpdateTrialsTest, NothingIsWiderThanFp64) {
  const UpdateStudy tried = study(failure("updates_lost_bf16", {"precision=fp64", "optimizer.learning_rate=1e-18"}), 30);
  ASSERT_EQ(tried.original.result, FixResult::still_loses);
  EXPECT_FALSE(tried.reference.exists());
  EXPECT_EQ(fact(tried, "reference"), "none: no format is wider than FP64");
  for (const UpdateTrial& trial : tried.trials) EXPECT_THAT(trial.text, HasSubstr("learning rate"));
}

TEST_F(UpdateTrialsTest, Fp32IsHeldAgainstFp64) {
  const UpdateStudy tried = study(failure("updates_lost_bf16", {"precision=fp32", "optimizer.learning_rate=1e-10"}), 30);
  ASSERT_EQ(tried.original.result, FixResult::still_loses);
  EXPECT_TRUE(tried.reference.name == "FP64" || tried.reference.lack == "it does not train in FP64 either") << tried.reference.lack;
}

// Whether it trains is not known of one step, and where the time was up: nothing says that it does, or that it does not.
TEST_F(UpdateTrialsTest, WhyThereIsNoReferenceIsSaid) {
  const Experiment run = failure("updates_lost_bf16");
  const UpdateStudy one = study(run, 1);
  ASSERT_EQ(one.original.result, FixResult::still_loses);
  EXPECT_EQ(fact(one, "reference"), "none: one step of FP32 does not tell whether it trains");
  EXPECT_EQ(find(one, "FP32 master weights").result, FixResult::keeps_updates);
  EXPECT_EQ(detail(one, "FP32 master weights"), "keeps the updates; whether it trains as well is not known");

  Trial start;
  start.experiment = run;
  UpdateTrialOptions options{.scratch = folder_.file("scratch.h5"), .budget = 1e9};
  options.watch = [](std::string_view trial) { return trial == "as it was"; };
  const UpdateStudy stopped = try_updates(start, 200, options);
  EXPECT_EQ(fact(stopped, "reference"), "none: no time was left to run FP32");
  for (const UpdateTrial& trial : stopped.trials) EXPECT_EQ(trial.result, FixResult::not_tried);
}

// Of a module that loses nothing when the learning rate is ten times what it is; others go on losing.
TEST_F(UpdateTrialsTest, TheUpdatesThatCountAreThoseAskedFor) {
  const Experiment run = failure("updates_lost_bf16");
  Trial start;
  start.experiment = run;
  UpdateTrialOptions options{.scratch = folder_.file("scratch.h5"), .budget = 1e9};
  const UpdateStudy all = try_updates(start, 20, options);
  const std::string first = run.model.layers.front().name;
  options.analysis.modules = {first};
  const UpdateStudy of_first = try_updates(start, 20, options);
  ASSERT_TRUE(all.original.lost && of_first.original.lost);
  EXPECT_NE(*all.original.lost, *of_first.original.lost);
  options.analysis.modules = {"*"};
  EXPECT_EQ(*try_updates(start, 20, options).original.lost, *all.original.lost);
}

// What cannot be recorded or read is refused, and the others are tried all the same.
TEST_F(UpdateTrialsTest, ATraceThatCannotBeReadRefusesItsTrialOnly) {
  const Experiment run = failure("updates_lost_bf16");
  Trial start;
  start.experiment = run;
  UpdateTrialOptions options{.scratch = folder_.file("scratch.h5"), .budget = 1e9};
  // While it begins, there is no place for the trace of this one.
  options.watch = [&](std::string_view trial) {
    options.scratch = trial.starts_with("learning rate times 10:") ? folder_.file("no/such/folder.h5") : folder_.file("scratch.h5");
    return true;
  };
  const UpdateStudy tried = try_updates(start, 200, options);
  EXPECT_EQ(find(tried, "learning rate times 10:").result, FixResult::refused);
  EXPECT_THAT(find(tried, "learning rate times 10:").refusal, HasSubstr("no/such/folder.h5"));
  EXPECT_EQ(find(tried, "FP32 master weights").result, FixResult::verified);
}

TEST_F(UpdateTrialsTest, TheBudgetEndsThem) {
  const UpdateStudy tried = study(failure("updates_lost_bf16"), 200, 0);
  Report report;
  add_trials(tried, report);
  EXPECT_EQ(std::get<std::string>(report.facts.back().value), "no time was left; nothing was tried");
}

}  // namespace
}  // namespace ulpscope
