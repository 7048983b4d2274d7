// Convolutions and transposed ones: what autocast runs in the lower precision. A convolution makes a map [N, O, H', W'] of an image
// [N, C, H, W] with a weight [O, C / groups, KH, KW]; a transposed one makes an image of a map with the same weight, and each is
// the gradient of the other's input.
#include <fmt/format.h>

#include <algorithm>

#include "ulpscope/base/error.h"
#include "ulpscope/core/ops/ops.h"
#include "ulpscope/kernels/windows.h"

namespace ulpscope {

namespace {

// The windows and groups of a convolution whose weight is input 1, checked.
Windows checked_windows(const OpArguments& arguments) {
  const Tensor& weight = arguments.inputs[1];
  if (weight.rank() != 4) wrong_shape(arguments, "a weight of 4 dimensions");
  const Windows windows = Windows::of(arguments.attributes, weight.shape(2), weight.shape(3));
  if (const std::string problem = windows.problem(); !problem.empty()) throw usage_error("{}: {}", arguments.op.name, problem);
  if (groups_of(arguments.attributes) < 1) {
    throw usage_error("{}: groups: expected at least 1, found {}", arguments.op.name, groups_of(arguments.attributes));
  }
  return windows;
}

bool has_bias(const OpArguments& arguments, int64_t channels) {
  if (arguments.inputs.size() < 3) return true;
  return arguments.inputs[2].rank() == 1 && arguments.inputs[2].shape(0) == channels;
}

void conv2d_shape(const OpArguments& arguments, OutputSpecs& specs) {
  const Tensor &x = arguments.inputs[0], &weight = arguments.inputs[1];
  const Windows windows = checked_windows(arguments);
  const int64_t groups = groups_of(arguments.attributes);
  if (x.rank() != 4 || x.shape(1) != weight.shape(1) * groups || weight.shape(0) % groups != 0 ||
      !has_bias(arguments, weight.shape(0))) {
    wrong_shape(arguments, groups == 1
                               ? "x [N, C, H, W], weight [O, C, KH, KW] and bias [O]"
                               : fmt::format("x [N, C, H, W], weight [O, C / groups, KH, KW] and bias [O], with groups = {} "
                                             "that divide C and O",
                                             groups));
  }
  const int64_t shape[] = {x.shape(0), weight.shape(0), windows.y.outputs(x.shape(2)), windows.x.outputs(x.shape(3))};
  if (shape[2] < 1 || shape[3] < 1) wrong_shape(arguments, "a padded image at least as large as the kernel");
  specs.push_back(make_spec(x.dtype(), shape, Layout::channels_last));
}

void conv_transpose2d_shape(const OpArguments& arguments, OutputSpecs& specs) {
  const Tensor &x = arguments.inputs[0], &weight = arguments.inputs[1];
  const auto& [y, across] = checked_windows(arguments);
  const int64_t groups = groups_of(arguments.attributes), channels = weight.shape(1) * groups;
  if (x.rank() != 4 || x.shape(1) != weight.shape(0) || x.shape(1) % groups != 0 || !has_bias(arguments, channels)) {
    wrong_shape(arguments, groups == 1
                               ? "x [N, C, H, W], weight [C, O, KH, KW] and bias [O]"
                               : fmt::format("x [N, C, H, W], weight [C, O / groups, KH, KW] and bias [O], with groups = {} "
                                             "that divide C and O",
                                             groups));
  }
  const auto more_y = static_cast<int64_t>(arguments.attributes.value_or("output_padding_y", 0));
  const auto more_x = static_cast<int64_t>(arguments.attributes.value_or("output_padding_x", 0));
  const auto fits = [](int64_t more, const Window& window) {
    return more >= 0 && (more < window.stride || more < window.dilation);
  };
  if (!fits(more_y, y) || !fits(more_x, across)) {
    throw usage_error("{}: output_padding: expected less than the stride, {} x {}, or the dilation, {} x {}, found {} x {}",
                      arguments.op.name, y.stride, across.stride, y.dilation, across.dilation, more_y, more_x);
  }
  const int64_t shape[] = {x.shape(0), channels, y.extent_of(x.shape(2)) + more_y, across.extent_of(x.shape(3)) + more_x};
  if (shape[2] < 1 || shape[3] < 1) wrong_shape(arguments, "an image that the padding leaves something of");
  specs.push_back(make_spec(x.dtype(), shape, Layout::channels_last));
}

// The gradient of an input: an op on the gradient and the weight, of the extents of the input.
void set_input_gradient(BackwardCall& b, std::string_view op) {
  if (!b.needs(0)) return;
  const Tensor& x = b.input_like(0);
  Attributes attributes = b.attributes();
  attributes.set("height", static_cast<double>(x.shape(2)));
  attributes.set("width", static_cast<double>(x.shape(3)));
  b.set(0, call(op, {b.gradient(), b.input(1)}, attributes, {.hints = b.into({0})}));
}

// Those of weight and bias: one op on the gradient and the input.
void set_weight_gradients(BackwardCall& b, std::string_view op) {
  if (!b.needs(1) && !b.needs(2)) return;
  Attributes attributes = b.attributes();
  attributes.set("kernel_y", static_cast<double>(b.input_like(1).shape(2)));
  attributes.set("kernel_x", static_cast<double>(b.input_like(1).shape(3)));
  attributes.set("bias", b.input_count() > 2);
  const Tensor inputs[] = {b.gradient(), b.input(0)};
  const Tensors gradients = dispatch(find_op(op), inputs, attributes, {.hints = b.into({1, 2})});
  b.set(1, gradients[0]);
  if (b.input_count() > 2) b.set(2, gradients[1]);
}

void conv2d_backward(BackwardCall& b) {
  set_input_gradient(b, "conv2d_backward_input");
  set_weight_gradients(b, "conv2d_backward_weight");
}

void conv_transpose2d_backward(BackwardCall& b) {
  set_input_gradient(b, "conv_transpose2d_backward_input");
  set_weight_gradients(b, "conv_transpose2d_backward_weight");
}

// Of `channels` from the attributes height and width.
void input_gradient_spec(const OpArguments& arguments, int64_t channels, OutputSpecs& specs) {
  const Tensor& gradient = arguments.inputs[0];
  const int64_t shape[] = {gradient.shape(0), channels, static_cast<int64_t>(arguments.attributes["height"]),
                           static_cast<int64_t>(arguments.attributes["width"])};
  specs.push_back(make_spec(gradient.dtype(), shape, Layout::channels_last));
}

void conv2d_backward_input_shape(const OpArguments& arguments, OutputSpecs& specs) {
  input_gradient_spec(arguments, arguments.inputs[1].shape(1) * groups_of(arguments.attributes), specs);
}

void conv_transpose2d_backward_input_shape(const OpArguments& arguments, OutputSpecs& specs) {
  input_gradient_spec(arguments, arguments.inputs[1].shape(0), specs);
}

// Inputs the gradient and what the forward op got; `transposed`: the latter is the map.
template <bool transposed>
void weight_gradient_shape(const OpArguments& arguments, OutputSpecs& specs) {
  const Tensor& gradient = arguments.inputs[0];
  const Tensor &map = arguments.inputs[transposed ? 1 : 0], &image = arguments.inputs[transposed ? 0 : 1];
  const Attributes& a = arguments.attributes;
  const int64_t shape[] = {map.shape(1), image.shape(1) / groups_of(a), static_cast<int64_t>(a["kernel_y"]),
                           static_cast<int64_t>(a["kernel_x"])};
  specs.push_back(make_spec(gradient.dtype(), shape));
  const int64_t channels[] = {gradient.shape(1)};
  if (a["bias"] != 0) specs.push_back(make_spec(gradient.dtype(), channels));
}

// Two for each element of the map and each element of the weight that it meets, padding included.
double window_flops(const Tensor& map, const Tensor& weight) {
  return 2.0 * static_cast<double>(map.size()) * static_cast<double>(weight.size()) /
         static_cast<double>(std::max<int64_t>(weight.shape(0), 1));
}
double flops_of_output_map(std::span<const Tensor> inputs, std::span<const Tensor> outputs) {
  return window_flops(outputs[0], inputs[1]);
}
double flops_of_input_map(std::span<const Tensor> inputs, std::span<const Tensor>) { return window_flops(inputs[0], inputs[1]); }
template <bool transposed>
double weight_gradient_flops(std::span<const Tensor> inputs, std::span<const Tensor> outputs) {
  return window_flops(inputs[transposed ? 1 : 0], outputs[0]);
}

const Op kConvolutions[] = {
    {.name = "conv2d",
     .inputs = 3,
     .optional_inputs = 1,
     .autocast = AutocastClass::lower_precision,
     .shape_rule = conv2d_shape,
     .backward = conv2d_backward,
     .needs_attributes = true,
     .saves_inputs = 0b11,
     .function = OpFunction::convolution},
    {.name = "conv2d_backward_input",
     .inputs = 2,
     .shape_rule = conv2d_backward_input_shape,
     .needs_attributes = true,
     .flops = flops_of_input_map,
     .function = OpFunction::convolution_backward_input},
    {.name = "conv2d_backward_weight",
     .inputs = 2,
     .shape_rule = weight_gradient_shape<false>,
     .needs_attributes = true,
     .flops = weight_gradient_flops<false>,
     .function = OpFunction::convolution_backward_weight},
    {.name = "conv_transpose2d",
     .inputs = 3,
     .optional_inputs = 1,
     .autocast = AutocastClass::lower_precision,
     .shape_rule = conv_transpose2d_shape,
     .backward = conv_transpose2d_backward,
     .needs_attributes = true,
     .saves_inputs = 0b11,
     .function = OpFunction::transposed_convolution},
    {.name = "conv_transpose2d_backward_input",
     .inputs = 2,
     .shape_rule = conv_transpose2d_backward_input_shape,
     .needs_attributes = true,
     .flops = flops_of_output_map,
     .function = OpFunction::transposed_convolution_backward_input},
    {.name = "conv_transpose2d_backward_weight",
     .inputs = 2,
     .shape_rule = weight_gradient_shape<true>,
     .needs_attributes = true,
     .flops = weight_gradient_flops<true>,
     .function = OpFunction::transposed_convolution_backward_weight},
};

Tensor convolve(std::string_view op, const Tensor& x, const Tensor& weight, const Tensor& bias, Attributes attributes,
                int64_t groups) {
  if (groups != 1) attributes.set("groups", static_cast<double>(groups));
  return bias ? call(op, {x, weight, bias}, attributes) : call(op, {x, weight}, attributes);
}

}  // namespace

std::span<const Op> convolution_ops() { return kConvolutions; }

Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias, const Windows& windows, int64_t groups) {
  return convolve("conv2d", x, weight, bias, windows.attributes(), groups);
}

Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias, const Window& window, int64_t groups) {
  if (x.rank() != 3 || weight.rank() != 3)
    throw usage_error("conv1d: expected x [N, C, L] and weight [O, C / groups, K], got {} and {}", x.describe(), weight.describe());
  const auto of_height_one = [](const Tensor& tensor) {
    const int64_t shape[] = {tensor.shape(0), tensor.shape(1), 1, tensor.shape(2)};
    return reshape(tensor, shape);
  };
  const Tensor y = conv2d(of_height_one(x), of_height_one(weight), bias, {{}, window}, groups);
  const int64_t shape[] = {y.shape(0), y.shape(1), y.shape(3)};
  return reshape(y, shape);
}

Tensor conv_transpose2d(const Tensor& x, const Tensor& weight, const Tensor& bias, const Windows& windows, int64_t groups,
                        int64_t output_padding_y, int64_t output_padding_x) {
  Attributes attributes = windows.attributes();
  if (output_padding_y != 0 || output_padding_x != 0) {
    attributes.set("output_padding_y", static_cast<double>(output_padding_y));
    attributes.set("output_padding_x", static_cast<double>(output_padding_x));
  }
  return convolve("conv_transpose2d", x, weight, bias, attributes, groups);
}

}  // namespace ulpscope
