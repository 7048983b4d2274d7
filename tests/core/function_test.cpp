// Functions with a backward rule of their own, activation checkpointing, and graphs that are kept.
#include "ulpscope/core/engine/function.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>

#include "tests/support/engine_fixture.h"
#include "ulpscope/base/error.h"

namespace ulpscope {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Counts the rows that a recording would have.
class Counter : public Observer {
 public:
  void after(const OpEvent& event) override {
    ids.push_back(fmt::format("{} {:x} of {:x}", event.op.name, event.id, event.forward_id));
  }
  std::vector<std::string> ids;
};

class FunctionTest : public EngineTest {
 protected:
  Tensor leaf(DType dtype, std::vector<int64_t> shape, uint64_t stream = 1) {
    Tensor x = random(dtype, std::move(shape), stream);
    x.set_requires_grad(true);
    return x;
  }
  static std::vector<double> gradient(const Tensor& x) { return to_host(x.grad()); }
};

// y = x^2 with dy/dx = 10 x, which tells it from what the tape would give; notes the types that it sees.
class Square : public Function {
 public:
  explicit Square(std::optional<DType> cast = {}) : cast_(cast) {}
  Tensors forward(std::span<const Tensor> inputs) override {
    seen = inputs[0].dtype();
    product = call("matmul", {inputs[0], inputs[0]}).dtype();
    x_ = inputs[0];
    return {mul(x_, x_)};
  }
  Tensors backward(std::span<const Tensor> gradients) override {
    backward_product = call("matmul", {x_, x_}).dtype();
    return {scale(mul(gradients[0], x_), 10)};
  }
  std::optional<DType> cast_inputs() const override { return cast_; }

  DType seen = DType::u8, product = DType::u8, backward_product = DType::u8;

 private:
  std::optional<DType> cast_;
  Tensor x_;
};

TEST_F(FunctionTest, ItsRuleReplacesTheTape) {
  Tensor x = leaf(DType::f32, {2, 2});
  const Tensor y = apply(std::make_shared<Square>(), {&x, 1})[0];
  backward(sum(scale(y, 3)));
  const std::vector<double> values = to_host(x);
  for (size_t i = 0; i < values.size(); ++i)
    EXPECT_EQ(gradient(x)[i], static_cast<float>(10 * (3 * static_cast<float>(values[i]))));
}

TEST_F(FunctionTest, WithoutAGradientItLeavesNothingOnTheTape) {
  const Tensor x = random(DType::f32, {2, 2});
  EXPECT_FALSE(apply(std::make_shared<Square>(), {&x, 1})[0].requires_grad());
}

TEST_F(FunctionTest, AutocastHoldsInItsBackwardToo) {
  Tensor x = leaf(DType::f32, {2, 2});
  auto function = std::make_shared<Square>();
  {
    Autocast autocast({.dtype = DType::f16, .ops = {}, .modules = {}});
    const AutocastScope scope(&autocast);
    const Tensor y = apply(function, {&x, 1})[0];
    const PhaseGuard loss(Phase::loss);
    backward(sum(y));
  }
  EXPECT_EQ(function->seen, DType::f32);
  EXPECT_EQ(function->product, DType::f16);
  EXPECT_EQ(function->backward_product, DType::f16);
}

TEST_F(FunctionTest, CastInputsSwitchAutocastOff) {
  Tensor x = leaf(DType::f32, {2, 2});
  auto narrow = std::make_shared<Square>(DType::bf16);
  Autocast autocast({.dtype = DType::f16, .ops = {}, .modules = {}});
  {
    const AutocastScope scope(&autocast);
    EXPECT_EQ(apply(narrow, {&x, 1})[0].dtype(), DType::bf16);
    const Tensor half = call("cast", {x}, {}, {.dtype = DType::f16});
    auto wide = std::make_shared<Square>(DType::f32);
    const Tensor y = apply(wide, {&half, 1})[0];
    EXPECT_EQ(wide->seen, DType::f32);
    EXPECT_EQ(wide->product, DType::f32) << "autocast is off within";
    backward(sum(y));
    EXPECT_EQ(wide->backward_product, DType::f32);
  }
  EXPECT_EQ(narrow->seen, DType::bf16);
  ASSERT_TRUE(x.grad());
  EXPECT_EQ(x.grad().dtype(), DType::f32) << "each gradient has its input's type";
  const Tensor outside = apply(narrow, {&x, 1})[0];
  EXPECT_EQ(outside.dtype(), DType::f32) << "without autocast nothing is cast";
}

// Casts that autocast adds count for nothing else: recordings in other precisions have the same ids.
TEST_F(FunctionTest, CastsOfItsInputsShiftNoIds) {
  std::vector<std::string> last;
  for (const bool on : {false, true}) {
    context_.begin_step(1);
    Counter counter;
    const ContextGuard<&Context::observers> observed(std::vector<Observer*>{&counter});
    Autocast autocast({.dtype = DType::f16, .ops = {}, .modules = {}});
    const AutocastScope scope(on ? &autocast : nullptr);
    const Tensor x = leaf(DType::f32, {2, 2});
    apply(std::make_shared<Square>(DType::f16), {&x, 1});
    call("cast", {x}, {}, {.dtype = DType::bf16});
    last.push_back(counter.ids.back());
  }
  EXPECT_EQ(last[0], last[1]);
}

class Wrong : public Function {
 public:
  explicit Wrong(bool number) : number_(number) {}
  Tensors forward(std::span<const Tensor> inputs) override { return {scale(inputs[0], 1)}; }
  Tensors backward(std::span<const Tensor> gradients) override {
    return number_ ? Tensors{gradients[0], gradients[0]} : Tensors{sum(gradients[0])};
  }

 private:
  bool number_;
};

TEST_F(FunctionTest, GradientsThatDoNotFitAreErrors) {
  for (const bool number : {false, true}) {
    Tensor x = leaf(DType::f32, {3});
    try {
      backward(sum(apply(std::make_shared<Wrong>(number), {&x, 1})[0]));
      FAIL() << "expected an error";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(number ? "expected 1 gradient, one for each input, got 2"
                                                 : "the gradient of input 0, f32 [3], came as f32 []"));
    }
  }
}

// Two blocks of a small network with dropout, whose weights and input get gradients.
class ActivationCheckpointTest : public FunctionTest {
 protected:
  struct Run {
    std::vector<std::vector<double>> gradients;
    double loss = 0;
    size_t peak = 0;
  };
  Run run(bool checkpointed, DType autocast_type, int blocks, int64_t width) {
    context_.begin_step(3);
    Tensor x = leaf(DType::f32, {64, width}, 1);
    std::vector<Tensor> weights;
    for (int i = 0; i < blocks; ++i) weights.push_back(leaf(DType::f32, {width, width}, 10 + static_cast<uint64_t>(i)));
    std::optional<Autocast> autocast;
    if (autocast_type != DType::f32) autocast.emplace(AutocastPolicy{.dtype = autocast_type, .ops = {}, .modules = {}});
    Run result;
    backend_->reset_peak();
    Tensor loss;
    {
      const AutocastScope scope(autocast ? &*autocast : nullptr);
      Tensor value = scale(x, 0.5);
      for (int i = 0; i < blocks; ++i) {
        const auto body = [&weight = weights[static_cast<size_t>(i)]](std::span<const Tensor> inputs) {
          Tensor y = dropout(call("tanh", {scale(linear(inputs[0], weight), 0.01)}), 0.3);
          for (int k = 0; k < 4; ++k) y = call("silu", {y});
          return Tensors{add(y, inputs[0])};
        };
        value = checkpointed ? checkpoint(body, {&value, 1})[0] : body({&value, 1})[0];
      }
      const PhaseGuard phase(Phase::loss);
      loss = mean(mul(value, value));
    }
    backward(loss);
    result.peak = backend_->peak_bytes();
    result.loss = to_host(loss)[0];
    result.gradients.push_back(gradient(x));
    for (const Tensor& weight : weights) result.gradients.push_back(gradient(weight));
    return result;
  }
};

TEST_F(ActivationCheckpointTest, GradientsHaveTheSameBits) {
  for (const DType type : {DType::f32, DType::f16, DType::bf16}) {
    const Run kept = run(false, type, 2, 16), again = run(true, type, 2, 16);
    EXPECT_EQ(kept.loss, again.loss);
    EXPECT_EQ(kept.gradients, again.gradients) << info(type).name;
  }
}

TEST_F(ActivationCheckpointTest, AnOutputThatIsGivenTwiceGetsBothGradients) {
  std::vector<std::vector<double>> gradients;
  for (const bool checkpointed : {false, true}) {
    Tensor x = leaf(DType::f32, {5});
    const auto body = [](std::span<const Tensor> inputs) {
      const Tensor y = call("tanh", {inputs[0]});
      return Tensors{y, y};
    };
    const Tensors both = checkpointed ? checkpoint(body, {&x, 1}) : body({&x, 1});
    backward(sum(add(scale(both[0], 3), scale(both[1], 5))));
    gradients.push_back(gradient(x));
  }
  EXPECT_EQ(gradients[0], gradients[1]);
}

// A block keeps nine tensors of its input's size, and with checkpoints one: of 16 blocks there are never more than 16 inputs, the
// 20 or so tensors of the block that is under way, weights and gradients.
TEST_F(ActivationCheckpointTest, PeakMemoryIsThatOfOneBlock) {
  const int blocks = 16;
  const Run kept = run(false, DType::f32, blocks, 64), again = run(true, DType::f32, blocks, 64);
  const double activation = 64 * 64 * sizeof(float);
  EXPECT_LT(static_cast<double>(again.peak), static_cast<double>(kept.peak) - 6 * (blocks - 1) * activation + 20 * activation);
}

TEST_F(ActivationCheckpointTest, AWeightThatSeveralOfThemUseGetsTheSumInTheSameOrder) {
  std::vector<std::vector<double>> gradients;
  for (const bool checkpointed : {false, true}) {
    Tensor x = random(DType::f32, {5, 7}), weight = leaf(DType::f32, {7, 7});
    weight.set_grad(random(DType::f32, {7, 7}, 30, 1e3, 1e4));
    Tensor value = x;
    const auto body = [&](std::span<const Tensor> inputs) { return Tensors{call("tanh", {linear(inputs[0], weight)})}; };
    for (int i = 0; i < 3; ++i) value = checkpointed ? checkpoint(body, {&value, 1})[0] : body({&value, 1})[0];
    EXPECT_TRUE(value.requires_grad()) << "the first input needs no gradient, the weight does";
    backward(sum(value));
    gradients.push_back(gradient(weight));
  }
  EXPECT_EQ(gradients[0], gradients[1]);
}

TEST_F(ActivationCheckpointTest, WhatIsComputedAgainIsNotRecordedAndIdsStay) {
  std::vector<std::vector<std::string>> ids;
  for (const bool checkpointed : {false, true}) {
    Counter counter;
    const ContextGuard<&Context::observers> observed(std::vector<Observer*>{&counter});
    run(checkpointed, DType::f16, 2, 16);
    std::sort(counter.ids.begin(), counter.ids.end());
    ids.push_back(counter.ids);
  }
  EXPECT_THAT(ids[1], ::testing::ElementsAreArray(ids[0]));
}

TEST_F(FunctionTest, AGraphThatIsRetainedServesAgain) {
  Tensor x = leaf(DType::f32, {3});
  const Tensor loss = sum(mul(x, x));
  backward(loss, {.retain_graph = true});
  const std::vector<double> once = gradient(x);
  backward(loss);
  for (size_t i = 0; i < once.size(); ++i) EXPECT_EQ(gradient(x)[i], 2 * once[i]);
  try {
    backward(loss);
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("retain_graph"));
  }
}

}  // namespace
}  // namespace ulpscope
