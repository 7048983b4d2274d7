// Convolutions and pooling. Sums run over the terms in their index order.
#include <limits>

#include "ulpscope/kernels/pool_windows.h"
#include "ulpscope/kernels/reference/plain_access.h"

namespace ulpscope::plain {
namespace {

// The three tensors of a convolution, one of which is the output: an image [N, C, H, W], a map [N, O, H', W'] of it that has an
// element for each window, and a weight [O, C / groups, KH, KW]. A transposed convolution makes an image from a map.
enum Part : uint8_t { kImage, kMap, kWeight };

// body(indices) for each term: the logical indices of its elements, by Part. Padded places have no terms.
template <typename Body>
void for_each_term(const Attributes& attributes, const TensorView& image, const TensorView& map, const TensorView& weight,
                   Body body) {
  const Windows windows = Windows::of(attributes, weight.shape[2], weight.shape[3]);
  const int64_t channels = weight.shape[1], filters = map.shape[1] / groups_of(attributes);  // of a group
  for (int64_t n = 0; n < map.shape[0]; ++n)
    for (int64_t o = 0; o < map.shape[1]; ++o)
      for (int64_t oy = 0; oy < map.shape[2]; ++oy)
        for (int64_t ox = 0; ox < map.shape[3]; ++ox)
          for (int64_t c = 0; c < channels; ++c)
            for (int64_t ky = 0; ky < weight.shape[2]; ++ky)
              for (int64_t kx = 0; kx < weight.shape[3]; ++kx) {
                const int64_t iy = windows.y.input(oy, ky), ix = windows.x.input(ox, kx), channel = o / filters * channels + c;
                if (iy < 0 || iy >= image.shape[2] || ix < 0 || ix >= image.shape[3]) continue;
                const int64_t indices[] = {
                    ((n * image.shape[1] + channel) * image.shape[2] + iy) * image.shape[3] + ix,
                    ((n * map.shape[1] + o) * map.shape[2] + oy) * map.shape[3] + ox,
                    ((o * channels + c) * weight.shape[2] + ky) * weight.shape[3] + kx,
                };
                body(indices);
              }
}

// Output `to` adds up the products of the inputs `a` and `b`.
template <typename C, Part to, Part a, Part b>
void convolution(const OpCall& call) {
  const TensorView* parts[3];
  parts[to] = &call.outputs[0];
  parts[a] = &call.inputs[0];
  parts[b] = &call.inputs[1];
  const auto first = widen<C>(call.inputs[0]), second = widen<C>(call.inputs[1]);
  const TensorView& y = call.outputs[0];
  std::vector<C> sums(static_cast<size_t>(y.size()));
  for_each_term(*call.attributes, *parts[kImage], *parts[kMap], *parts[kWeight], [&](const int64_t* indices) {
    sums[static_cast<size_t>(indices[to])] += first[static_cast<size_t>(indices[a])] * second[static_cast<size_t>(indices[b])];
  });
  const bool with_bias = call.inputs.size() > 2;
  const int64_t area = y.shape[2] * y.shape[3];
  Output<C> out(call, 0);
  for (int64_t i = 0; i < y.size(); ++i) {
    const C sum = sums[static_cast<size_t>(i)];
    out[i] = with_bias ? sum + at<C>(call.inputs[2], i / area % y.shape[1]) : sum;
  }
  out.store();
  if (call.outputs.size() < 2) return;
  // The gradient of the bias.
  const TensorView& g = call.inputs[0];
  Output<C> bias(call, 1);
  const auto terms = offsets_of(g, dimensions_in_memory_order(g, ~2u));
  for (int64_t o = 0; o < g.shape[1]; ++o) {
    bias[o] =
        ordered_sum<C>(static_cast<int64_t>(terms.size()), [&](int64_t i) { return load<C>(g, o * g.strides[1] + terms[i]); });
  }
  bias.store();
}

// body(pooled, rows, columns, plane) for each element of the pooled image: its logical index, what it covers, and the index of the
// first element of its plane.
template <typename Body>
void for_each_window(const PoolAxes& axes, int64_t pooled_size, Body body) {
  for (int64_t i = 0; i < pooled_size; ++i) {
    const PoolSpan rows = axes.y.span(i / axes.x.outputs % axes.y.outputs), columns = axes.x.span(i % axes.x.outputs);
    body(i, rows, columns, i / (axes.x.outputs * axes.y.outputs) * axes.y.extent * axes.x.extent);
  }
}

// A value becomes the largest where it is larger, or the first NaN.
template <typename C>
bool is_new_largest(C value, C largest) {
  return value > largest || (value != value && largest == largest);
}

template <typename C>
void max_pool2d(const OpCall& call) {
  const Windows windows = Windows::of(*call.attributes);
  if (const std::string problem = max_pooling_problem(windows); !problem.empty()) throw usage_error("{}: {}", call.op, problem);
  const PoolAxes axes(*call.attributes, call.inputs[0], call.outputs[0]);
  const auto x = widen<C>(call.inputs[0]);
  Output<C> out(call, 0);
  for_each_window(axes, call.outputs[0].size(), [&](int64_t i, const PoolSpan& rows, const PoolSpan& columns, int64_t plane) {
    const int64_t oy = i / axes.x.outputs % axes.y.outputs, ox = i % axes.x.outputs;
    C best{};
    int64_t best_place = -1;
    for (int64_t iy = rows.begin; iy < rows.end; ++iy)
      for (int64_t ix = columns.begin; ix < columns.end; ++ix) {
        const C value = x[plane + iy * axes.x.extent + ix];
        if (best_place >= 0 && !is_new_largest(value, best)) continue;
        best = value;
        best_place = (iy - windows.y.input(oy, 0)) * windows.x.kernel + ix - windows.x.input(ox, 0);
      }
    out[i] = best;
    call.outputs[1].as<uint8_t>()[offset_of(call.outputs[1], i)] = static_cast<uint8_t>(best_place + (best != best ? kPoolNaN : 0));
  });
  out.store();
  record_stored(call, 1);
}

template <typename C>
void max_pool2d_backward(const OpCall& call) {
  const Windows windows = Windows::of(*call.attributes);
  const PoolAxes axes(*call.attributes, call.outputs[0], call.inputs[0]);
  Output<C> out(call, 0);
  for_each_window(axes, call.inputs[0].size(), [&](int64_t i, const PoolSpan&, const PoolSpan&, int64_t plane) {
    const int64_t oy = i / axes.x.outputs % axes.y.outputs, ox = i % axes.x.outputs;
    const auto index = at<int>(call.inputs[1], i);
    const int64_t iy = windows.y.input(oy, 0) + (index & kPoolPlaceMask) / windows.x.kernel;
    const int64_t ix = windows.x.input(ox, 0) + (index & kPoolPlaceMask) % windows.x.kernel;
    if (iy < 0 || iy >= axes.y.extent || ix < 0 || ix >= axes.x.extent) return;  // indices that no forward op gave
    out[plane + iy * axes.x.extent + ix] += index >= kPoolNaN ? std::numeric_limits<C>::quiet_NaN() : at<C>(call.inputs[0], i);
  });
  out.store();
}

template <typename C>
void adaptive_max_pool2d(const OpCall& call) {
  const PoolAxes axes(*call.attributes, call.inputs[0], call.outputs[0]);
  const auto x = widen<C>(call.inputs[0]);
  Output<C> out(call, 0);
  for_each_window(axes, call.outputs[0].size(), [&](int64_t i, const PoolSpan& rows, const PoolSpan& columns, int64_t plane) {
    C best{};
    int64_t best_place = -1;
    for (int64_t iy = rows.begin; iy < rows.end; ++iy)
      for (int64_t ix = columns.begin; ix < columns.end; ++ix) {
        const int64_t place = iy * axes.x.extent + ix;
        if (best_place >= 0 && !is_new_largest(x[plane + place], best)) continue;
        best = x[plane + place];
        best_place = place;
      }
    out[i] = best;
    const auto place = static_cast<int32_t>(best_place);
    call.outputs[1].as<int32_t>()[offset_of(call.outputs[1], i)] = best != best ? marked_nan(place) : place;
  });
  out.store();
  record_stored(call, 1);
}

template <typename C>
void adaptive_max_pool2d_backward(const OpCall& call) {
  const PoolAxes axes(*call.attributes, call.outputs[0], call.inputs[0]);
  Output<C> out(call, 0);
  for_each_window(axes, call.inputs[0].size(), [&](int64_t i, const PoolSpan&, const PoolSpan&, int64_t plane) {
    const auto index = at<int32_t>(call.inputs[1], i);
    if (index < 0) {
      out[plane + marked_nan(index)] += std::numeric_limits<C>::quiet_NaN();
    } else {
      out[plane + index] += at<C>(call.inputs[0], i);
    }
  });
  out.store();
}

// Means over windows, sliding or adaptive.
template <typename C>
void average_pool2d(const OpCall& call) {
  const PoolAxes axes(*call.attributes, call.inputs[0], call.outputs[0]);
  const auto x = widen<C>(call.inputs[0]);
  Output<C> out(call, 0);
  for_each_window(axes, call.outputs[0].size(), [&](int64_t i, const PoolSpan& rows, const PoolSpan& columns, int64_t plane) {
    C sum{};
    for (int64_t iy = rows.begin; iy < rows.end; ++iy)
      for (int64_t ix = columns.begin; ix < columns.end; ++ix) sum += x[plane + iy * axes.x.extent + ix];
    out[i] = sum / static_cast<C>(axes.divisor(rows, columns));
  });
  out.store();
}

template <typename C>
void average_pool2d_backward(const OpCall& call) {
  const PoolAxes axes(*call.attributes, call.outputs[0], call.inputs[0]);
  Output<C> out(call, 0);
  for_each_window(axes, call.inputs[0].size(), [&](int64_t i, const PoolSpan& rows, const PoolSpan& columns, int64_t plane) {
    const C share = at<C>(call.inputs[0], i) / static_cast<C>(axes.divisor(rows, columns));
    for (int64_t iy = rows.begin; iy < rows.end; ++iy)
      for (int64_t ix = columns.begin; ix < columns.end; ++ix) out[plane + iy * axes.x.extent + ix] += share;
  });
  out.store();
}

template <Part to, Part a, Part b>
NamedKernel convolution_kernel(std::string_view name, CaptureOperands& operands) {
  return {name, convolution<float, to, a, b>, convolution<double, to, a, b>, operands};
}

}  // namespace

std::vector<NamedKernel> window_kernels() {
  return {
      convolution_kernel<kMap, kImage, kWeight>("conv2d", capture::convolution_map),
      convolution_kernel<kImage, kMap, kWeight>("conv2d_backward_input", capture::convolution_image),
      convolution_kernel<kWeight, kMap, kImage>("conv2d_backward_weight", capture::conv2d_weight),
      convolution_kernel<kImage, kMap, kWeight>("conv_transpose2d", capture::convolution_image),
      convolution_kernel<kMap, kImage, kWeight>("conv_transpose2d_backward_input", capture::convolution_map),
      convolution_kernel<kWeight, kImage, kMap>("conv_transpose2d_backward_weight", capture::conv_transpose2d_weight),
      {"max_pool2d", max_pool2d<float>, max_pool2d<double>, capture::max_pooling},
      {"max_pool2d_backward", max_pool2d_backward<float>, max_pool2d_backward<double>, capture::max_pool2d_backward},
      {"adaptive_max_pool2d", adaptive_max_pool2d<float>, adaptive_max_pool2d<double>, capture::max_pooling},
      {"adaptive_max_pool2d_backward", adaptive_max_pool2d_backward<float>, adaptive_max_pool2d_backward<double>,
       capture::adaptive_max_pool2d_backward},
      {"avg_pool2d", average_pool2d<float>, average_pool2d<double>, capture::average_pooling},
      {"avg_pool2d_backward", average_pool2d_backward<float>, average_pool2d_backward<double>, capture::average_pooling_backward},
      {"adaptive_avg_pool2d", average_pool2d<float>, average_pool2d<double>, capture::average_pooling},
      {"adaptive_avg_pool2d_backward", average_pool2d_backward<float>, average_pool2d_backward<double>,
       capture::average_pooling_backward},
  };
}

}  // namespace ulpscope::plain
