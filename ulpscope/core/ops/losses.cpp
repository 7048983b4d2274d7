// Losses: FP32 under autocast.
#include <algorithm>

#include "ulpscope/core/ops/ops.h"

namespace ulpscope {

namespace {

DType wide_type(const Tensor& x) { return x.dtype() == DType::f64 ? DType::f64 : DType::f32; }

void cross_entropy_shape(const OpArguments& arguments, OutputSpecs& specs) {
  const Tensor& logits = arguments.inputs[0];
  const Tensor& target = arguments.inputs[1];
  if (logits.rank() != 2 || target.rank() != 1 || target.shape(0) != logits.shape(0) || target.dtype() != DType::i64)
    wrong_shape(arguments, "logits [N, C] and i64 targets [N]");
  specs.push_back(with_role(make_spec(wide_type(logits), {}), Role::loss));
  specs.push_back(make_spec(wide_type(logits), target.shape()));
}

void cross_entropy_backward(BackwardCall& b) {
  b.set(0, call("cross_entropy_backward", {b.gradient(), b.input(0), b.input(1), b.output(1)}, {}, {.hints = b.into({0})}));
}

void like_input_1(const OpArguments& arguments, OutputSpecs& specs) { specs.push_back(spec_like(arguments.inputs[1], 1)); }

void mse_shape(const OpArguments& arguments, OutputSpecs& specs) {
  const Tensor& prediction = arguments.inputs[0];
  const Tensor& target = arguments.inputs[1];
  if (!std::equal(prediction.shape().begin(), prediction.shape().end(), target.shape().begin(), target.shape().end()))
    wrong_shape(arguments, "prediction and target of one shape");
  specs.push_back(with_role(make_spec(wide_type(prediction), {}), Role::loss));
}

void mse_backward(BackwardCall& b) {
  const Tensor gradient = call("mse_backward", {b.gradient(), b.input(0), b.input(1)}, {}, {.hints = b.into({0})});
  b.set(0, gradient);
  if (b.needs(1)) b.set(1, call("neg", {gradient}, {}, {.hints = b.into({1})}));
}

const Op kLosses[] = {
    {.name = "cross_entropy",
     .inputs = 2,
     .autocast = AutocastClass::loss,
     .shape_rule = cross_entropy_shape,
     .backward = cross_entropy_backward,
     .saves_inputs = 0b11,
     .saves_outputs = 0b10},
    {.name = "cross_entropy_backward", .inputs = 4, .autocast = AutocastClass::exempt, .shape_rule = like_input_1},
    {.name = "mse",
     .inputs = 2,
     .autocast = AutocastClass::loss,
     .shape_rule = mse_shape,
     .backward = mse_backward,
     .saves_inputs = 0b11},
    {.name = "mse_backward", .inputs = 3, .autocast = AutocastClass::exempt, .shape_rule = like_input_1},
};

}  // namespace

std::span<const Op> loss_ops() { return kLosses; }

Tensor cross_entropy(const Tensor& logits, const Tensor& target) { return call("cross_entropy", {logits, target}); }
Tensor mse(const Tensor& prediction, const Tensor& target) { return call("mse", {prediction, target}); }

}  // namespace ulpscope
