// Products and pooling. Sums run over the terms in their index order.
#include "ulpscope/kernels/pool_window.h"
#include "ulpscope/kernels/reference/plain_access.h"

namespace ulpscope::plain {
namespace {

template <typename C>
void matmul(const OpCall& call) {
  const TensorView &a = call.inputs[0], &b = call.inputs[1];
  const int rank = a.rank;
  const int64_t rows = a.shape[rank - 2], depth = a.shape[rank - 1], columns = b.shape[rank - 1];
  const auto wide_a = widen<C>(a), wide_b = widen<C>(b);
  const int64_t batch = call.outputs[0].size() / std::max<int64_t>(1, rows * columns);
  Output<C> out(call, 0);
  for (int64_t n = 0; n < batch; ++n) {
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < columns; ++j) {
        C total{};
        for (int64_t k = 0; k < depth; ++k) total += wide_a[(n * rows + i) * depth + k] * wide_b[(n * depth + k) * columns + j];
        out[(n * rows + i) * columns + j] = total;
      }
    }
  }
  out.store();
}

template <typename C>
void linear(const OpCall& call) {
  const int64_t rows = call.inputs[0].shape[0], depth = call.inputs[0].shape[1], columns = call.inputs[1].shape[0];
  const auto x = widen<C>(call.inputs[0]), w = widen<C>(call.inputs[1]);
  Output<C> out(call, 0);
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      C total{};
      for (int64_t k = 0; k < depth; ++k) total += x[i * depth + k] * w[j * depth + k];
      out[i * columns + j] = call.inputs.size() > 2 ? total + at<C>(call.inputs[2], j) : total;
    }
  }
  out.store();
}

// The sizes of a convolution, and its triples (output place, input place, weight place).
struct Convolution {
  int64_t images, channels, height, width;  // of the input
  int64_t filters, out_height, out_width;   // of the output
  int64_t kernel_y, kernel_x;
  int64_t stride_y, stride_x, padding_y, padding_x;

  Convolution(const OpCall& call, const TensorView& x, const TensorView& y, const TensorView& w)
      : images(x.shape[0]),
        channels(x.shape[1]),
        height(x.shape[2]),
        width(x.shape[3]),
        filters(y.shape[1]),
        out_height(y.shape[2]),
        out_width(y.shape[3]),
        kernel_y(w.shape[2]),
        kernel_x(w.shape[3]),
        stride_y(static_cast<int64_t>(call.attribute("stride_y"))),
        stride_x(static_cast<int64_t>(call.attribute("stride_x"))),
        padding_y(static_cast<int64_t>(call.attribute("padding_y"))),
        padding_x(static_cast<int64_t>(call.attribute("padding_x"))) {}

  // body(y, x, w): logical indices of an output element and of the factors of one of its terms. Padded places have no terms.
  template <typename Body>
  void for_each_term(Body body) const {
    for (int64_t n = 0; n < images; ++n)
      for (int64_t o = 0; o < filters; ++o)
        for (int64_t oy = 0; oy < out_height; ++oy)
          for (int64_t ox = 0; ox < out_width; ++ox)
            for (int64_t c = 0; c < channels; ++c)
              for (int64_t ky = 0; ky < kernel_y; ++ky)
                for (int64_t kx = 0; kx < kernel_x; ++kx) {
                  const int64_t iy = oy * stride_y + ky - padding_y, ix = ox * stride_x + kx - padding_x;
                  if (iy < 0 || iy >= height || ix < 0 || ix >= width) continue;
                  body(((n * filters + o) * out_height + oy) * out_width + ox, ((n * channels + c) * height + iy) * width + ix,
                       ((o * channels + c) * kernel_y + ky) * kernel_x + kx);
                }
  }
};

template <typename C>
void conv2d(const OpCall& call) {
  const auto x = widen<C>(call.inputs[0]), w = widen<C>(call.inputs[1]);
  const Convolution shape(call, call.inputs[0], call.outputs[0], call.inputs[1]);
  Output<C> out(call, 0);
  shape.for_each_term([&](int64_t y, int64_t in, int64_t k) { out[y] += x[in] * w[k]; });
  if (call.inputs.size() > 2) {
    const int64_t area = shape.out_height * shape.out_width;
    for (int64_t i = 0; i < call.outputs[0].size(); ++i) out[i] += at<C>(call.inputs[2], i / area % shape.filters);
  }
  out.store();
}

template <typename C>
void conv2d_backward_input(const OpCall& call) {
  const auto g = widen<C>(call.inputs[0]), w = widen<C>(call.inputs[1]);
  const Convolution shape(call, call.outputs[0], call.inputs[0], call.inputs[1]);
  Output<C> out(call, 0);
  shape.for_each_term([&](int64_t y, int64_t in, int64_t k) { out[in] += g[y] * w[k]; });
  out.store();
}

template <typename C>
void conv2d_backward_weight(const OpCall& call) {
  const TensorView& g_view = call.inputs[0];
  const auto g = widen<C>(g_view), x = widen<C>(call.inputs[1]);
  const Convolution shape(call, call.inputs[1], g_view, call.outputs[0]);
  Output<C> out(call, 0);
  shape.for_each_term([&](int64_t y, int64_t in, int64_t k) { out[k] += g[y] * x[in]; });
  out.store();
  if (call.outputs.size() < 2) return;
  Output<C> bias(call, 1);
  const auto terms = offsets_of(g_view, dimensions_in_memory_order(g_view, ~2u));
  for (int64_t o = 0; o < shape.filters; ++o) {
    bias[o] = ordered_sum<C>(static_cast<int64_t>(terms.size()),
                             [&](int64_t i) { return load<C>(g_view, o * g_view.strides[1] + terms[i]); });
  }
  bias.store();
}

struct Pooling : PoolWindow {
  int64_t planes, height, width, out_height, out_width;

  Pooling(const OpCall& call, const TensorView& x, const TensorView& y)
      : PoolWindow(PoolWindow::of(*call.attributes)),
        planes(x.shape[0] * x.shape[1]),
        height(x.shape[2]),
        width(x.shape[3]),
        out_height(y.shape[2]),
        out_width(y.shape[3]) {
    if (!problem().empty()) throw usage_error("{}: {}", call.op, problem());
  }
};

template <typename C>
void max_pool2d(const OpCall& call) {
  const Pooling shape(call, call.inputs[0], call.outputs[0]);
  const auto x = widen<C>(call.inputs[0]);
  Output<C> out(call, 0);
  for (int64_t i = 0; i < call.outputs[0].size(); ++i) {
    const int64_t ox = i % shape.out_width, oy = i / shape.out_width % shape.out_height;
    const int64_t plane = i / (shape.out_width * shape.out_height);
    C best{};
    int best_place = -1;
    for (int place = 0; place < shape.kernel_y * shape.kernel_x; ++place) {
      const int64_t iy = oy * shape.stride_y + place / shape.kernel_x - shape.padding_y;
      const int64_t ix = ox * shape.stride_x + place % shape.kernel_x - shape.padding_x;
      if (iy < 0 || iy >= shape.height || ix < 0 || ix >= shape.width) continue;
      const C value = x[(plane * shape.height + iy) * shape.width + ix];
      if (best_place < 0 || value > best || (value != value && best == best)) {
        best = value;
        best_place = place;
      }
    }
    out[i] = best;
    call.outputs[1].as<uint8_t>()[offset_of(call.outputs[1], i)] = static_cast<uint8_t>(best_place + (best != best ? kPoolNaN : 0));
  }
  out.store();
  record_stored(call, 1);
}

template <typename C>
void max_pool2d_backward(const OpCall& call) {
  const Pooling shape(call, call.outputs[0], call.inputs[0]);
  Output<C> out(call, 0);
  for (int64_t i = 0; i < call.inputs[0].size(); ++i) {
    const int64_t ox = i % shape.out_width, oy = i / shape.out_width % shape.out_height;
    const int64_t plane = i / (shape.out_width * shape.out_height);
    const auto index = at<int>(call.inputs[1], i);
    const int64_t iy = oy * shape.stride_y + (index & kPoolPlaceMask) / shape.kernel_x - shape.padding_y;
    const int64_t ix = ox * shape.stride_x + (index & kPoolPlaceMask) % shape.kernel_x - shape.padding_x;
    if (iy < 0 || iy >= shape.height || ix < 0 || ix >= shape.width) continue;  // indices that no forward op gave
    out[(plane * shape.height + iy) * shape.width + ix] +=
        index >= kPoolNaN ? std::numeric_limits<C>::quiet_NaN() : at<C>(call.inputs[0], i);
  }
  out.store();
}

}  // namespace

std::vector<NamedKernel> product_kernels() {
  return {
      {"matmul", matmul<float>, matmul<double>, capture::matmul},
      {"linear", linear<float>, linear<double>, capture::linear},
      {"conv2d", conv2d<float>, conv2d<double>, capture::conv2d},
      {"conv2d_backward_input", conv2d_backward_input<float>, conv2d_backward_input<double>, capture::conv2d_backward_input},
      {"conv2d_backward_weight", conv2d_backward_weight<float>, conv2d_backward_weight<double>, capture::conv2d_backward_weight},
      {"max_pool2d", max_pool2d<float>, max_pool2d<double>, capture::max_pool2d},
      {"max_pool2d_backward", max_pool2d_backward<float>, max_pool2d_backward<double>, capture::max_pool2d_backward}};
}

}  // namespace ulpscope::plain
