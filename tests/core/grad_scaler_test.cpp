// The gradient scaler: what it does to gradients, steps and the scale.
#include "ulpscope/core/optim/grad_scaler.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "tests/support/engine_fixture.h"
#include "ulpscope/base/error.h"

namespace ulpscope {
namespace {

using ::testing::ElementsAre;

class GradScalerTest : public EngineTest {
 protected:
  GradScalerTest() {
    weight_ = tensor(DType::f32, {2}, {1, 2});
    weight_.body()->parameter = intern("w");
    weight_.set_requires_grad(true);
    optimizer_ = make_sgd({{weight_, intern("w"), intern("")}}, 0.5, {});
  }
  // A step whose unscaled gradient is `factor`, 1, with the loss scaled by the scaler. True iff it was taken.
  bool step(GradScaler& scaler, double factor) {
    const Tensor loss = sum(mul(weight_, tensor(DType::f32, {2}, {factor, 1})));
    backward(scaler.scale_loss(loss));
    const Tensor found = scaler.unscale(*optimizer_);
    const bool taken = scaler.step(*optimizer_, read_scalars({&found, 1})[0] != 0);
    scaler.update();
    optimizer_->zero_grad();
    return taken;
  }
  Tensor weight_;
  std::unique_ptr<Optimizer> optimizer_;
};

TEST_F(GradScalerTest, UnscalesExactlyAndSteps) {
  GradScaler scaler(LossScaleRule{});
  EXPECT_TRUE(step(scaler, 3));
  EXPECT_THAT(to_host(weight_), ElementsAre(1 - 0.5 * 3, 2 - 0.5));
}

TEST_F(GradScalerTest, SkipsNonfiniteStepsBacksOffAndGrowsAgain) {
  LossScaleRule rule;
  rule.growth_interval = 2;
  GradScaler scaler(rule);
  const double huge = 1e38;  // times 65536: Inf
  EXPECT_FALSE(step(scaler, huge));
  EXPECT_THAT(to_host(weight_), ElementsAre(1, 2));
  EXPECT_EQ(scaler.scale(), 32768);
  EXPECT_FALSE(step(scaler, std::nan("")));
  EXPECT_EQ(scaler.scale(), 16384);
  EXPECT_TRUE(step(scaler, 1));
  EXPECT_EQ(scaler.scale(), 16384);
  EXPECT_TRUE(step(scaler, 1));
  EXPECT_EQ(scaler.scale(), 32768);
}

TEST_F(GradScalerTest, SavesAndRestores) {
  LossScaleRule rule;
  rule.growth_interval = 3;
  GradScaler scaler(rule), restored(rule);
  step(scaler, 1);
  step(scaler, 1);
  restored.restore(scaler.state());
  step(restored, 1);
  EXPECT_EQ(restored.scale(), 131072);
}

TEST_F(GradScalerTest, SkippingIsPerOptimizerAndTheScaleBacksOffOnce) {
  Tensor other = tensor(DType::f32, {1}, {1});
  other.body()->parameter = intern("other");
  other.set_requires_grad(true);
  auto second = make_sgd({{other, intern("other"), intern("")}}, 0.5, {});
  GradScaler scaler(LossScaleRule{});
  const Tensor loss = add(sum(mul(weight_, tensor(DType::f32, {2}, {std::nan(""), 1}))), sum(other));
  backward(scaler.scale_loss(loss));
  const Tensor flags[] = {scaler.unscale(*optimizer_), scaler.unscale(*second)};
  const auto values = read_scalars(flags);
  EXPECT_FALSE(scaler.step(*optimizer_, values[0] != 0));
  EXPECT_TRUE(scaler.step(*second, values[1] != 0));
  EXPECT_EQ(scaler.update(), LossScaleChange::backoff);
  EXPECT_EQ(scaler.scale(), 32768);
  EXPECT_THAT(to_host(other), ElementsAre(0.5));
}

TEST_F(GradScalerTest, MisuseIsAnErrorThatSaysWhat) {
  GradScaler scaler(LossScaleRule{});
  EXPECT_THROW(scaler.unscale(*optimizer_), Error) << "no gradients";
  EXPECT_THROW(scaler.step(*optimizer_, false), Error) << "not unscaled";
  backward(scaler.scale_loss(sum(weight_)));
  scaler.unscale(*optimizer_);
  EXPECT_THROW(scaler.unscale(*optimizer_), Error) << "twice";
}

// 2049 is 2048 in BF16, which has FP32's range; half of FP16's smallest subnormal would be 0.
TEST_F(GradScalerTest, UnscalesBF16GradientsInTheirOwnTypeAndFP16OnesNotAtAll) {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    Tensor half = tensor(dtype, {3}, {1, 1, 1});
    half.body()->parameter = intern("half");
    half.set_requires_grad(true);
    auto optimizer = make_sgd({{half, intern("half"), intern("")}}, 1, {});
    GradScaler scaler({.initial = 2, .dynamic = false});
    half.set_grad(tensor(dtype, {3}, {0x1p-24, 6, 2049}));
    if (dtype == DType::f16) {
      try {
        scaler.unscale(*optimizer);
        FAIL();
      } catch (const Error& error) {
        EXPECT_STREQ(error.what(),
                     "unscale: the gradient of 'half' is FP16, which flushes what the scale kept; expected FP32 master weights");
      }
      continue;
    }
    const Tensor found = scaler.unscale(*optimizer);
    EXPECT_EQ(half.grad().dtype(), dtype);
    EXPECT_THAT(to_host(half.grad()), ElementsAre(0x1p-25, 3, 1024));
    EXPECT_EQ(read_scalars({&found, 1})[0], 0);
  }
}

// An Inf in one of the batches whose gradients are added up skips the step as a whole, and the scale is the same for all of them.
TEST_F(GradScalerTest, AnInfInOneMicroBatchSkipsTheWholeStep) {
  for (const int broken : {0, 1, 2, 3}) {  // 3: none
    GradScaler scaler(LossScaleRule{});
    const std::vector<double> before = to_host(weight_);
    for (int batch = 0; batch < 3; ++batch) {
      EXPECT_EQ(scaler.scale(), 65536);
      const double factor = batch == broken ? 1e38 : 1.0;  // times 65536: Inf
      backward(scaler.scale_loss(sum(mul(weight_, tensor(DType::f32, {2}, {factor, 1})))));
    }
    const Tensor found = scaler.unscale(*optimizer_);
    EXPECT_EQ(scaler.step(*optimizer_, read_scalars({&found, 1})[0] != 0), broken == 3);
    EXPECT_EQ(scaler.update(), broken == 3 ? LossScaleChange::none : LossScaleChange::backoff);
    optimizer_->zero_grad();
    if (broken == 3) {
      EXPECT_THAT(to_host(weight_), ElementsAre(before[0] - 0.5 * 3, before[1] - 0.5 * 3));
    } else {
      EXPECT_EQ(to_host(weight_), before);
    }
  }
}

// As in PyTorch's recipe for several losses: each is scaled by the one scale, and what both leave in a gradient is unscaled once.
TEST_F(GradScalerTest, SeveralLossesAndOptimizersShareOneScale) {
  Tensor other = tensor(DType::f32, {2}, {1, 1});
  other.body()->parameter = intern("other");
  other.set_requires_grad(true);
  auto second = make_sgd({{other, intern("other"), intern("")}}, 1, {});
  GradScaler scaler(LossScaleRule{});
  backward(scaler.scale_loss(sum(add(weight_, scale(other, 2)))));
  backward(scaler.scale_loss(sum(mul(weight_, tensor(DType::f32, {2}, {2, 3})))));
  const Tensor flags[] = {scaler.unscale(*optimizer_), scaler.unscale(*second)};
  const auto values = read_scalars(flags);
  EXPECT_TRUE(scaler.step(*optimizer_, values[0] != 0));
  EXPECT_TRUE(scaler.step(*second, values[1] != 0));
  EXPECT_EQ(scaler.update(), LossScaleChange::none);
  EXPECT_THAT(to_host(weight_), ElementsAre(1 - 0.5 * 3, 2 - 0.5 * 4));
  EXPECT_THAT(to_host(other), ElementsAre(-1, -1));
}

TEST_F(GradScalerTest, ClippingLimitsTheNormAndKeepsNaN) {
  backward(sum(mul(weight_, tensor(DType::f32, {2}, {3, 4}))));
  const Tensor norm = gradient_norm({&optimizer_, 1});
  EXPECT_EQ(to_host(norm)[0], 5);
  clip_gradient_norm(*optimizer_, norm, 1);
  // g * (1 / (5 + 1e-6)), two FP32 roundings.
  const auto clipped = to_host(weight_.grad());
  EXPECT_NEAR(clipped[0], 3 / 5.000001, 3 / 5.0 * 3 * 0x1p-24);
  EXPECT_NEAR(clipped[1], 4 / 5.000001, 4 / 5.0 * 3 * 0x1p-24);
  clip_gradient_value(*optimizer_, 0.7);
  EXPECT_EQ(to_host(weight_.grad())[1], static_cast<double>(0.7f));
  optimizer_->zero_grad();
  backward(sum(mul(weight_, tensor(DType::f32, {2}, {std::nan(""), 4}))));
  clip_gradient_norm(*optimizer_, gradient_norm({&optimizer_, 1}), 1);
  EXPECT_TRUE(std::isnan(to_host(weight_.grad())[1]));
}

}  // namespace
}  // namespace ulpscope
