// What is tried where updates are lost: on runs of which it is known what each change does.
#include "ulpscope/studies/update_trials.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "tests/support/temporary_folder.h"
#include "ulpscope/analyzers/updates.h"

namespace ulpscope {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class UpdateTrialsTest : public ::testing::Test {
 protected:
  // A failure's experiment, with changes.
  static Experiment failure(const std::string& name, const std::vector<std::string>& changes = {}) {
    return load_experiment(ULPSCOPE_SOURCE_DIR "/experiments/failures/" + name + ".toml",
                           std::vector<Override>(changes.begin(), changes.end()));
  }
  UpdateStudy study(const Experiment& experiment, uint64_t steps, double budget = 1e9) {
    Trial start;
    start.experiment = experiment;
    return try_updates(start, steps, {.scratch = folder_.file("scratch.h5"), .budget = budget});
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
  EXPECT_EQ(tried.reference, "FP32");
  // An update that is less than half an ulp is rounded away however exactly it was computed.
  EXPECT_EQ(find(tried, "updates computed in FP32").result, FixResult::still_loses);
  const UpdateTrial &masters = find(tried, "FP32 master weights"), &chance = find(tried, "updates rounded stochastically");
  EXPECT_EQ(masters.result, FixResult::verified);
  EXPECT_LT(*masters.lost, 0.01);
  EXPECT_EQ(chance.result, FixResult::verified);
  EXPECT_GT(*chance.lost, 0.5) << "most leave the weight as it was, and the others make up for them";
  EXPECT_EQ(find(tried, "the learning rate times 10:").result, FixResult::verified);
  // As what is proposed does when somebody sets it.
  EXPECT_LE(final_loss(failure("updates_lost_bf16", {"optimizer.master_weights=true"})), tried.bound);
  EXPECT_LE(final_loss(failure("updates_lost_bf16", {"arithmetic.ops.adam_update.rounding=sr", "optimizer.math=fp32"})),
            tried.bound);
  EXPECT_GT(final_loss(run), tried.bound);
  EXPECT_THAT(chance.text, HasSubstr("arithmetic.ops.adam_update.rounding = \"sr\", optimizer.math = \"fp32\""));

  Report report;
  report.verdict_text = "It loses.";
  add_trials(tried, report);
  ASSERT_EQ(report.tables.size(), 1u);
  EXPECT_EQ(report.tables[0].rows.size(), tried.trials.size() + 1);
  EXPECT_THAT(report.verdict_text,
              StartsWith("It loses. Tried: it keeps its updates and trains as in FP32 with the learning rate"));
}

TEST_F(UpdateTrialsTest, DecayThatIsLostDoesNotShowInTheLoss) {
  const UpdateStudy tried = study(failure("weight_decay_lost_bf16"), 80);
  EXPECT_EQ(tried.original.result, FixResult::still_loses);
  EXPECT_LT(*tried.original.decay_arrived, 0.5);
  const UpdateTrial& masters = find(tried, "FP32 master weights");
  EXPECT_EQ(masters.result, FixResult::verified);
  EXPECT_NEAR(*masters.decay_arrived, 1, 0.01);
}

TEST_F(UpdateTrialsTest, WhatLosesNothingIsNotTried) {
  const UpdateStudy tried = study(failure("updates_lost_bf16", {"precision=bf16"}), 30);
  EXPECT_TRUE(tried.trials.empty());
  Report report;
  add_trials(tried, report);
  EXPECT_TRUE(report.tables.empty());
  EXPECT_EQ(std::get<std::string>(report.facts.back().value), "loses nothing again; nothing was tried");
}

TEST_F(UpdateTrialsTest, TheBudgetEndsThem) {
  const UpdateStudy tried = study(failure("updates_lost_bf16"), 200, 0);
  Report report;
  add_trials(tried, report);
  EXPECT_EQ(std::get<std::string>(report.facts.back().value), "the time was up; nothing was tried");
}

}  // namespace
}  // namespace ulpscope
