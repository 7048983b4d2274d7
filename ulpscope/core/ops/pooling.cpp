// Pooling.
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

const Op kPooling[] = {
    {.name = "max_pool2d",
     .shape_rule = max_pool2d_shape,
     .backward = max_pool2d_backward,
     .needs_attributes = true,
     .saves_outputs = 0b10},
    {.name = "max_pool2d_backward", .inputs = 2, .shape_rule = max_pool2d_backward_shape, .needs_attributes = true},
};

}  // namespace

std::span<const Op> pooling_ops() { return kPooling; }

}  // namespace ulpscope
