// Batch and group normalization.
#include <fmt/format.h>

#include "ulpscope/base/error.h"
#include "ulpscope/core/ops/ops.h"

namespace ulpscope {

namespace {

// Parameters and running statistics have one type, FP32 or that of a 16-bit x, and are not cast: an override by autocast changes
// the type of x alone. The running statistics are outputs in training only, where they change.
void batch_norm_shape(const OpArguments& arguments, OutputSpecs& specs) {
  const Tensor& x = arguments.inputs[0];
  const DType wide = wide_type(x.dtype());
  const DType kept = arguments.inputs[1].dtype();
  bool fits = x.rank() >= 2 && is_float(kept) && (kept == DType::f64) == (wide == DType::f64);
  for (size_t i = 1; i < arguments.inputs.size(); ++i) {
    const Tensor& p = arguments.inputs[i];
    fits = fits && p.rank() == 1 && p.shape(0) == x.shape(1) && p.dtype() == kept;
  }
  if (!fits)
    wrong_shape(arguments, fmt::format("x [N, C, ...] and four tensors [C], all {} or all of one 16-bit type", info(wide).name));
  const bool training = arguments.attributes["training"] != 0;
  // One value has no variance: the running one would be 0 / 0.
  if (training && x.size() == x.shape(1)) wrong_shape(arguments, "more than one value for each channel in training");
  const int64_t channels[] = {x.shape(1)};
  specs.push_back(spec_like(x, 0));
  OutputSpec statistic = with_role(make_spec(wide, channels), Role::buffer);
  statistic.stays_wide = true;
  for (const auto* name : {"mean", "inverse_deviation"}) specs.push_back(with_name(statistic, name));
  if (!training) return;
  specs.push_back(with_name(with_role(in_place_spec(arguments, 3), Role::buffer), "running_mean"));
  specs.push_back(with_name(with_role(in_place_spec(arguments, 4), Role::buffer), "running_var"));
}

// Mean and variance are taken in training only, where the running ones are outputs.
double batch_norm_flops(std::span<const Tensor> inputs, std::span<const Tensor> outputs) {
  return (outputs.size() > 3 ? 7 : 3) * static_cast<double>(inputs[0].size());
}

void batch_norm_backward(BackwardCall& b) {
  const Tensor inputs[] = {b.gradient(), b.input(0), b.input(1), b.output(1), b.output(2)};
  const Tensors gradients = dispatch(find_op("batch_norm_backward"), inputs, b.attributes(), {.hints = b.into({0, 1, 2})});
  for (size_t i = 0; i < 3; ++i) b.set(i, gradients[i]);
}

void batch_norm_backward_shape(const OpArguments& arguments, OutputSpecs& specs) {
  specs.push_back(spec_like(arguments.inputs[1], 1));
  for (int i = 0; i < 2; ++i) specs.push_back(make_spec(arguments.inputs[2].dtype(), arguments.inputs[2].shape()));
}

void group_norm_shape(const OpArguments& arguments, OutputSpecs& specs) {
  const Tensor &x = arguments.inputs[0], &weight = arguments.inputs[1], &bias = arguments.inputs[2];
  const auto groups = static_cast<int64_t>(arguments.attributes["groups"]);
  const bool fits = x.rank() >= 2 && groups >= 1 && x.shape(1) % groups == 0 && x.shape(1) > 0 && weight.rank() == 1 &&
                    weight.shape(0) == x.shape(1) && bias.rank() == 1 && bias.shape(0) == x.shape(1);
  if (!fits) wrong_shape(arguments, fmt::format("x [N, C, ...], weight [C] and bias [C], with groups = {} that divide C", groups));
  const int64_t statistics[] = {x.shape(0), groups};
  specs.push_back(spec_like(x, 0));
  OutputSpec statistic = with_role(make_spec(wide_type(x.dtype()), statistics), Role::buffer);
  statistic.stays_wide = true;
  for (const auto* name : {"mean", "inverse_deviation"}) specs.push_back(with_name(statistic, name));
}

void group_norm_backward(BackwardCall& b) {
  const Tensor inputs[] = {b.gradient(), b.input(0), b.input(1), b.output(1), b.output(2)};
  const Tensors gradients = dispatch(find_op("group_norm_backward"), inputs, {}, {.hints = b.into({0, 1, 2})});
  for (size_t i = 0; i < 3; ++i) b.set(i, gradients[i]);
}

const Op kNormalization[] = {
    {.name = "batch_norm",
     .inputs = 5,
     .cast_inputs = 0b1,
     .shape_rule = batch_norm_shape,
     .backward = batch_norm_backward,
     .needs_attributes = true,
     .saves_inputs = 0b11,
     .saves_outputs = 0b110,
     .flops = batch_norm_flops},
    {.name = "batch_norm_backward",
     .inputs = 5,
     .autocast = AutocastClass::exempt,
     .shape_rule = batch_norm_backward_shape,
     .needs_attributes = true,
     .flops = flops_per_element<8, 1>},
    {.name = "group_norm",
     .inputs = 3,
     .autocast = AutocastClass::fp32,
     .shape_rule = group_norm_shape,
     .backward = group_norm_backward,
     .needs_attributes = true,
     .saves_inputs = 0b11,
     .saves_outputs = 0b110,
     .flops = flops_per_element<7, 0>},
    {.name = "group_norm_backward",
     .inputs = 5,
     .autocast = AutocastClass::exempt,
     .shape_rule = batch_norm_backward_shape,
     .flops = flops_per_element<9, 1>},
};

}  // namespace

std::span<const Op> normalization_ops() { return kNormalization; }

Tensor group_norm(const Tensor& x, int64_t groups, const Tensor& weight, const Tensor& bias, double eps) {
  return call("group_norm", {x, weight, bias}, {{"groups", static_cast<double>(groups)}, {"eps", eps}});
}

}  // namespace ulpscope
