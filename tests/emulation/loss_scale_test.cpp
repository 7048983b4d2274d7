#include "ulpscope/emulation/loss_scale.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/python.h"
#include "ulpscope/base/philox.h"

namespace ulpscope {
namespace {

LossScaleRule rule_of(const char* name) { return find_loss_scale_rule(name).value(); }

TEST(LossScale, PresetsHaveTheValuesOfTheirLibraries) {
  EXPECT_EQ(rule_of("pytorch").initial, 65536);
  EXPECT_EQ(rule_of("pytorch").growth_interval, 2000);
  EXPECT_EQ(rule_of("keras").initial, 32768);
  EXPECT_EQ(rule_of("tensorflow").initial, 32768);
  EXPECT_EQ(rule_of("tensorflow").floor, 1);
  EXPECT_EQ(rule_of("mxnet").cap, 16777216);
  EXPECT_EQ(rule_of("deepspeed").hysteresis, 2);
  EXPECT_EQ(rule_of("deepspeed").growth_interval, 1000);
  EXPECT_EQ(rule_of("megatron").initial, 4294967296.0);
  EXPECT_EQ(rule_of("megatron").floor, 1);
  EXPECT_EQ(rule_of("apex").cap, 16777216);
  EXPECT_FALSE(find_loss_scale_rule("Pytorch").has_value());
}

TEST(LossScale, GrowsAfterAnIntervalOfCleanStepsInARow) {
  LossScaleRule rule;
  rule.growth_interval = 3;
  LossScaleState state = initial_state(rule);
  EXPECT_EQ(update(rule, state, false), LossScaleChange::none);
  EXPECT_EQ(update(rule, state, false), LossScaleChange::none);
  EXPECT_EQ(update(rule, state, true), LossScaleChange::backoff);  // and the count starts again
  EXPECT_EQ(state.scale, 32768);
  EXPECT_EQ(state.growth_tracker, 0);
  EXPECT_EQ(update(rule, state, false), LossScaleChange::none);
  EXPECT_EQ(update(rule, state, false), LossScaleChange::none);
  EXPECT_EQ(update(rule, state, false), LossScaleChange::growth);
  EXPECT_EQ(state.scale, 65536);
  EXPECT_EQ(state.growth_tracker, 0);
}

TEST(LossScale, NeverGrowsToInfinityNorPastItsCap) {
  LossScaleRule rule;
  rule.growth_interval = 1;
  LossScaleState state = initial_state(rule);
  for (int i = 0; i < 200; ++i) update(rule, state, false);
  EXPECT_EQ(state.scale, 0x1p127);
  EXPECT_EQ(update(rule, state, false), LossScaleChange::none);

  rule = rule_of("apex");
  rule.growth_interval = 1;
  state = initial_state(rule);
  for (int i = 0; i < 200; ++i) update(rule, state, false);
  EXPECT_EQ(state.scale, 0x1p24);
  EXPECT_EQ(update(rule, state, false), LossScaleChange::none);
}

TEST(LossScale, NeverFallsBelowItsFloorNorToWhereItsInverseIsInfinite) {
  for (const char* name : {"pytorch", "deepspeed"}) {
    const LossScaleRule rule = rule_of(name);
    LossScaleState state = initial_state(rule);
    for (int i = 0; i < 400; ++i) update(rule, state, true);
    EXPECT_EQ(state.scale, rule.floor > 0 ? rule.floor : 0x1p-126) << name;
    EXPECT_EQ(update(rule, state, true), LossScaleChange::none);
  }
}

TEST(LossScale, HysteresisToleratesAnOverflowUntilTheNextGrowth) {
  LossScaleRule rule = rule_of("deepspeed");
  rule.growth_interval = 4;
  LossScaleState state = initial_state(rule);
  EXPECT_EQ(update(rule, state, true), LossScaleChange::none);     // tolerated
  EXPECT_EQ(update(rule, state, true), LossScaleChange::backoff);  // no more
  EXPECT_EQ(update(rule, state, false), LossScaleChange::none);
  EXPECT_EQ(update(rule, state, true), LossScaleChange::backoff);  // a clean step does not restore it
  for (int i = 0; i < 3; ++i) EXPECT_EQ(update(rule, state, false), LossScaleChange::none);
  EXPECT_EQ(update(rule, state, false), LossScaleChange::growth);  // a growth does
  EXPECT_EQ(update(rule, state, true), LossScaleChange::none);
  EXPECT_EQ(update(rule, state, true), LossScaleChange::backoff);
}

TEST(LossScale, StaysWhereItIsNotDynamic) {
  LossScaleRule rule;
  rule.initial = 128;
  rule.dynamic = false;
  LossScaleState state = initial_state(rule);
  for (int i = 0; i < 5000; ++i) EXPECT_EQ(update(rule, state, i % 7 == 0), LossScaleChange::none);
  EXPECT_EQ(state, initial_state(rule));
}

// DeepSpeed keeps the step of the last overflow instead of a count of clean steps. Its rule, written that way.
TEST(LossScale, FollowsDeepSpeedsOwnBookkeeping) {
  LossScaleRule rule = rule_of("deepspeed");
  rule.growth_interval = 5;
  LossScaleState state = initial_state(rule);
  double scale = 65536;
  int64_t step = 0, last_overflow = -1, hysteresis = 2;
  const Philox random(11, 12);
  for (; step < 2000; ++step) {
    const bool overflow = random.below(step, 4) == 0;
    if (overflow) {
      if (hysteresis == 1) {
        scale = std::max(scale / 2, 1.0);
      } else {
        --hysteresis;
      }
      last_overflow = step;
    } else if ((step - last_overflow) % 5 == 0) {
      hysteresis = 2;
      scale *= 2;
    }
    update(rule, state, overflow);
    ASSERT_EQ(state.scale, scale) << step;
    ASSERT_EQ(state.hysteresis_left, hysteresis) << step;
  }
}

// Runs PyTorch's own update where it is installed.
TEST(LossScaleSlow, AgreesWithPyTorch) {
  const std::string python = find_python("torch");
  if (python.empty()) GTEST_SKIP() << "PyTorch is not installed";
  LossScaleRule rule;
  rule.growth_factor = 1.7;
  rule.backoff_factor = 0.3;
  rule.growth_interval = 3;
  constexpr int kSteps = 400;
  const Philox random(13, 14);
  std::string overflows;
  // A clean stretch at the end runs into the largest FP32 value.
  for (int i = 0; i < kSteps; ++i) overflows += i < 150 && random.below(i, 3) == 0 ? '1' : '0';
  const std::string command = fmt::format(
      "{} -c \"\n"
      "import torch\n"
      "scale, tracker = torch.tensor([65536.0]), torch.tensor([0], dtype=torch.int32)\n"
      "for c in '{}':\n"
      "  torch._amp_update_scale_(scale, tracker, torch.tensor([float(c)]), 1.7, 0.3, 3)\n"
      "  print(scale.item().hex(), tracker.item())\n"
      "\" 2>/dev/null",
      python, overflows);
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), [](FILE* file) { return file ? pclose(file) : 0; });
  ASSERT_TRUE(pipe);
  LossScaleState state = initial_state(rule);
  for (int i = 0; i < kSteps; ++i) {
    double scale;
    long tracker;
    ASSERT_EQ(std::fscanf(pipe.get(), "%la %ld", &scale, &tracker), 2) << "PyTorch stopped before step " << i;
    update(rule, state, overflows[i] == '1');
    ASSERT_EQ(state.scale, scale) << i;
    ASSERT_EQ(state.growth_tracker, tracker) << i;
  }
}

}  // namespace
}  // namespace ulpscope
