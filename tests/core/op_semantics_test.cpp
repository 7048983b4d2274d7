// These tests hold trace/op_semantics.h to the engine's ops that compute its functions.
#include "ulpscope/trace/op_semantics.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <set>
#include <sstream>
#include <string>

#include "tests/core/op_rows.h"
#include "tests/support/engine_fixture.h"

namespace ulpscope {
namespace {

size_t inputs_of(OpFunction function) { return std::span<const Meaning>(semantics_of(function).inputs).size(); }
size_t outputs_of(OpFunction function) { return std::span<const Meaning>(semantics_of(function).outputs).size(); }

// Calls `see` for each op that runs.
class OpWatch : public Observer {
 public:
  explicit OpWatch(std::function<void(const OpEvent&)> see) : see_(std::move(see)) {}
  void before(const OpEvent& event, std::span<OutputRecord* const>) override { see_(event); }

 private:
  std::function<void(const OpEvent&)> see_;
};

class OpSemanticsTest : public EngineTest {
 protected:
  // Inputs of a row; the first, or all, times a factor.
  Tensors inputs_of_row(const OpRow& row, double first_by = 1, double others_by = 1) {
    Tensors inputs;
    for (size_t i = 0; i < row.inputs.size(); ++i) {
      const OpRow::Input& input = row.inputs[i];
      const double by = i == 0 ? first_by : others_by;
      Tensor made = input.integers.empty() ? random(DType::f64, input.shape, i, by * input.low, by * input.high)
                                           : reshape(labels(input.integers), input.shape);
      made.set_requires_grad(input.differentiable);
      inputs.push_back(made);
    }
    return inputs;
  }
  std::vector<double> result_of(const OpRow& row, const Tensors& inputs) {
    const NoGrad no_grad;
    return to_host(dispatch(find_op(row.op), inputs, row.attributes)[0]);
  }
};

TEST_F(OpSemanticsTest, OpsTakeTheInputsThatTheirFunctionHas) {
  for (const Op* const op : all_ops()) {
    if (op->is_view || op->function == OpFunction::other) continue;
    SCOPED_TRACE(op->name);
    const OpSemantics& semantics = semantics_of(op->function);
    EXPECT_EQ(op->inputs == kVariadic, semantics.last_repeats);
    if (op->inputs == kVariadic) continue;
    // The engine may take fewer than a function has, as it needs all parameters of a normalization.
    EXPECT_EQ(static_cast<size_t>(op->inputs), inputs_of(op->function));
    EXPECT_LE(op->optional_inputs, semantics.optional_inputs);
  }
}

TEST_F(OpSemanticsTest, OutputsAndAttributesOfCallsAreThoseOfTheFunction) {
  std::set<std::string_view> seen;
  OpWatch watch([&](const OpEvent& event) {
    const OpSemantics& semantics = semantics_of(event.op.function);
    if (event.op.function == OpFunction::other) return;
    seen.insert(semantics.name);
    std::istringstream words{std::string(semantics.attributes)};
    const std::set<std::string, std::less<>> known(std::istream_iterator<std::string>(words), {});
    EXPECT_LE(event.outputs.size(), outputs_of(event.op.function)) << event.op.name;
    EXPECT_LE(event.inputs.size(), semantics.last_repeats ? SIZE_MAX : inputs_of(event.op.function)) << event.op.name;
    for (const Attributes::Item& item : event.attributes.items()) {
      const bool is_extent = std::find(std::begin(kExtentNames), std::end(kExtentNames), item.name) != std::end(kExtentNames);
      EXPECT_TRUE(is_extent || known.contains(item.name)) << event.op.name << ": " << item.name;
    }
    // Integers are places, targets, masks and counts, and nothing else is.
    for (size_t i = 0; i < event.outputs.size(); ++i) {
      if (is_float(event.outputs[i].dtype())) continue;
      EXPECT_TRUE(makes_as(event.op.function, i, Meaning::index) || makes_as(event.op.function, i, Meaning::count))
          << event.op.name;
    }
  });
  context_.observers = {&watch};
  for (const OpRow& row : op_rows()) backward(sum(dispatch(find_op(row.op), inputs_of_row(row), row.attributes)[0]));
  EXPECT_GT(seen.size(), 80U);
}

// In FP64, whose limits none of it comes near.
TEST_F(OpSemanticsTest, WhatIsSaidOfTheirArithmeticIsSo) {
  std::set<std::string_view> bounded, dropping, exact, dividing;
  for (OpRow row : op_rows()) {
    const OpFunction function = find_op(row.op).function;
    const std::string_view name = name_of(function);
    // batch_norm takes what it was given outside of training.
    if (find_op(row.op).is_view || !row.inputs[0].integers.empty() || row.variant == "evaluation") continue;
    SCOPED_TRACE(row.op + " " + row.variant);
    const std::vector<double> of_large = result_of(row, inputs_of_row(row, 1e60));
    const auto is_large = [](double value) { return std::abs(value) > 1e20; };
    if (has_trait(function, kBounded)) {
      bounded.insert(name);
      EXPECT_TRUE(std::none_of(of_large.begin(), of_large.end(), is_large));
    }
    if (has_trait(function, kMayDrop)) {
      dropping.insert(name);
      if (function == OpFunction::clamp) row.attributes.set("min", 0);
      const std::vector<double> values = result_of(row, inputs_of_row(row, 1e6));
      EXPECT_GT(std::count(values.begin(), values.end(), 0), 0);
      EXPECT_GT(std::count_if(values.begin(), values.end(), [](double value) { return value > 0; }), 0);
    }
    // A sum of products grows with what it is of, and has nothing to divide by.
    if (has_trait(function, kSumsProducts)) {
      exact.insert(name);
      const bool has_constant = function == OpFunction::scale;
      EXPECT_TRUE(std::any_of(of_large.begin(), of_large.end(), is_large));
      const std::vector<double> of_zeros = result_of(row, inputs_of_row(row, 0, 0));
      EXPECT_TRUE(has_constant || std::all_of(of_zeros.begin(), of_zeros.end(), [](double value) { return value == 0; }));
    }
    if (const auto divisor = input_of(function, Meaning::divisor)) {
      dividing.insert(name);
      const std::vector<double> values = result_of(row, inputs_of_row(row, *divisor == 0 ? 0 : 1, *divisor == 0 ? 1 : 0));
      EXPECT_TRUE(std::all_of(values.begin(), values.end(), [](double value) { return std::isinf(value); }));
    }
    if (has_trait(function, kSameValues)) {
      const Tensors inputs = inputs_of_row(row);
      EXPECT_EQ(result_of(row, inputs), to_host(inputs[0]));
    }
    // A share of 1, or its logarithm; -Inf has none.
    if (has_trait(function, kWeighsRow) && function != OpFunction::attention) {
      const Tensors inputs = inputs_of_row(row);
      const auto columns = static_cast<size_t>(inputs[0].shape(1));
      double sum = 0;
      const std::vector<double> shares = result_of(row, inputs);
      for (size_t i = 0; i < columns; ++i) sum += function == OpFunction::log_softmax ? std::exp(shares[i]) : shares[i];
      EXPECT_NEAR(sum, 1, static_cast<double>(4 * columns) * 0x1p-52);
    }
  }
  EXPECT_THAT(bounded, testing::IsSupersetOf({"clamp", "layer_norm", "log", "reciprocal", "softmax", "tanh"}));
  EXPECT_THAT(dropping, testing::UnorderedElementsAre("clamp", "dropout", "gelu", "gelu_tanh", "relu", "silu"));
  EXPECT_THAT(exact, testing::IsSupersetOf({"add", "convolution", "linear", "matmul", "mean", "mul", "sub", "sum"}));
  EXPECT_THAT(dividing, testing::UnorderedElementsAre("div", "reciprocal", "rsqrt"));
}

}  // namespace
}  // namespace ulpscope
