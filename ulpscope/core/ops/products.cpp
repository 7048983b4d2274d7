// Matrix products and convolutions: what autocast runs in the lower precision.
#include <algorithm>

#include "ulpscope/core/ops/ops.h"

namespace ulpscope {

namespace {

double product(std::span<const int64_t> extents) {
  double result = 1;
  for (const int64_t extent : extents) result *= static_cast<double>(extent);
  return result;
}

void matmul_shape(const OpArguments& arguments, OutputSpecs& specs) {
  const Tensor& a = arguments.inputs[0];
  const Tensor& b = arguments.inputs[1];
  const int rank = a.rank();
  const bool batches_fit = rank >= 2 && b.rank() == rank && std::equal(a.shape().begin(), a.shape().end() - 2, b.shape().begin());
  if (!batches_fit || a.shape(-1) != b.shape(-2)) wrong_shape(arguments, "a [..., M, K] and b [..., K, N]");
  OutputSpec spec = make_spec(a.dtype(), a.shape());
  spec.shape[rank - 1] = b.shape(-1);
  specs.push_back(spec);
}

void matmul_backward(BackwardCall& b) {
  const Tensor& gradient = b.gradient();
  if (b.needs(0)) b.set(0, call("matmul", {gradient, transpose(b.input(1))}, {}, {.hints = b.into({0})}));
  if (b.needs(1)) b.set(1, call("matmul", {transpose(b.input(0)), gradient}, {}, {.hints = b.into({1})}));
}

double matmul_flops(std::span<const Tensor> inputs, std::span<const Tensor> outputs) {
  return 2.0 * product(outputs[0].shape()) * static_cast<double>(inputs[0].shape(-1));
}

void linear_shape(const OpArguments& arguments, OutputSpecs& specs) {
  const Tensor& x = arguments.inputs[0];
  const Tensor& weight = arguments.inputs[1];
  const bool with_bias = arguments.inputs.size() > 2;
  if (x.rank() != 2 || weight.rank() != 2 || x.shape(1) != weight.shape(1) ||
      (with_bias && (arguments.inputs[2].rank() != 1 || arguments.inputs[2].shape(0) != weight.shape(0))))
    wrong_shape(arguments, "x [M, K], weight [N, K] and bias [N]");
  const int64_t shape[] = {x.shape(0), weight.shape(0)};
  specs.push_back(make_spec(x.dtype(), shape));
}

void linear_backward(BackwardCall& b) {
  const Tensor& gradient = b.gradient();
  if (b.needs(0)) b.set(0, call("matmul", {gradient, b.input(1)}, {}, {.hints = b.into({0})}));
  if (b.needs(1)) b.set(1, call("matmul", {transpose(gradient), b.input(0)}, {}, {.hints = b.into({1})}));
  if (b.needs(2)) b.set(2, call("sum", {gradient}, {{"dims", 1}, {"keep", 0}}, {.hints = b.into({2})}));
}

void conv2d_shape(const OpArguments& arguments, OutputSpecs& specs) {
  const Tensor& x = arguments.inputs[0];
  const Tensor& weight = arguments.inputs[1];
  const bool with_bias = arguments.inputs.size() > 2;
  if (x.rank() != 4 || weight.rank() != 4 || x.shape(1) != weight.shape(1) ||
      (with_bias && (arguments.inputs[2].rank() != 1 || arguments.inputs[2].shape(0) != weight.shape(0))))
    wrong_shape(arguments, "x [N, C, H, W], weight [O, C, KH, KW] and bias [O]");
  const Attributes& a = arguments.attributes;
  const Window y{weight.shape(2), static_cast<int64_t>(a["stride_y"]), static_cast<int64_t>(a["padding_y"])};
  const Window across{weight.shape(3), static_cast<int64_t>(a["stride_x"]), static_cast<int64_t>(a["padding_x"])};
  const int64_t shape[] = {x.shape(0), weight.shape(0), y.outputs(x.shape(2)), across.outputs(x.shape(3))};
  if (shape[2] < 1 || shape[3] < 1) wrong_shape(arguments, "a padded image at least as large as the kernel");
  specs.push_back(make_spec(x.dtype(), shape, Layout::channels_last));
}

void conv2d_backward(BackwardCall& b) {
  const Tensor& gradient = b.gradient();
  if (b.needs(0)) {
    const Tensor& x = b.input_like(0);
    Attributes attributes = b.attributes();
    attributes.set("height", static_cast<double>(x.shape(2)));
    attributes.set("width", static_cast<double>(x.shape(3)));
    b.set(0, call("conv2d_backward_input", {gradient, b.input(1)}, attributes, {.hints = b.into({0})}));
  }
  if (!b.needs(1) && !b.needs(2)) return;
  Attributes attributes = b.attributes();
  attributes.set("kernel_y", static_cast<double>(b.input_like(1).shape(2)));
  attributes.set("kernel_x", static_cast<double>(b.input_like(1).shape(3)));
  attributes.set("bias", b.input_count() > 2);
  const Tensor inputs[] = {gradient, b.input(0)};
  const Tensors gradients = dispatch(find_op("conv2d_backward_weight"), inputs, attributes, {.hints = b.into({1, 2})});
  b.set(1, gradients[0]);
  if (b.input_count() > 2) b.set(2, gradients[1]);
}

void conv2d_backward_input_shape(const OpArguments& arguments, OutputSpecs& specs) {
  const Tensor& gradient = arguments.inputs[0];
  const int64_t shape[] = {gradient.shape(0), arguments.inputs[1].shape(1), static_cast<int64_t>(arguments.attributes["height"]),
                           static_cast<int64_t>(arguments.attributes["width"])};
  specs.push_back(make_spec(gradient.dtype(), shape, Layout::channels_last));
}

void conv2d_backward_weight_shape(const OpArguments& arguments, OutputSpecs& specs) {
  const Tensor& gradient = arguments.inputs[0];
  const int64_t shape[] = {gradient.shape(1), arguments.inputs[1].shape(1), static_cast<int64_t>(arguments.attributes["kernel_y"]),
                           static_cast<int64_t>(arguments.attributes["kernel_x"])};
  specs.push_back(make_spec(gradient.dtype(), shape));
  if (arguments.attributes["bias"] != 0) specs.push_back(make_spec(gradient.dtype(), {shape, 1}));
}

double conv2d_flops(std::span<const Tensor> inputs, std::span<const Tensor> outputs) {
  const Tensor& weight = inputs[1];
  return 2.0 * product(outputs[0].shape()) * product(weight.shape().subspan(1));
}

double conv2d_backward_input_flops(std::span<const Tensor> inputs, std::span<const Tensor>) {
  return 2.0 * product(inputs[0].shape()) * product(inputs[1].shape().subspan(1));
}

double conv2d_backward_weight_flops(std::span<const Tensor> inputs, std::span<const Tensor> outputs) {
  return 2.0 * product(inputs[0].shape()) * product(outputs[0].shape().subspan(1));
}

const Op kProducts[] = {
    {.name = "matmul",
     .inputs = 2,
     .autocast = AutocastClass::lower_precision,
     .shape_rule = matmul_shape,
     .backward = matmul_backward,
     .loss_scale = multiplied_loss_scales,
     .saves_inputs = 0b11,
     .flops = matmul_flops},
    {.name = "linear",
     .inputs = 3,
     .optional_inputs = 1,
     .autocast = AutocastClass::lower_precision,
     .shape_rule = linear_shape,
     .backward = linear_backward,
     .saves_inputs = 0b11,
     .flops = matmul_flops},
    {.name = "conv2d",
     .inputs = 3,
     .optional_inputs = 1,
     .autocast = AutocastClass::lower_precision,
     .shape_rule = conv2d_shape,
     .backward = conv2d_backward,
     .needs_attributes = true,
     .saves_inputs = 0b11,
     .flops = conv2d_flops},
    {.name = "conv2d_backward_input",
     .inputs = 2,
     .shape_rule = conv2d_backward_input_shape,
     .needs_attributes = true,
     .flops = conv2d_backward_input_flops},
    {.name = "conv2d_backward_weight",
     .inputs = 2,
     .shape_rule = conv2d_backward_weight_shape,
     .needs_attributes = true,
     .flops = conv2d_backward_weight_flops},
};

}  // namespace

std::span<const Op> product_ops() { return kProducts; }

Tensor matmul(const Tensor& a, const Tensor& b) { return call("matmul", {a, b}); }

}  // namespace ulpscope
