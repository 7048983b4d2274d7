// Optimizers against the published recurrences in plain FP64, and FP32 updates against one rounding of them.
#include "ulpscope/core/optim/optimizer.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "tests/support/engine_fixture.h"
#include "ulpscope/core/optim/schedule.h"

namespace ulpscope {
namespace {

class OptimizerTest : public EngineTest {
 protected:
  static constexpr int kSteps = 5;
  static constexpr size_t kSize = 37;

  double gradient(int step, size_t i) const { return std::sin(static_cast<double>(step * 100) + static_cast<double>(i)); }

  // The weights after kSteps steps with those gradients.
  std::vector<double> run(const std::function<std::unique_ptr<Optimizer>(std::vector<OptimizedParameter>)>& make) {
    Tensor w = tensor(DType::f64, {kSize}, initial());
    w.body()->parameter = intern("w");
    w.set_requires_grad(true);
    const auto optimizer = make({{w, intern("w"), intern("")}});
    for (int step = 1; step <= kSteps; ++step) {
      std::vector<double> g(kSize);
      for (size_t i = 0; i < kSize; ++i) g[i] = gradient(step, i);
      w.set_grad(tensor(DType::f64, {kSize}, g));
      optimizer->step();
    }
    return to_host(w);
  }
  static std::vector<double> initial() {
    std::vector<double> w(kSize);
    for (size_t i = 0; i < kSize; ++i) w[i] = 0.1 * static_cast<double>(i) - 1;
    return w;
  }
  // Some tens of FP64 roundings of values below 4.
  void expect_near(const std::vector<double>& got, const std::vector<double>& expected) {
    for (size_t i = 0; i < kSize; ++i)
      EXPECT_TRUE(std::abs(got[i] - expected[i]) <= 100 * 4 * 0x1p-53) << i << ": " << got[i] << " " << expected[i];
  }
};

TEST_F(OptimizerTest, SgdWithMomentumDampeningNesterovAndDecay) {
  for (const SgdOptions& options : {SgdOptions{}, SgdOptions{.momentum = 0.9}, SgdOptions{.weight_decay = 0.1},
                                    SgdOptions{.momentum = 0.9, .dampening = 0.5, .weight_decay = 0.1},
                                    SgdOptions{.momentum = 0.9, .weight_decay = 0.1, .nesterov = true}}) {
    std::vector<double> w = initial(), buffer(kSize);
    for (int step = 1; step <= kSteps; ++step) {
      for (size_t i = 0; i < kSize; ++i) {
        double g = gradient(step, i) + options.weight_decay * w[i];
        if (options.momentum != 0) {
          buffer[i] = step == 1 ? g : options.momentum * buffer[i] + (1 - options.dampening) * g;
          g = options.nesterov ? g + options.momentum * buffer[i] : buffer[i];
        }
        w[i] -= 0.05 * g;
      }
    }
    expect_near(run([&](auto parameters) { return make_sgd(std::move(parameters), 0.05, options); }), w);
  }
}

TEST_F(OptimizerTest, AdamAndAdamW) {
  for (const AdamOptions& options : {AdamOptions{}, AdamOptions{.beta1 = 0.8, .beta2 = 0.95, .eps = 1e-3, .weight_decay = 0.1},
                                     AdamOptions{.weight_decay = 0.1, .decoupled = true}}) {
    std::vector<double> w = initial(), mean(kSize), square(kSize);
    const double rate = 0.01;
    for (int step = 1; step <= kSteps; ++step) {
      for (size_t i = 0; i < kSize; ++i) {
        const double g = gradient(step, i) + (options.decoupled ? 0 : options.weight_decay * w[i]);
        mean[i] = options.beta1 * mean[i] + (1 - options.beta1) * g;
        square[i] = options.beta2 * square[i] + (1 - options.beta2) * g * g;
        const double m = mean[i] / (1 - std::pow(options.beta1, step)), v = square[i] / (1 - std::pow(options.beta2, step));
        if (options.decoupled) w[i] -= rate * options.weight_decay * w[i];
        w[i] -= rate * m / (std::sqrt(v) + options.eps);
      }
    }
    expect_near(run([&](auto parameters) { return make_adam(std::move(parameters), rate, options); }), w);
  }
}

TEST_F(OptimizerTest, Lion) {
  for (const LionOptions& options : {LionOptions{}, LionOptions{.beta1 = 0.5, .beta2 = 0.8, .weight_decay = 0.1}}) {
    std::vector<double> w = initial(), mean(kSize);
    const double rate = 0.01;
    for (int step = 1; step <= kSteps; ++step) {
      for (size_t i = 0; i < kSize; ++i) {
        const double g = gradient(step, i), direction = options.beta1 * mean[i] + (1 - options.beta1) * g;
        w[i] -= rate * ((direction > 0) - (direction < 0) + options.weight_decay * w[i]);
        mean[i] = options.beta2 * mean[i] + (1 - options.beta2) * g;
      }
    }
    expect_near(run([&](auto parameters) { return make_lion(std::move(parameters), rate, options); }), w);
  }
}

TEST(Schedule, FactorsAreThoseOfPyTorchsSchedulers) {
  const auto factors = [](const Schedule& schedule, uint64_t total) {
    std::vector<double> all;
    for (uint64_t step = 0; step < total; ++step) all.push_back(schedule.factor(step, total));
    return all;
  };
  using ::testing::DoubleEq;
  using ::testing::ElementsAre;
  EXPECT_THAT(factors({}, 3), ElementsAre(1, 1, 1));
  EXPECT_THAT(factors({.warmup = 3}, 5), ElementsAre(DoubleEq(1.0 / 3), DoubleEq(2.0 / 3), 1, 1, 1));
  // LinearLR(start_factor=1, end_factor=0.5, total_iters=4), stepped four times.
  EXPECT_THAT(factors({.type = ScheduleType::linear, .end_factor = 0.5}, 4), ElementsAre(1, 0.875, 0.75, 0.625));
  // CosineAnnealingLR(T_max=4, eta_min=0.2) of a rate of 1.
  EXPECT_THAT(
      factors({.type = ScheduleType::cosine, .end_factor = 0.2}, 4),
      ElementsAre(1, DoubleEq(0.2 + 0.4 * (1 + std::sqrt(0.5))), DoubleEq(0.6), DoubleEq(0.2 + 0.4 * (1 - std::sqrt(0.5)))));
  // The schedule's own number of steps counts before the run's; beyond it stays at its end.
  EXPECT_THAT(factors({.type = ScheduleType::linear, .end_factor = 0.5, .steps = 2}, 4), ElementsAre(1, 0.75, 0.5, 0.5));
  // StepLR(step_size=2, gamma=0.5), after two steps of warm-up.
  EXPECT_THAT(factors({.type = ScheduleType::step, .warmup = 2, .step_size = 2, .gamma = 0.5}, 8),
              ElementsAre(0.5, 1, 1, 1, 0.5, 0.5, 0.25, 0.25));
}

// One update of one 16-bit weight.
class NarrowUpdate : public OptimizerTest {
 protected:
  using Make = std::function<std::unique_ptr<Optimizer>(std::vector<OptimizedParameter>)>;
  // The weight, which begins at `start`, and what the optimizer keeps, after steps with these gradients.
  std::vector<double> run(DType dtype, UpdateMath math, double start, const std::vector<double>& gradients, const Make& make) {
    Tensor w = tensor(dtype, {1}, {start});
    w.body()->parameter = intern("w");
    const auto optimizer = make({{w, intern("w"), intern("")}});
    optimizer->math = math;
    for (const double gradient : gradients) {
      w.set_grad(tensor(dtype, {1}, {gradient}));
      optimizer->step();
    }
    std::vector<double> values = to_host(w);
    for (const Tensor& state : optimizer->states()[0].tensors) values.push_back(to_host(state)[0]);
    return values;
  }
  static std::unique_ptr<Optimizer> adam(std::vector<OptimizedParameter> parameters) {
    return make_adam(std::move(parameters), 1e-3, {});
  }
};

// The square of 1e-5 is zero in FP16, and so is its root plus eps = 1e-8: the step is divided by zero.
TEST_F(NarrowUpdate, AdamOfASmallGradientInFP16IsMinusInfUnlessComputedWide) {
  const auto stepwise = run(DType::f16, UpdateMath::param, 0.5, {1e-5}, adam);
  EXPECT_EQ(stepwise[0], -std::numeric_limits<double>::infinity());
  EXPECT_EQ(stepwise[2], 0);
  const auto wide = run(DType::f16, UpdateMath::fp32, 0.5, {1e-5}, adam);
  // Adam's first step is lr, but for eps: 1e-3 g / (g + 1e-8), and FP16 has 2^-12 between values below 0.5.
  EXPECT_LE(std::abs(wide[0] - (0.5 - 1e-3)), 0x1p-12);
  EXPECT_LT(wide[0], 0.5);
  // BF16 has FP32's exponents.
  EXPECT_TRUE(std::isfinite(run(DType::bf16, UpdateMath::param, 0.5, {1e-5}, adam)[0]));
}

// The recurrences with roundings after PyTorch's tensor operations, or without, by numbers that the format is asked to round. The
// weight begins at 0, so that no bit of an update is lost beside it.
TEST_F(NarrowUpdate, RoundsEveryStepOrOnce) {
  const auto sgd = [](auto parameters) { return make_sgd(std::move(parameters), 0.1, {.momentum = 0.9}); };
  for (int sequence = 0; sequence < 80; ++sequence) {
    const DType dtype = sequence % 2 == 0 ? DType::f16 : DType::bf16;
    const UpdateMath math = sequence % 4 < 2 ? UpdateMath::param : UpdateMath::fp32;
    const auto in_type = [&](double x) { return to_host(tensor(dtype, {1}, {x}))[0]; };
    const auto f = [](double x) { return static_cast<double>(static_cast<float>(x)); };
    const auto r = [&](double x) { return math == UpdateMath::param ? in_type(f(x)) : f(x); };
    const auto fused = [](double a, double b, double c) {
      return static_cast<double>(std::fma(static_cast<float>(a), static_cast<float>(b), static_cast<float>(c)));
    };
    double w = 0, m = 0, v = 0, buffer = 0, w_sgd = 0;
    std::vector<double> gradients;
    for (int step = 1; step <= 4; ++step) {
      const double g = in_type(gradient(step, static_cast<size_t>(sequence)));
      gradients.push_back(g);
      m = r(fused(1 - 0.9, f(g - m), m));
      v = r(fused(f(f(1 - 0.999) * g), g, r(f(0.999) * v)));
      const double root = r(r(std::sqrt(v)) / f(std::sqrt(1 - std::pow(0.999, step))));
      const double denominator = r(root + r(1e-8));
      w = in_type(r(w + f(f(f(-1e-3 / (1 - std::pow(0.9, step))) * m) / denominator)));
      m = in_type(m);
      v = in_type(v);
      buffer = step == 1 ? g : r(fused(1, g, r(f(0.9) * buffer)));
      w_sgd = in_type(r(fused(r(-0.1), buffer, w_sgd)));
      buffer = in_type(buffer);
    }
    EXPECT_THAT(run(dtype, math, 0, gradients, adam), ::testing::ElementsAre(w, m, v)) << name_of(math) << " " << sequence;
    EXPECT_THAT(run(dtype, math, 0, gradients, sgd), ::testing::ElementsAre(w_sgd, buffer)) << name_of(math) << " " << sequence;
  }
}

// d = -2^-12 is half of what FP16 can tell apart at 1: the copy stays, and the master weight goes on.
TEST_F(OptimizerTest, MasterWeightsKeepWhatTheirCopiesLose) {
  Tensor model = tensor(DType::f16, {1}, {1}), master = tensor(DType::f32, {1}, {1});
  const auto optimizer = make_sgd({{master, intern("w"), intern(""), model}}, 0x1p-12, {});
  for (const auto& [kept, copied] : {std::pair{1 - 0x1p-12, 1.0}, {1 - 0x1p-11, 1 - 0x1p-11}}) {
    model.set_grad(tensor(DType::f16, {1}, {1}));
    optimizer->take_gradients();
    EXPECT_FALSE(model.grad());
    EXPECT_EQ(master.grad().dtype(), DType::f32);
    optimizer->step();
    optimizer->zero_grad();
    EXPECT_EQ(to_host(master)[0], kept);
    EXPECT_EQ(to_host(model)[0], copied);
  }
}

TEST_F(OptimizerTest, ParametersWithoutAGradientAreLeftAlone) {
  Tensor w = tensor(DType::f32, {2}, {1, 2});
  w.body()->parameter = intern("w");
  const auto optimizer = make_adam({{w, intern("w"), intern("")}}, 0.1, {});
  optimizer->step();
  EXPECT_THAT(to_host(w), ::testing::ElementsAre(1, 2));
}

}  // namespace
}  // namespace ulpscope
