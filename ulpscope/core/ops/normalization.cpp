// Pooling and batch normalisation.
#include <fmt/format.h>

#include "ulpscope/base/error.h"
#include "ulpscope/core/ops/ops.h"
#include "ulpscope/kernels/pool_window.h"

namespace ulpscope {

namespace {

void max_pool2d_shape(const OpArguments& arguments, OutputSpecs& specs) {
  const Tensor& x = arguments.inputs[0];
  if (x.rank() != 4) wrong_shape(arguments, "x [N, C, H, W]");
  const PoolWindow window = PoolWindow::of(arguments.attributes);
  if (!window.problem().empty()) throw usage_error("{}: {}", arguments.op.name, window.problem());
  const int64_t rows = Window{window.kernel_y, window.stride_y, window.padding_y}.outputs(x.shape(2));
  const int64_t columns = Window{window.kernel_x, window.stride_x, window.padding_x}.outputs(x.shape(3));
  if (rows < 1 || columns < 1) {
    wrong_shape(arguments, fmt::format("an image at least as large as the window, {} x {}, with its padding", window.kernel_y,
                                       window.kernel_x));
  }
  const int64_t shape[] = {x.shape(0), x.shape(1), rows, columns};
  const Layout layout = layout_of(x);
  specs.push_back(make_spec(x.dtype(), shape, layout));
  specs.push_back(make_spec(DType::u8, shape, layout));
}

void max_pool2d_backward(BackwardCall& b) {
  const Tensor& x = b.input_like(0);
  Attributes attributes = b.attributes();
  attributes.set("height", static_cast<double>(x.shape(2)));
  attributes.set("width", static_cast<double>(x.shape(3)));
  attributes.set("channels_last", layout_of(x) == Layout::channels_last);
  b.set(0, call("max_pool2d_backward", {b.gradient(), b.output(1)}, attributes, {.hints = b.into({0})}));
}

void max_pool2d_backward_shape(const OpArguments& arguments, OutputSpecs& specs) {
  const Tensor& gradient = arguments.inputs[0];
  const Attributes& a = arguments.attributes;
  const int64_t shape[] = {gradient.shape(0), gradient.shape(1), static_cast<int64_t>(a["height"]),
                           static_cast<int64_t>(a["width"])};
  specs.push_back(make_spec(gradient.dtype(), shape, a["channels_last"] != 0 ? Layout::channels_last : Layout::contiguous));
}

// Parameters and statistics are FP32 with any x, and are not cast: an override by autocast changes the type of x alone. The running
// statistics are outputs in training only, where they change.
void batch_norm_shape(const OpArguments& arguments, OutputSpecs& specs) {
  const Tensor& x = arguments.inputs[0];
  const DType wide = x.dtype() == DType::f64 ? DType::f64 : DType::f32;
  bool fits = x.rank() >= 2;
  for (size_t i = 1; i < arguments.inputs.size(); ++i) {
    const Tensor& p = arguments.inputs[i];
    fits = fits && p.rank() == 1 && p.shape(0) == x.shape(1) && p.dtype() == wide;
  }
  if (!fits) wrong_shape(arguments, fmt::format("x [N, C, ...] and four {} tensors [C]", info(wide).name));
  const bool training = arguments.attributes["training"] != 0;
  // One value has no variance: the running one would be 0 / 0.
  if (training && x.size() == x.shape(1)) wrong_shape(arguments, "more than one value for each channel in training");
  const int64_t channels[] = {x.shape(1)};
  specs.push_back(spec_like(x, 0));
  for (int i = 0; i < 2; ++i) specs.push_back(with_role(make_spec(wide, channels), Role::buffer));
  if (!training) return;
  for (int i = 3; i < 5; ++i) specs.push_back(with_role(in_place_spec(arguments.inputs[static_cast<size_t>(i)], i), Role::buffer));
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

const Op kNormalization[] = {
    {.name = "max_pool2d",
     .shape_rule = max_pool2d_shape,
     .backward = max_pool2d_backward,
     .needs_attributes = true,
     .saves_outputs = 0b10},
    {.name = "max_pool2d_backward", .inputs = 2, .shape_rule = max_pool2d_backward_shape, .needs_attributes = true},
    {.name = "batch_norm",
     .inputs = 5,
     .cast_inputs = 0b1,
     .shape_rule = batch_norm_shape,
     .backward = batch_norm_backward,
     .needs_attributes = true,
     .saves_inputs = 0b11,
     .saves_outputs = 0b110},
    {.name = "batch_norm_backward",
     .inputs = 5,
     .autocast = AutocastClass::exempt,
     .shape_rule = batch_norm_backward_shape,
     .needs_attributes = true},
};

}  // namespace

std::span<const Op> normalization_ops() { return kNormalization; }

}  // namespace ulpscope
