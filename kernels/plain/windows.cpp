// Convolutions and pooling. Sums run over the terms in their index order.
#include <limits>

#include "ulpscope/kernels/plain/element.h"
#include "ulpscope/kernels/pool_windows.h"

namespace ulpscope::plain {
namespace {

using Shape = std::array<int64_t, 4>;
using Index = std::array<int64_t, 4>;

Shape shape_of(const TensorView& view) { return {view.shape[0], view.shape[1], view.shape[2], view.shape[3]}; }
int64_t at_index(const Shape& shape, const Index& index) {
  return ((index[0] * shape[1] + index[1]) * shape[2] + index[2]) * shape[3] + index[3];
}
Index index_of(const Shape& shape, int64_t e) {
  return {e / (shape[1] * shape[2] * shape[3]), e / (shape[2] * shape[3]) % shape[1], e / shape[3] % shape[2], e % shape[3]};
}

// The three tensors of a convolution, one of which is the output: an image [N, C, H, W], a map [N, O, H', W'] of it that has an
// element for each window, and a weight [O, C / groups, KH, KW]. A transposed convolution makes an image from a map.
struct Convolution {
  Shape image, map, weight;
  Windows windows;
  int64_t filters;  // of a group
  bool with_bias;

  Convolution(const OpCall& call, const TensorView& image_view, const TensorView& map_view, const TensorView& weight_view)
      : image(shape_of(image_view)),
        map(shape_of(map_view)),
        weight(shape_of(weight_view)),
        windows(Windows::of(*call.attributes, weight[2], weight[3])),
        filters(weight[0] / groups_of(*call.attributes)),
        with_bias(call.inputs.size() > 2) {}
  bool in_padding(int64_t iy, int64_t ix) const { return iy < 0 || iy >= image[2] || ix < 0 || ix >= image[3]; }
  // With the bias of the channel, where there is one.
  template <class In, class Total>
  typename In::Value finish(In& in, Total& total, int64_t channel) const {
    if (with_bias) total.term([&] { return in(2, channel); });
    return total.value();
  }
};

// Inputs image and weight.
struct ConvolutionMap : Convolution {
  explicit ConvolutionMap(const OpCall& call) : Convolution(call, call.inputs[0], call.outputs[0], call.inputs[1]) {}
  auto operator()(auto& in, int /*slot*/, int64_t e) const {
    const auto [n, o, oy, ox] = index_of(map, e);
    auto&& total = in.total();
    for (int64_t c = 0; c < weight[1]; ++c)
      for (int64_t ky = 0; ky < weight[2]; ++ky)
        for (int64_t kx = 0; kx < weight[3]; ++kx) {
          const int64_t iy = windows.y.input(oy, ky), ix = windows.x.input(ox, kx), factor = at_index(weight, {o, c, ky, kx});
          if (in_padding(iy, ix)) {
            total.beside_padding(1, factor);
          } else {
            total.product(0, at_index(image, {n, o / filters * weight[1] + c, iy, ix}), 1, factor);
          }
        }
    return finish(in, total, o);
  }
};

// Inputs map and weight. A later element of the kernel lies on an earlier place of the map.
struct ConvolutionImage : Convolution {
  explicit ConvolutionImage(const OpCall& call) : Convolution(call, call.outputs[0], call.inputs[0], call.inputs[1]) {}
  auto operator()(auto& in, int /*slot*/, int64_t e) const {
    const auto [n, channel, iy, ix] = index_of(image, e);
    const int64_t first = channel / weight[1] * filters;
    auto&& total = in.total();
    for (int64_t o = first; o < first + filters; ++o)
      for (int64_t ky = weight[2] - 1; ky >= 0; --ky)
        for (int64_t kx = weight[3] - 1; kx >= 0; --kx) {
          const int64_t oy = windows.y.output(iy, ky, map[2]), ox = windows.x.output(ix, kx, map[3]);
          if (oy < 0 || ox < 0) continue;
          total.product(0, at_index(map, {n, o, oy, ox}), 1, at_index(weight, {o, channel % weight[1], ky, kx}));
        }
    return finish(in, total, channel);
  }
};

// The gradient of a weight, and where it is asked for of the bias. Input 0 is the gradient of the output, the map, or of a
// transposed convolution the image.
template <int map_input>
struct ConvolutionWeight : Convolution {
  IndexList bias_terms;  // of channel 0

  explicit ConvolutionWeight(const OpCall& call)
      : Convolution(call, call.inputs[1 - map_input], call.inputs[map_input], call.outputs[0]),
        bias_terms(IndexList::reduced(call.inputs[0], ~2u)) {}
  auto operator()(auto& in, int slot, int64_t e) const {
    if (slot == 1) {
      const Shape& g = map_input == 0 ? map : image;
      return in.sum(bias_terms.size(), [&](int64_t i) { return in(0, e * g[2] * g[3] + bias_terms[i]); });
    }
    const auto [o, c, ky, kx] = index_of(weight, e);
    auto&& total = in.total();
    for (int64_t n = 0; n < map[0]; ++n)
      for (int64_t oy = 0; oy < map[2]; ++oy)
        for (int64_t ox = 0; ox < map[3]; ++ox) {
          const int64_t iy = windows.y.input(oy, ky), ix = windows.x.input(ox, kx), of_map = at_index(map, {n, o, oy, ox});
          if (in_padding(iy, ix)) {
            total.beside_padding(map_input, of_map);
            continue;
          }
          const int64_t of_image = at_index(image, {n, o / filters * weight[1] + c, iy, ix});
          total.product(0, map_input == 0 ? of_map : of_image, 1, map_input == 0 ? of_image : of_map);
        }
    return total.value();
  }
};

// An image [N, C, H, W] and a pooled one, one of which is the output.
struct Pooling {
  Shape image, pooled;
  PoolAxes axes;

  Pooling(const OpCall& call, const TensorView& image_view, const TensorView& pooled_view)
      : image(shape_of(image_view)), pooled(shape_of(pooled_view)), axes(*call.attributes, image_view, pooled_view) {}
  int64_t divisor(int64_t oy, int64_t ox) const { return axes.divisor(axes.y.span(oy), axes.x.span(ox)); }
  // body(y, x, e) for each element of the image that the window of a pooled one covers.
  template <typename Body>
  void for_each_covered(const Index& out, Body body) const {
    const PoolSpan rows = axes.y.span(out[2]), columns = axes.x.span(out[3]);
    for (int64_t y = rows.begin; y < rows.end; ++y)
      for (int64_t x = columns.begin; x < columns.end; ++x) body(y, x, at_index(image, {out[0], out[1], y, x}));
  }
  // body(oy, ox, e) for each pooled element whose window covers an element of the image.
  template <typename Body>
  void for_each_covering(const Index& at, Body body) const {
    const auto [top, bottom] = axes.y.covering(at[2]);
    const auto [left, right] = axes.x.covering(at[3]);
    for (int64_t oy = top; oy < bottom; ++oy)
      for (int64_t ox = left; ox < right; ++ox) body(oy, ox, at_index(pooled, {at[0], at[1], oy, ox}));
  }
};

// A value becomes the largest where it is larger, or the first NaN.
template <class Place>
struct MaxPooling : Pooling {
  Place places;

  explicit MaxPooling(const OpCall& call) : Pooling(call, call.inputs[0], call.outputs[0]), places(call, image[3]) {}
  template <class In>
  auto largest(In& in, int64_t e) const {
    using C = typename In::Value;
    const Index out = index_of(pooled, e);
    std::optional<std::pair<C, int64_t>> best;
    for_each_covered(out, [&](int64_t y, int64_t x, int64_t covered) {
      const C value = in(0, covered);
      const bool is_nan = value != value;
      if (!best || value > best->first || (is_nan && best->first == best->first))
        best = {value, places.index(out[2], out[3], y, x, is_nan)};
    });
    return *best;
  }
  auto operator()(auto& in, int /*slot*/, int64_t e) const { return largest(in, e).first; }
  int64_t index(auto& in, int64_t e) const { return largest(in, e).second; }
};

// The gradient of an element is that of the windows which chose it. An index that no forward op gave may name no element.
template <class Place>
struct MaxPoolingBackward : Pooling {
  std::vector<int64_t> indices;
  Additions additions;

  explicit MaxPoolingBackward(const OpCall& call)
      : Pooling(call, call.outputs[0], call.inputs[0]),
        indices(widen<int64_t>(call.inputs[1])),
        additions(targets(Place(call, image[3]))) {}
  std::vector<int64_t> targets(const Place& places) const {
    std::vector<int64_t> all;
    for (size_t i = 0; i < indices.size(); ++i) {
      const Index window = index_of(pooled, static_cast<int64_t>(i));
      const auto [y, x] = places.chosen(window[2], window[3], indices[i]);
      const bool is_inside = y >= 0 && y < image[2] && x >= 0 && x < image[3];
      all.push_back(is_inside ? at_index(image, {window[0], window[1], y, x}) : -1);
    }
    return all;
  }
  template <class In>
  typename In::Value operator()(In& in, int /*slot*/, int64_t e) const {
    using C = typename In::Value;
    auto&& total = in.total();
    additions.for_each(e, [&](int64_t window) {
      total.term([&] {
        const C gradient = in(0, window);
        in(1, window);
        return Place::is_nan(indices[static_cast<size_t>(window)]) ? static_cast<C>(std::numeric_limits<double>::quiet_NaN())
                                                                   : gradient;
      });
    });
    return total.value();
  }
};

// Means over windows, sliding or adaptive.
struct AveragePooling : Pooling {
  explicit AveragePooling(const OpCall& call) : Pooling(call, call.inputs[0], call.outputs[0]) {}
  template <class In>
  typename In::Value operator()(In& in, int /*slot*/, int64_t e) const {
    const Index out = index_of(pooled, e);
    auto&& total = in.total();
    for_each_covered(out, [&](int64_t, int64_t, int64_t covered) { total.term([&] { return in(0, covered); }); });
    return total.value() / static_cast<typename In::Value>(divisor(out[2], out[3]));
  }
};

struct AveragePoolingBackward : Pooling {
  explicit AveragePoolingBackward(const OpCall& call) : Pooling(call, call.outputs[0], call.inputs[0]) {}
  template <class In>
  typename In::Value operator()(In& in, int /*slot*/, int64_t e) const {
    auto&& total = in.total();
    for_each_covering(index_of(image, e), [&](int64_t oy, int64_t ox, int64_t window) {
      total.term([&] { return in(0, window) / static_cast<typename In::Value>(divisor(oy, ox)); });
    });
    return total.value();
  }
};

}  // namespace

std::vector<Twin> window_twins() {
  return {twin<ConvolutionMap>("conv2d"),
          twin<ConvolutionImage>("conv2d_backward_input"),
          twin<ConvolutionWeight<0>>("conv2d_backward_weight"),
          twin<ConvolutionImage>("conv_transpose2d"),
          twin<ConvolutionMap>("conv_transpose2d_backward_input"),
          twin<ConvolutionWeight<1>>("conv_transpose2d_backward_weight"),
          twin<MaxPooling<PlaceInWindow>>("max_pool2d"),
          twin<MaxPoolingBackward<PlaceInWindow>>("max_pool2d_backward"),
          twin<MaxPooling<PlaceInImage>>("adaptive_max_pool2d"),
          twin<MaxPoolingBackward<PlaceInImage>>("adaptive_max_pool2d_backward"),
          twin<AveragePooling>("avg_pool2d"),
          twin<AveragePoolingBackward>("avg_pool2d_backward"),
          twin<AveragePooling>("adaptive_avg_pool2d"),
          twin<AveragePoolingBackward>("adaptive_avg_pool2d_backward")};
}

}  // namespace ulpscope::plain
