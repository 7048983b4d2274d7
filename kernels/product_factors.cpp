#include "ulpscope/kernels/product_factors.h"

#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <string_view>
#include <utility>

#include "ulpscope/base/error.h"

namespace ulpscope {
namespace {

ElementOrder over(const TensorView& view, std::initializer_list<int> dimensions) {
  DimensionList list;
  for (const int dimension : dimensions) list.dimensions[list.count++] = dimension;
  return elements_over(view, list);
}

// With the dimension as two: parts of it, and what each has.
TensorView split(TensorView view, int dimension, int64_t parts) {
  for (int i = view.rank; i > dimension; --i) {
    view.shape[i] = view.shape[i - 1];
    view.strides[i] = view.strides[i - 1];
  }
  ++view.rank;
  view.shape[dimension] = parts;
  view.shape[dimension + 1] /= parts;
  view.strides[dimension] = view.strides[dimension + 1] * view.shape[dimension + 1];
  return view;
}

// The input as one of each column, where there is one.
std::optional<TensorView> column_bias(const OpCall& call, size_t input) {
  if (call.inputs.size() <= input) return std::nullopt;
  TensorView bias = call.outputs[0];
  bias.data = call.inputs[input].data;
  bias.dtype = call.inputs[input].dtype;
  bias.strides = {0, call.inputs[input].strides[0]};
  return bias;
}

// [..., M, K] times [..., K, N].
ProductFactors matrix_product(const OpCall& call) {
  const TensorView &a = call.inputs[0], &b = call.inputs[1], &out = call.outputs[0];
  const int row = a.rank - 2, column = a.rank - 1;
  DimensionList outer;
  ProductFactors product{.batches = 1, .rows = a.shape[row], .columns = b.shape[column], .terms = a.shape[column]};
  for (int i = 0; i < row; ++i) {
    outer.dimensions[outer.count++] = i;
    product.batches *= a.shape[i];
  }
  product.a = {a.data, a.dtype, elements_over(a, outer), over(a, {row}), over(a, {column})};
  product.b = {b.data, b.dtype, elements_over(b, outer), over(b, {column}), over(b, {row})};
  product.output = out;
  product.batch = elements_over(out, outer);
  product.row = over(out, {row});
  product.column = over(out, {column});
  product.sums = contiguous(out);
  product.bias = column_bias(call, 4);  // of scaled_matmul
  return product;
}

// x [M, K] times w [N, K] transposed.
ProductFactors linear(const OpCall& call) {
  const TensorView &x = call.inputs[0], &w = call.inputs[1], &out = call.outputs[0];
  ProductFactors product{.batches = 1, .rows = x.shape[0], .columns = w.shape[0], .terms = x.shape[1]};
  product.a = {x.data, x.dtype, {}, over(x, {0}), over(x, {1})};
  product.b = {w.data, w.dtype, {}, over(w, {0}), over(w, {1})};
  product.output = out;
  product.row = over(out, {0});
  product.column = over(out, {1});
  product.sums = contiguous(out);
  product.bias = column_bias(call, 2);
  return product;
}

// The tensors of a convolution, by their parts in it: an image [N, C, H, W], a map of it [N, O, H', W'] and a weight [O, C of a
// group, KH, KW], the second dimension of the first two and the first of the weight split into groups.
struct Convolution {
  int64_t groups;
  TensorView image, map, weight;
  Windows windows;

  Convolution(const OpCall& call, const TensorView& of_image, const TensorView& of_map, const TensorView& of_weight)
      : groups(groups_of(*call.attributes)),
        image(split(of_image, 1, groups)),
        map(split(of_map, 1, groups)),
        weight(split(of_weight, 0, groups)),
        windows(Windows::of(*call.attributes, of_weight.shape[2], of_weight.shape[3])) {}

  int64_t filters() const { return weight.shape[1]; }
  int64_t channels() const { return weight.shape[2]; }
  int64_t places() const { return weight.shape[3] * weight.shape[4]; }

  // What the windows meet of the image or of the map, the pixels being those of the other one.
  Factor windows_of(bool is_map, bool lines_are_taps) const {
    const TensorView &from = is_map ? map : image, &pixels = is_map ? image : map;
    Factor factor{from.data, from.dtype, over(from, {1}), {}, {}};
    if (windows == Windows()) {
      factor.line = over(from, {0, 3, 4});
      factor.term = over(from, {2});
      if (lines_are_taps) std::swap(factor.line, factor.term);
      return factor;
    }
    factor.is_windowed = true;
    factor.lines_are_taps = lines_are_taps;
    factor.windows = {.y = windows.y,
                      .x = windows.x,
                      .is_map = is_map,
                      .pixels_y = pixels.shape[3],
                      .pixels_x = pixels.shape[4],
                      .kernel_x = weight.shape[4],
                      .channels = from.shape[2],
                      .height = from.shape[3],
                      .width = from.shape[4],
                      .image_stride = from.strides[0],
                      .channel_stride = from.strides[2],
                      .y_stride = from.strides[3],
                      .x_stride = from.strides[4]};
    return factor;
  }
  Factor weights(int line, int term) const {
    return {weight.data, weight.dtype, over(weight, {0}), over(weight, {line}), over(weight, {3, 4, term})};
  }
  static int64_t pixels_of(const TensorView& view) { return view.shape[0] * view.shape[3] * view.shape[4]; }
};

// Sums of pixels and channels as [N, groups, channels, H, W].
TensorView sums_by_pixel(const TensorView& output, int64_t columns) {
  TensorView sums = output;
  sums.strides[2] = 1;
  sums.strides[4] = columns;
  sums.strides[3] = sums.strides[4] * output.shape[4];
  sums.strides[0] = sums.strides[3] * output.shape[3];
  sums.strides[1] = sums.strides[0] * output.shape[0];
  return sums;
}

// A map of the image, or an image of the map.
ProductFactors onto_pixels(const OpCall& call, const Convolution& c, bool of_map) {
  const TensorView &from = of_map ? c.map : c.image, &output = of_map ? c.image : c.map;
  ProductFactors product{
      .batches = c.groups, .rows = Convolution::pixels_of(output), .columns = output.shape[2], .terms = c.places() * from.shape[2]};
  product.a = c.windows_of(of_map, false);
  product.b = of_map ? c.weights(2, 1) : c.weights(1, 2);
  product.output = output;
  product.batch = over(output, {1});
  product.row = over(output, {0, 3, 4});
  product.column = over(output, {2});
  product.sums = sums_by_pixel(output, product.columns);
  if (call.inputs.size() < 3) return product;
  const TensorView bias = split(call.inputs[2], 0, c.groups);
  product.bias = output;
  product.bias->data = bias.data;
  product.bias->dtype = bias.dtype;
  product.bias->strides = {0, bias.strides[0], bias.strides[1]};
  return product;
}

// Inputs image and weight: conv2d, and the gradient of a transposed convolution's input.
ProductFactors map_of_image(const OpCall& call) {
  const Convolution c(call, call.inputs[0], call.outputs[0], call.inputs[1]);
  return onto_pixels(call, c, false);
}

// Inputs map and weight: conv_transpose2d, and the gradient of a convolution's input.
ProductFactors image_of_map(const OpCall& call) {
  const Convolution c(call, call.outputs[0], call.inputs[0], call.inputs[1]);
  return onto_pixels(call, c, true);
}

// The gradient of a weight: a row for each place of the kernel and channel of a group, a column for each of its filters.
template <int map_input>
ProductFactors weight_of(const OpCall& call) {
  const Convolution c(call, call.inputs[1 - map_input], call.inputs[map_input], call.outputs[0]);
  ProductFactors product{
      .batches = c.groups, .rows = c.places() * c.channels(), .columns = c.filters(), .terms = Convolution::pixels_of(c.map)};
  product.a = c.windows_of(false, true);
  product.b = {c.map.data, c.map.dtype, over(c.map, {1}), over(c.map, {2}), over(c.map, {0, 3, 4})};
  product.output = product.sums = c.weight;
  product.batch = over(c.weight, {0});
  product.row = over(c.weight, {3, 4, 2});
  product.column = over(c.weight, {1});
  auto& strides = product.sums.strides;
  strides[1] = 1;
  strides[2] = product.columns;
  strides[4] = strides[2] * c.channels();
  strides[3] = strides[4] * c.weight.shape[4];
  strides[0] = product.rows * product.columns;
  return product;
}

struct ProductOp {
  std::string_view name;
  ProductFactors (*factors)(const OpCall& call);
};
constexpr ProductOp kProductOps[] = {
    {"matmul", matrix_product},
    {"scaled_matmul", matrix_product},
    {"linear", linear},
    {"conv2d", map_of_image},
    {"conv2d_backward_input", image_of_map},
    {"conv2d_backward_weight", weight_of<0>},
    {"conv_transpose2d", image_of_map},
    {"conv_transpose2d_backward_input", map_of_image},
    {"conv_transpose2d_backward_weight", weight_of<1>},
};

}  // namespace

ProductFactors product_factors(const OpCall& call) {
  const auto* found =
      std::find_if(std::begin(kProductOps), std::end(kProductOps), [&](const ProductOp& op) { return op.name == call.op; });
  if (found == std::end(kProductOps)) throw failed_error("internal: {} is no product", call.op);
  return found->factors(call);
}

}  // namespace ulpscope
