// Every op's gradient against central finite differences in FP64.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cmath>
#include <set>

#include "tests/core/op_rows.h"
#include "tests/support/engine_fixture.h"

namespace ulpscope {
namespace {

// Whether a gradient is what central differences with h = 2^-17 give. Their truncation is h^2 |f'''| / 6 and their rounding eps |f|
// / h; the rows' functions keep |f| and |f'''| below 2^9, so each stays below 2^-27.
constexpr double kStep = 0x1p-17;
bool near_difference(double gradient, double difference) {
  return std::abs(gradient - difference) <= 2 * 0x1p-27 * std::max(1.0, std::abs(difference));
}

class GradientTest : public EngineTest {
 protected:
  // A scalar that weighs every element of the op's first output differently.
  Tensor evaluate(const OpRow& row, std::vector<Tensor> inputs) {
    if (!row.labels.empty()) inputs.push_back(labels(row.labels));
    const Tensor output = dispatch(find_op(row.op), inputs, row.attributes)[0];
    return sum(mul(output, random(DType::f64, {output.shape().begin(), output.shape().end()}, 99, 0.5, 1.5)));
  }
  double evaluate_at(const OpRow& row, const std::vector<std::vector<double>>& values) {
    const NoGrad no_grad;
    std::vector<Tensor> inputs;
    for (size_t i = 0; i < values.size(); ++i) inputs.push_back(tensor(DType::f64, row.inputs[i].shape, values[i]));
    return to_host(evaluate(row, inputs))[0];
  }
};

TEST_F(GradientTest, MatchFiniteDifferences) {
  for (const OpRow& row : op_rows()) {
    SCOPED_TRACE(row.op + " " + row.variant);
    std::vector<Tensor> inputs;
    std::vector<std::vector<double>> values;
    for (size_t i = 0; i < row.inputs.size(); ++i) {
      inputs.push_back(random(DType::f64, row.inputs[i].shape, i, row.inputs[i].low, row.inputs[i].high));
      values.push_back(to_host(inputs.back()));
      inputs.back().set_requires_grad(row.inputs[i].differentiable);
    }
    backward(evaluate(row, inputs));
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (!row.inputs[i].differentiable) continue;
      ASSERT_TRUE(inputs[i].grad());
      const std::vector<double> gradient = to_host(inputs[i].grad());
      for (size_t k = 0; k < gradient.size(); ++k) {
        auto moved = values;
        moved[i][k] = values[i][k] + kStep;
        const double up = evaluate_at(row, moved);
        moved[i][k] = values[i][k] - kStep;
        const double down = evaluate_at(row, moved);
        const double expected = (up - down) / (2 * kStep);
        EXPECT_TRUE(near_difference(gradient[k], expected))
            << "input " << i << " element " << k << ": " << gradient[k] << ", by differences " << expected;
      }
    }
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

  Tensor y = random(DType::f32, {8}, 3);
  y.set_requires_grad(true);
  backward(sum(mul(cast(y, DType::f16), random(DType::f16, {8}, 4))));
  EXPECT_EQ(y.grad().dtype(), DType::f32);
  EXPECT_EQ(to_host(y.grad()), to_host(random(DType::f16, {8}, 4)));
}

TEST_F(GradientTest, TheComparisonSeesANaNAndAWrongBitThatMatters) {
  EXPECT_FALSE(near_difference(std::nan(""), 1.0));
  EXPECT_FALSE(near_difference(1.0, std::nan("")));
  EXPECT_FALSE(near_difference(1.0 + 0x1p-20, 1.0));
  EXPECT_TRUE(near_difference(1.0, 1.0));
}

}  // namespace
}  // namespace ulpscope
