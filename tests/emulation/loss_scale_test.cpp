#include "ulpscope/emulation/loss_scale.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cmath>
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
  rule.growth_interval = 3;
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

// DeepSpeed keeps the step of the last overflow instead of a count of clean steps. The rule of 0.19.8, written that way.
TEST(LossScale, FollowsDeepSpeedsOwnBookkeeping) {
  LossScaleRule rule = rule_of("deepspeed");
  rule.growth_interval = 5;
  LossScaleState state = initial_state(rule);
  double scale = 65536;
  int64_t step = 0, last_overflow = -1, hysteresis = 2;
  const Philox random(11, 12);
  for (; step < 2000; ++step) {
    const bool overflow = random.below(step, 8) == 0;
    const int64_t clean_before = step - last_overflow - 1;
    if (overflow) {
      if (hysteresis == 1) {
        scale = std::max(scale / 2, 1.0);
      } else {
        --hysteresis;
      }
      last_overflow = step;
    } else if (clean_before > 0 && clean_before % 5 == 0) {
      hysteresis = 2;
      scale *= 2;
    }
    update(rule, state, overflow);
    ASSERT_EQ(state.scale, scale) << step;
    ASSERT_EQ(state.hysteresis_left, hysteresis) << step;
  }
}

// MXNet 1.9.1 looks for overflows first, then takes the scale that it decided on in the step before, and decides from that: an
// overflow skips two steps and quarters the scale.
TEST(LossScale, MxnetChangesItOneStepLate) {
  const LossScaleRule rule = rule_of("mxnet");
  LossScaleState state = initial_state(rule);
  std::vector<double> used;
  for (int step = 0; step < 7; ++step) {
    used.push_back(std::log2(state.scale));
    update(rule, state, state.scale > 0x1p14);
  }
  EXPECT_EQ(used, (std::vector<double>{16, 16, 15, 14, 13, 13, 13}));
}

TEST(LossScale, FollowsMxnetsOwnBookkeeping) {
  LossScaleRule rule = rule_of("mxnet");
  rule.growth_interval = 4;
  rule.cap = 0x1p17;
  LossScaleState state = initial_state(rule);
  double scale = 65536, next = 65536;
  int64_t unskipped = 0;
  const Philox random(15, 16);
  for (int64_t step = 0; step < 2000; ++step) {
    const bool overflow = random.below(step, 6) == 0;
    scale = next;
    unskipped = overflow ? 0 : unskipped + 1;
    if (overflow) next = scale / 2;
    if (unskipped == 4) {
      unskipped = 0;
      next = std::min(0x1p17, scale * 2);
    }
    update(rule, state, overflow);
    ASSERT_EQ(state.scale, scale) << step;
    ASSERT_EQ(state.next_scale, next) << step;
  }
}

// The scales that a Python program prints in hexadecimal for a line of overflows, one a step, which `{}` in it stands for.
std::vector<double> scales_of(const std::string& python, std::string program, const std::string& overflows) {
  program.replace(program.find("{}"), 2, overflows);
  const std::string command = fmt::format("{} -c \"\n{}\" 2>/dev/null", python, program);
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), [](FILE* file) { return file ? pclose(file) : 0; });
  std::vector<double> scales;
  for (double scale = 0; pipe && std::fscanf(pipe.get(), " scale %la", &scale) == 1;) scales.push_back(scale);
  return scales;
}

// Overflows of 400 steps, one in `rarity`.
std::string random_overflows(uint64_t stream, uint32_t rarity) {
  const Philox random(stream, stream + 1);
  std::string overflows;
  for (uint64_t i = 0; i < 400; ++i) overflows += random.below(i, rarity) == 0 ? '1' : '0';
  return overflows;
}

void expect_scales(const LossScaleRule& rule, const std::string& overflows, const std::vector<double>& scales) {
  ASSERT_EQ(scales.size(), overflows.size());
  LossScaleState state = initial_state(rule);
  for (size_t i = 0; i < scales.size(); ++i) {
    update(rule, state, overflows[i] == '1');
    ASSERT_EQ(state.scale, scales[i]) << i;
  }
}

// Runs DeepSpeed's own class where that is installed: 0.19.8 and later have this rule.
TEST(LossScaleSlow, AgreesWithDeepSpeed) {
  const std::string python = find_python("deepspeed");
  if (python.empty()) GTEST_SKIP() << "DeepSpeed is not installed";
  LossScaleRule rule = rule_of("deepspeed");
  rule.growth_interval = 3;
  const std::string overflows = random_overflows(17, 7);
  const std::vector<double> scales = scales_of(python,
                                               "import os, sys\n"
                                               "out = os.fdopen(os.dup(1), 'w')\n"
                                               "os.dup2(2, 1)\n"
                                               "from deepspeed.runtime.fp16 import loss_scaler\n"
                                               "loss_scaler.dist.get_rank = lambda *_: 1\n"
                                               "scaler = loss_scaler.DynamicLossScaler(2.0**16, 3, 1, 2, False)\n"
                                               "for c in '{}':\n"
                                               "  scaler.update_scale(c == '1')\n"
                                               "  print('scale', float(scaler.cur_scale).hex(), file=out)\n"
                                               "out.flush()\n",
                                               overflows);
  expect_scales(rule, overflows, scales);
}

// Runs MXNet's own class where that is installed (1.9.1, with numpy before 1.24).
TEST(LossScaleSlow, AgreesWithMxnet) {
  const std::string python = find_python("mxnet");
  if (python.empty()) GTEST_SKIP() << "MXNet is not installed";
  LossScaleRule rule = rule_of("mxnet");
  rule.growth_interval = 4;
  rule.cap = 0x1p17;
  const std::string overflows = random_overflows(19, 6);
  const std::vector<double> scales = scales_of(python,
                                               "from mxnet import gluon\n"
                                               "from mxnet.contrib.amp.loss_scaler import LossScaler\n"
                                               "weight = gluon.Parameter('weight', shape=(1,), init='ones')\n"
                                               "weight.initialize()\n"
                                               "scaler = LossScaler()\n"
                                               "scaler._scale_seq_len, scaler._max_loss_scale = 4, 2.0**17\n"
                                               "for c in '{}':\n"
                                               "  weight.grad()[:] = float('inf') if c == '1' else 1\n"
                                               "  scaler.has_overflow([weight])\n"
                                               "  print('scale', float(scaler.loss_scale).hex())\n",
                                               overflows);
  expect_scales(rule, overflows, scales);
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
