// Every op's gradient against central finite differences in FP64.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cmath>
#include <set>

#include "tests/core/op_rows.h"
#include "tests/support/engine_fixture.h"
#include "ulpscope/base/error.h"

namespace ulpscope {
namespace {

// Whether a gradient is what central differences with h = 2^-17 give. Their truncation is h^2 |f'''| / 6 and their rounding eps |f|
// / h: with |f| and |f'''| below 2^9, which expect_moderate looks at, each stays below 2^-27.
constexpr double kStep = 0x1p-17;
constexpr double kMost = 0x1p9;
bool near_difference(double gradient, double difference) {
  return std::abs(gradient - difference) <= 2 * 0x1p-27 * std::max(1.0, std::abs(difference));
}

class GradientTest : public EngineTest {
 protected:
  Tensors run(const OpRow& row, const std::vector<Tensor>& inputs) { return dispatch(find_op(row.op), inputs, row.attributes); }
  // Input i of a row.
  Tensor make_input(const OpRow& row, size_t i) {
    const OpRow::Input& input = row.inputs[i];
    Tensor made = input.integers.empty() ? random(DType::f64, input.shape, i, input.low, input.high)
                                         : reshape(labels(input.integers), input.shape);
    made.set_requires_grad(input.differentiable);
    return made;
  }
  // A scalar that weighs every element of the output differently.
  Tensor weighted_sum(const Tensor& output) {
    return sum(mul(output, random(DType::f64, {output.shape().begin(), output.shape().end()}, 99, 0.5, 1.5)));
  }
  // That of output `slot`, with element k of input i moved.
  double evaluate_at(const OpRow& row, size_t slot, std::vector<std::vector<double>> values, size_t i, size_t k, double by) {
    const NoGrad no_grad;
    values[i][k] += by;
    std::vector<Tensor> inputs;
    for (size_t n = 0; n < values.size(); ++n) {
      const OpRow::Input& input = row.inputs[n];
      inputs.push_back(input.integers.empty() ? tensor(DType::f64, input.shape, values[n]) : make_input(row, n));
    }
    return to_host(weighted_sum(run(row, inputs)[slot]))[0];
  }
  // That the function and its third derivative, by differences with a step that rounding leaves well above 2^-6 of the limit, are
  // what the tolerance takes them for.
  template <typename F>
  void expect_moderate(const F& f) {
    constexpr double h = 0x1p-12;
    EXPECT_LT(std::abs(f(0)), kMost);
    EXPECT_LT(std::abs((f(2 * h) - f(-2 * h) - 2 * (f(h) - f(-h))) / (2 * h * h * h)), kMost);
  }
  void compare_with_differences(const OpRow& row, size_t slot) {
    std::vector<Tensor> inputs;
    std::vector<std::vector<double>> values;
    for (size_t i = 0; i < row.inputs.size(); ++i) {
      inputs.push_back(make_input(row, i));
      values.push_back(to_host(inputs.back()));
    }
    backward(weighted_sum(run(row, inputs)[slot]));
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (!row.inputs[i].differentiable) continue;
      ASSERT_TRUE(inputs[i].grad());
      const std::vector<double> gradient = to_host(inputs[i].grad());
      for (size_t k = 0; k < gradient.size(); ++k) {
        const auto f = [&](double by) { return evaluate_at(row, slot, values, i, k, by); };
        expect_moderate(f);
        const double expected = (f(kStep) - f(-kStep)) / (2 * kStep);
        EXPECT_TRUE(near_difference(gradient[k], expected))
            << "input " << i << " element " << k << ": " << gradient[k] << ", by differences " << expected;
      }
    }
  }
};

TEST_F(GradientTest, MatchFiniteDifferences) {
  for (const OpRow& row : op_rows()) {
    SCOPED_TRACE(row.op + " " + row.variant);
    int differentiated = 0;
    for (uint32_t slot = 0; slot < 32; ++slot) {
      if ((find_op(row.op).differentiable_outputs >> slot & 1) == 0) continue;
      compare_with_differences(row, slot);
      ++differentiated;
    }
    EXPECT_GT(differentiated, 0);
  }
}

// Backward rules take the gradient of the outputs that they name; the tape must not pass them any other, to be lost.
TEST_F(GradientTest, OutputsWithoutAGradientAreConstants) {
  for (const OpRow& row : op_rows()) {
    SCOPED_TRACE(row.op + " " + row.variant);
    std::vector<Tensor> inputs;
    for (size_t i = 0; i < row.inputs.size(); ++i) inputs.push_back(make_input(row, i));
    const Tensors outputs = run(row, inputs);
    for (size_t slot = 0; slot < outputs.size(); ++slot) {
      EXPECT_EQ(outputs[slot].requires_grad(), (find_op(row.op).differentiable_outputs >> slot & 1) != 0) << "output " << slot;
    }
  }
}

TEST_F(GradientTest, EveryOpHasAKernel) {
  const auto computed = backend_->ops();
  for (const Op* op : all_ops()) {
    if (op->is_view) continue;
    EXPECT_THAT(computed, testing::Contains(op->name));
  }
}

TEST_F(GradientTest, EveryDifferentiableOpHasARow) {
  std::set<std::string_view> rows;
  const auto all = op_rows();
  for (const OpRow& row : all) rows.insert(row.op);
  for (const Op* op : all_ops()) {
    // Views and casts are covered by name below: they change no values that differences could see.
    if (!op->backward || op->is_view || op->name == "cast") continue;
    EXPECT_TRUE(rows.contains(op->name)) << op->name << " has a backward rule and no row in tests/core/op_rows.h";
  }
}

TEST_F(GradientTest, ViewsAndCastsPassGradientsThrough) {
  Tensor x = random(DType::f64, {2, 3, 4});
  x.set_requires_grad(true);
  const int64_t flat[] = {6, -1};
  const Tensor weights = random(DType::f64, {4, 6}, 5);
  backward(sum(mul(transpose(reshape(x, flat)), weights)));
  const auto gradient = to_host(x.grad());
  const auto expected = to_host(copy(transpose(weights)));
  EXPECT_EQ(gradient, expected);

  // permute, slice, split, expand and cat give every element the weight that it meets.
  Tensor z = random(DType::f64, {2, 6}, 6);
  z.set_requires_grad(true);
  constexpr int kSwapped[] = {1, 0};
  const int64_t wide[] = {3, 2, 2};
  const Tensors parts = split(permute(z, kSwapped), 3, 0);  // rows 0 and 1, 2 and 3, 4 and 5 of [6, 2]
  const Tensor repeated = expand(parts[2], wide), last = slice(parts[0], 0, 1, 1), both[] = {last, last};
  const Tensor repeated_weights = random(DType::f64, {3, 2, 2}, 7), last_weights = random(DType::f64, {2, 2}, 8);
  backward(add(sum(mul(repeated, repeated_weights)), sum(mul(cat(both, 0), last_weights))));
  const auto z_gradient = to_host(z.grad()), w = to_host(repeated_weights), v = to_host(last_weights);
  for (size_t column = 0; column < 2; ++column) {
    for (size_t row = 0; row < 6; ++row) {
      double weight = 0;
      for (size_t k = 0; row >= 4 && k < 3; ++k) weight += w[k * 4 + (row - 4) * 2 + column];
      if (row == 1) weight = v[column] + v[2 + column];
      EXPECT_EQ(z_gradient[column * 6 + row], weight) << row << " " << column;
    }
  }

  Tensor y = random(DType::f32, {8}, 3);
  y.set_requires_grad(true);
  backward(sum(mul(cast(y, DType::f16), random(DType::f16, {8}, 4))));
  EXPECT_EQ(y.grad().dtype(), DType::f32);
  EXPECT_EQ(to_host(y.grad()), to_host(random(DType::f16, {8}, 4)));
}

// A condition has a type of its own: it decides neither the result's type nor what is cast.
TEST_F(GradientTest, AConditionOnlySelects) {
  const Tensor later = attention_mask(2, 2, true);  // true above the diagonal
  Tensor a = tensor(DType::f16, {2, 2}, {1, 2, 3, 4}), b = tensor(DType::f16, {2, 2}, {5, 6, 7, 8});
  a.set_requires_grad(true);
  b.set_requires_grad(true);
  for (const Tensor& condition : {later, tensor(DType::f32, {2, 2}, {0, 1, 0, 0})}) {
    const Tensor chosen = call("where", {condition, a, b}), filled = call("masked_fill", {a, condition}, {{"value", 9}});
    EXPECT_EQ(chosen.dtype(), DType::f16);
    EXPECT_EQ(filled.dtype(), DType::f16);
    EXPECT_EQ(to_host(chosen), (std::vector<double>{5, 2, 7, 8}));
    EXPECT_EQ(to_host(filled), (std::vector<double>{1, 9, 3, 4}));
    a.set_grad({});
    b.set_grad({});
    backward(sum(chosen));
    EXPECT_EQ(to_host(a.grad()), (std::vector<double>{0, 1, 0, 0}));
    EXPECT_EQ(to_host(b.grad()), (std::vector<double>{1, 0, 1, 1}));
  }
}

TEST_F(GradientTest, DimensionsAreChecked) {
  const Tensor x = random(DType::f32, {2, 3});
  const int64_t negative[] = {-1, 2, 3};
  EXPECT_THROW(softmax(x, 2), Error);
  EXPECT_THROW(log_softmax(x, -3), Error);
  EXPECT_THROW(expand(x, negative), Error);
  EXPECT_THROW(slice(x, 1, 2, 2), Error);
  EXPECT_THROW(split(x, 2, 1), Error);
  EXPECT_EQ(to_host(softmax(x, 0)), to_host(copy(transpose(softmax(copy(transpose(x)))))));
}

TEST_F(GradientTest, TheComparisonSeesANaNAndAWrongBitThatMatters) {
  EXPECT_FALSE(near_difference(std::nan(""), 1.0));
  EXPECT_FALSE(near_difference(1.0, std::nan("")));
  EXPECT_FALSE(near_difference(1.0 + 0x1p-20, 1.0));
  EXPECT_TRUE(near_difference(1.0, 1.0));
}

}  // namespace
}  // namespace ulpscope
