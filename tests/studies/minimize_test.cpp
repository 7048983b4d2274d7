// The smallest part of a capsule that fails, of runs in which it is known which sample or batches it takes.
#include "ulpscope/studies/minimize.h"

#include <gmock/gmock.h>

#include <cmath>
#include <filesystem>

#include "tests/support/temporary_folder.h"
#include "ulpscope/base/error.h"
#include "ulpscope/studies/trial.h"

namespace ulpscope {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class MinimizeTest : public ::testing::Test {
 protected:
  std::string file(const char* name) const { return folder_.file(name); }

  // Trains until the capsule is written.
  void train_with(const std::string& precision, const std::string& tables, const CapsuleOptions& capsule = {},
                  const std::string& layer = "") {
    const Experiment experiment = parse_experiment("precision = \"" + precision + R"("
[model]
layers = [
  { type = "linear", name = "first", out_features = 32 },
)" + layer + R"(
  { type = "relu", name = "relu" },
  { type = "linear", name = "head", out_features = 10 },
]
[data]
kind = "random_classification"
shape = [16]
train_size = 256
shuffle = false
)" + tables,
                                                   "test");
    TrainerOptions options;
    options.cpu.threads = 1;
    options.capsule = capsule;
    options.capsule.path = file("whole.capsule");
    train(experiment, options);
    ASSERT_TRUE(std::filesystem::exists(options.capsule.path));
  }
  static CapsuleOptions at_step(uint64_t step) { return {"", CapsuleEvent::step, step, 1}; }
  Minimized minimized(double budget = 1e9) {
    return minimize(file("whole.capsule"), {.output = file("small.capsule"), .scratch = file("scratch.ckpt"), .budget = budget});
  }

  TemporaryFolder folder_;
};

// Sample 37 is in the third batch of 16.
constexpr const char* kOneSample = R"(
[training]
batch_size = 16
steps = 6
evaluation = "never"
[scaler]
enabled = "off"
[[inject]]
sample = 37
element = 3
steps = 0
set = 1e6
)";

TEST_F(MinimizeTest, OneSampleThatIsAtFaultIsFound) {
  train_with("fp16", kOneSample);
  const Minimized found = minimized();
  EXPECT_EQ(found.failure.name, "cast");
  EXPECT_EQ(found.failure.module, "first");
  EXPECT_EQ(found.step, 2u);
  EXPECT_EQ(found.before.steps, 3u);
  EXPECT_EQ(found.before.samples, 16u);
  EXPECT_EQ(found.after.steps, 1u);
  EXPECT_THAT(found.samples, ElementsAre(37));
  EXPECT_TRUE(found.is_smallest);
  EXPECT_LE(found.trials, 2 + 2 * std::log2(16) + 1);  // halves of halves, and twice for all
  // It is a capsule like any other: it fails by itself, as it says.
  Trial trial;
  trial.capsule = file("small.capsule");
  const TrialOutcome again = run(trial);
  EXPECT_TRUE(again.is_as_before());
  ASSERT_EQ(again.steps.size(), 1u);
  EXPECT_EQ(again.steps[0].result.step, 2u);
  EXPECT_FALSE(std::isfinite(again.steps[0].result.loss));
  ASSERT_TRUE(again.steps[0].result.nonfinite);
  EXPECT_EQ(again.steps[0].result.nonfinite->module, "first");
  ASSERT_EQ(again.original.steps.back().batches.size(), 1u);
  EXPECT_THAT(again.original.steps.back().batches[0].samples, ElementsAre(37));
}

// batch_norm takes no single sample: what cannot be tried is no part that fails.
TEST_F(MinimizeTest, WhatTheModelRefusesIsLeftOut) {
  train_with("fp16", kOneSample, {}, "{ type = \"batch_norm\" },");
  const Minimized found = minimized();
  EXPECT_EQ(found.after.samples, 2u);
  EXPECT_THAT(found.samples, ::testing::Contains(37));
}

// The gradient of one sample among sixteen stays a sixteenth: what overflows alone is what overflowed in the mean.
TEST_F(MinimizeTest, MeansKeepTheirDivisor) {
  train_with("fp16", R"(
[training]
batch_size = 16
steps = 3
evaluation = "never"
[scaler]
initial = 1048576
dynamic = false
)",
             at_step(1));
  const Minimized found = minimized();
  // The gradients of the logits are at most scale / 16, which is 65536 and too large for FP16, for a probability near 1 or 0 only.
  EXPECT_EQ(found.failure.phase, Phase::backward);
  EXPECT_EQ(found.after.samples, 1u);
  const Experiment small = parse_experiment(read_checkpoint_info(file("small.capsule")).experiment, "small");
  EXPECT_EQ(small.training.batch_size, 1);
  EXPECT_EQ(small.loss.factor, 1.0 / 16);
}

// The sum over micro-batches overflows, and no batch does by itself.
TEST_F(MinimizeTest, BatchesThatFailTogetherStay) {
  train_with("apex_o2", R"(
[training]
batch_size = 8
accumulation = 16
steps = 2
evaluation = "never"
[scaler]
initial = 1048576
dynamic = false
)",
             at_step(0));
  const Minimized found = minimized();
  EXPECT_EQ(found.failure.name, "accumulate");
  EXPECT_EQ(found.after.batches, found.before.batches);
  EXPECT_EQ(found.after.samples, found.before.samples);
}

TEST_F(MinimizeTest, SaysWhenTheTimeWasUp) {
  train_with("fp16", kOneSample);
  const Minimized found = minimized(0);
  EXPECT_FALSE(found.is_smallest);
  EXPECT_EQ(found.after.samples, 16u);
  EXPECT_EQ(found.after.steps, 1u);
}

TEST_F(MinimizeTest, WhereNothingFailedThereIsNothingToKeep) {
  train_with("fp32", "[training]\nbatch_size = 16\nsteps = 3\nevaluation = \"never\"\n", at_step(1));
  try {
    minimized();
    FAIL() << "all was finite";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_THAT(error.what(), HasSubstr("whole.capsule' ends with step 1, in which nothing was NaN or infinite"));
  }
  EXPECT_FALSE(std::filesystem::exists(file("small.capsule")));
}

}  // namespace
}  // namespace ulpscope
