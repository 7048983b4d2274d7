// Ops on rows, the values along the last dimension: softmax and its relatives, layer_norm and rms_norm.
#include <fmt/format.h>

#include <algorithm>

#include "ulpscope/core/ops/ops.h"

namespace ulpscope {

namespace {

void row_shape(const OpArguments& arguments, OutputSpecs& specs) {
  const Tensor& x = arguments.inputs[0];
  if (x.rank() < 1) wrong_shape(arguments, "at least one dimension");
  specs.push_back(make_spec(x.dtype(), x.shape()));
}

void masked_shape(const OpArguments& arguments, OutputSpecs& specs) {
  const Tensor &x = arguments.inputs[0], &mask = arguments.inputs[1];
  if (!std::equal(x.shape().begin(), x.shape().end(), mask.shape().begin(), mask.shape().end()))
    wrong_shape(arguments, "values and a mask of one shape");
  row_shape(arguments, specs);
}

// One value for each row.
OutputSpec row_scalar(const Tensor& x, DType dtype) {
  OutputSpec spec = make_spec(dtype, x.shape());
  spec.shape[--spec.rank] = 0;
  return spec;
}

void logsumexp_shape(const OpArguments& arguments, OutputSpecs& specs) {
  const Tensor& x = arguments.inputs[0];
  if (x.rank() < 1 || x.shape(-1) < 1) wrong_shape(arguments, "at least one value in the last dimension");
  specs.push_back(row_scalar(x, x.dtype()));
}

// dx = NAME_backward(g, y).
void backward_by_output(BackwardCall& b) {
  b.set(0, call(std::string(b.op().name) + "_backward", {b.gradient(), b.output(0)}, {}, {.hints = b.into({0})}));
}

void masked_softmax_backward(BackwardCall& b) {
  b.set(0, call("softmax_backward", {b.gradient(), b.output(0)}, {}, {.hints = b.into({0})}));
}

void logsumexp_backward(BackwardCall& b) {
  b.set(0, call("logsumexp_backward", {b.gradient(), b.input(0), b.output(0)}, {}, {.hints = b.into({0})}));
}

// x, weight [N] and, for layer_norm, bias [N]; y like x, and for each row what normalized it, in FP32.
template <int statistics>
void normalization_shape(const OpArguments& arguments, OutputSpecs& specs) {
  const Tensor& x = arguments.inputs[0];
  bool fits = x.rank() >= 1 && x.shape(-1) > 0;
  for (const Tensor& parameter : arguments.inputs.subspan(1))
    fits = fits && parameter.rank() == 1 && parameter.shape(0) == x.shape(-1);
  if (!fits) wrong_shape(arguments, statistics == 2 ? "x [..., N], weight [N] and bias [N]" : "x [..., N] and weight [N]");
  specs.push_back(make_spec(x.dtype(), x.shape()));
  OutputSpec statistic = with_role(row_scalar(x, wide_type(x.dtype())), Role::buffer);
  statistic.stays_wide = true;
  if (statistics == 2) specs.push_back(with_name(statistic, "mean"));
  specs.push_back(with_name(statistic, "inverse_deviation"));
}

void layer_norm_backward(BackwardCall& b) {
  const Tensor &g = b.gradient(), &x = b.input(0), &mean = b.output(1), &inverse = b.output(2);
  if (b.needs(0)) b.set(0, call("layer_norm_backward", {g, x, b.input(1), mean, inverse}, {}, {.hints = b.into({0})}));
  if (!b.needs(1) && !b.needs(2)) return;
  const Tensor inputs[] = {g, x, mean, inverse};
  const Tensors gradients = dispatch(find_op("layer_norm_backward_weight"), inputs, {}, {.hints = b.into({1, 2})});
  b.set(1, gradients[0]);
  b.set(2, gradients[1]);
}

void rms_norm_backward(BackwardCall& b) {
  const Tensor &g = b.gradient(), &x = b.input(0), &inverse = b.output(1);
  if (b.needs(0)) b.set(0, call("rms_norm_backward", {g, x, b.input(1), inverse}, {}, {.hints = b.into({0})}));
  if (b.needs(1)) b.set(1, call("rms_norm_backward_weight", {g, x, inverse}, {}, {.hints = b.into({1})}));
}

template <int parameters>
void normalization_weight_shape(const OpArguments& arguments, OutputSpecs& specs) {
  const Tensor& x = arguments.inputs[1];
  const int64_t shape[] = {x.shape(-1)};
  for (int i = 0; i < parameters; ++i) specs.push_back(make_spec(x.dtype(), shape));
}

const Op kRows[] = {
    {.name = "softmax",
     .autocast = AutocastClass::fp32,
     .shape_rule = row_shape,
     .backward = backward_by_output,
     .saves_outputs = 0b1,
     .flops = flops_per_element<5, 0>},
    {.name = "masked_softmax",
     .inputs = 2,
     .autocast = AutocastClass::fp32,
     .cast_inputs = 0b1,
     .shape_rule = masked_shape,
     .backward = masked_softmax_backward,
     .saves_outputs = 0b1,
     .flops = flops_per_element<5, 0>},
    {.name = "softmax_backward", .inputs = 2, .shape_rule = row_shape, .flops = flops_per_element<4, 0>},
    {.name = "log_softmax",
     .autocast = AutocastClass::fp32,
     .shape_rule = row_shape,
     .backward = backward_by_output,
     .saves_outputs = 0b1,
     .flops = flops_per_element<6, 0>},
    {.name = "log_softmax_backward", .inputs = 2, .shape_rule = row_shape, .flops = flops_per_element<4, 0>},
    {.name = "logsumexp",
     .autocast = AutocastClass::fp32,
     .shape_rule = logsumexp_shape,
     .backward = logsumexp_backward,
     .saves_inputs = 0b1,
     .saves_outputs = 0b1,
     .flops = flops_per_element<4, 0>},
    {.name = "logsumexp_backward", .inputs = 3, .shape_rule = shaped_as_input<1>, .flops = flops_per_element<3, 1>},
    {.name = "layer_norm",
     .inputs = 3,
     .autocast = AutocastClass::fp32,
     .shape_rule = normalization_shape<2>,
     .backward = layer_norm_backward,
     .needs_attributes = true,
     .saves_inputs = 0b11,
     .saves_outputs = 0b110,
     .flops = flops_per_element<8, 0>},
    {.name = "layer_norm_backward",
     .inputs = 5,
     .autocast = AutocastClass::exempt,
     .shape_rule = shaped_as_input<1>,
     .flops = flops_per_element<10, 1>},
    {.name = "layer_norm_backward_weight",
     .inputs = 4,
     .autocast = AutocastClass::exempt,
     .shape_rule = normalization_weight_shape<2>,
     .flops = flops_per_element<5, 1>},
    {.name = "rms_norm",
     .inputs = 2,
     .autocast = AutocastClass::fp32,
     .shape_rule = normalization_shape<1>,
     .backward = rms_norm_backward,
     .needs_attributes = true,
     .saves_inputs = 0b11,
     .saves_outputs = 0b10,
     .flops = flops_per_element<4, 0>},
    {.name = "rms_norm_backward",
     .inputs = 4,
     .autocast = AutocastClass::exempt,
     .shape_rule = shaped_as_input<1>,
     .flops = flops_per_element<6, 1>},
    {.name = "rms_norm_backward_weight",
     .inputs = 3,
     .autocast = AutocastClass::exempt,
     .shape_rule = normalization_weight_shape<1>,
     .flops = flops_per_element<3, 1>},
};

// `op` along dimension dim, which is brought to the end and back where it is not the last.
Tensor along(std::string_view op, const Tensor& x, int dim) {
  const int dimension = checked_dimension(op, x, dim);
  if (dimension == x.rank() - 1) return call(op, {x});
  std::array<int, kMaxRank> order{};
  for (int i = 0; i < x.rank(); ++i) order[static_cast<size_t>(i)] = i;
  std::swap(order[static_cast<size_t>(dimension)], order[static_cast<size_t>(x.rank() - 1)]);
  const std::span<const int> swapped(order.data(), static_cast<size_t>(x.rank()));
  return permute(call(op, {permute(x, swapped)}), swapped);
}

}  // namespace

std::span<const Op> row_ops() { return kRows; }

Tensor softmax(const Tensor& x, int dim) { return along("softmax", x, dim); }
Tensor log_softmax(const Tensor& x, int dim) { return along("log_softmax", x, dim); }

}  // namespace ulpscope
