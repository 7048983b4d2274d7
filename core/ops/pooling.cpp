// Pooling.
#include <fmt/format.h>

#include <array>

#include "ulpscope/base/error.h"
#include "ulpscope/core/ops/ops.h"
#include "ulpscope/kernels/pool_windows.h"

namespace ulpscope {

namespace {

// Of sliding windows, or where the attributes have no kernel of height x width adaptive ones.
std::array<int64_t, 2> pooled_extents(const OpArguments& arguments, std::string (*problem_of)(const Windows&)) {
  const Tensor& x = arguments.inputs[0];
  if (x.rank() != 4) wrong_shape(arguments, "x [N, C, H, W]");
  if (arguments.attributes.value_or("kernel_y", 0) == 0) {
    const auto height = static_cast<int64_t>(arguments.attributes["height"]);
    const auto width = static_cast<int64_t>(arguments.attributes["width"]);
    if (height < 1 || width < 1)
      throw usage_error("{}: expected an output of at least 1 x 1, got {} x {}", arguments.op.name, height, width);
    if (x.shape(2) < 1 || x.shape(3) < 1) wrong_shape(arguments, "an image of at least 1 x 1");
    return {height, width};
  }
  const Windows windows = Windows::of(arguments.attributes);
  if (const std::string problem = problem_of(windows); !problem.empty()) throw usage_error("{}: {}", arguments.op.name, problem);
  const int64_t height = windows.y.outputs(x.shape(2)), width = windows.x.outputs(x.shape(3));
  if (height < 1 || width < 1) {
    wrong_shape(arguments, fmt::format("an image at least as large as the window, {} x {}, with its padding", windows.y.kernel,
                                       windows.x.kernel));
  }
  return {height, width};
}

OutputSpec pooled_spec(const Tensor& x, DType dtype, const std::array<int64_t, 2>& extents) {
  const int64_t shape[] = {x.shape(0), x.shape(1), extents[0], extents[1]};
  return make_spec(dtype, shape, layout_of(x));
}

template <DType index>
void max_pooling_shape(const OpArguments& arguments, OutputSpecs& specs) {
  const Tensor& x = arguments.inputs[0];
  const auto extents = pooled_extents(arguments, max_pooling_problem);
  specs.push_back(pooled_spec(x, x.dtype(), extents));
  specs.push_back(with_name(pooled_spec(x, index, extents), "indices"));
}

void average_pooling_shape(const OpArguments& arguments, OutputSpecs& specs) {
  const Tensor& x = arguments.inputs[0];
  specs.push_back(pooled_spec(x, x.dtype(), pooled_extents(arguments, pooling_problem)));
}

// NAME_backward of the gradient and, of a maximum, the indices, in the shape and layout of the image.
void pooling_backward(BackwardCall& b) {
  const Tensor& x = b.input_like(0);
  Attributes attributes = b.attributes();
  attributes.set("height", static_cast<double>(x.shape(2)));
  attributes.set("width", static_cast<double>(x.shape(3)));
  attributes.set("channels_last", layout_of(x) == Layout::channels_last);
  Tensors inputs;
  inputs.push_back(b.gradient());
  if (b.op().saves_outputs != 0) inputs.push_back(b.output(1));
  b.set(0, dispatch(find_op(std::string(b.op().name) + "_backward"), inputs, attributes, {.hints = b.into({0})})[0]);
}

void pooling_backward_shape(const OpArguments& arguments, OutputSpecs& specs) {
  const Tensor& gradient = arguments.inputs[0];
  const Attributes& a = arguments.attributes;
  const int64_t shape[] = {gradient.shape(0), gradient.shape(1), static_cast<int64_t>(a["height"]),
                           static_cast<int64_t>(a["width"])};
  specs.push_back(make_spec(gradient.dtype(), shape, a["channels_last"] != 0 ? Layout::channels_last : Layout::contiguous));
}

Op max_pooling(std::string_view name, decltype(Op::shape_rule) shape_rule) {
  return {.name = name,
          .shape_rule = shape_rule,
          .backward = pooling_backward,
          .needs_attributes = true,
          .saves_outputs = 0b10,
          .function = OpFunction::max_pool};
}
Op average_pooling(std::string_view name) {
  return {.name = name,
          .shape_rule = average_pooling_shape,
          .backward = pooling_backward,
          .needs_attributes = true,
          .function = OpFunction::average_pool};
}
Op backward_op(std::string_view name, int inputs, OpFunction function) {
  return {.name = name, .inputs = inputs, .shape_rule = pooling_backward_shape, .needs_attributes = true, .function = function};
}

const Op kPooling[] = {
    max_pooling("max_pool2d", max_pooling_shape<DType::u8>),
    backward_op("max_pool2d_backward", 2, OpFunction::max_pool_backward),
    average_pooling("avg_pool2d"),
    backward_op("avg_pool2d_backward", 1, OpFunction::average_pool_backward),
    max_pooling("adaptive_max_pool2d", max_pooling_shape<DType::i32>),
    backward_op("adaptive_max_pool2d_backward", 2, OpFunction::max_pool_backward),
    average_pooling("adaptive_avg_pool2d"),
    backward_op("adaptive_avg_pool2d_backward", 1, OpFunction::average_pool_backward),
};

Attributes with_kernel(const Windows& windows) {
  Attributes attributes = windows.attributes();
  attributes.set("kernel_y", static_cast<double>(windows.y.kernel));
  attributes.set("kernel_x", static_cast<double>(windows.x.kernel));
  return attributes;
}

Tensor adaptive(std::string_view op, const Tensor& x, int64_t height, int64_t width) {
  return call(op, {x}, {{"height", static_cast<double>(height)}, {"width", static_cast<double>(width)}});
}

}  // namespace

std::span<const Op> pooling_ops() { return kPooling; }

Tensor max_pool2d(const Tensor& x, const Windows& windows) { return call("max_pool2d", {x}, with_kernel(windows)); }

Tensor avg_pool2d(const Tensor& x, const Windows& windows, bool count_include_pad) {
  Attributes attributes = with_kernel(windows);
  attributes.set("count_include_pad", count_include_pad);
  return call("avg_pool2d", {x}, attributes);
}

Tensor adaptive_avg_pool2d(const Tensor& x, int64_t height, int64_t width) {
  return adaptive("adaptive_avg_pool2d", x, height, width);
}
Tensor adaptive_max_pool2d(const Tensor& x, int64_t height, int64_t width) {
  return adaptive("adaptive_max_pool2d", x, height, width);
}

}  // namespace ulpscope
