// Pooling: our own, because a NaN must reach the output.
#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "ulpscope/base/error.h"
#include "ulpscope/kernels/cpu/block_output.h"
#include "ulpscope/kernels/cpu/images.h"
#include "ulpscope/kernels/cpu/parallel.h"
#include "ulpscope/kernels/cpu/pooling.h"
#include "ulpscope/kernels/plain/plain.h"
#include "ulpscope/kernels/pool_windows.h"

namespace ulpscope::cpu {
namespace {

struct Pooling : PoolRow {
  int64_t images, height, out_height;
  Window vertical;

  Pooling(const OpCall& call, const TensorView& x, const TensorView& y) : Pooling(call, x, y, Windows::of(*call.attributes)) {}

  // True iff every element of the input lies in exactly one window.
  bool tiles() const {
    return kernel_y == vertical.stride && kernel_x == stride_x && vertical.padding == 0 && padding_x == 0 &&
           out_height * kernel_y == height && out_width * kernel_x == width;
  }
  // Where they do, each row of windows may be taken as an image of its own.
  void make_images_of_rows() {
    images *= out_height;
    height = kernel_y;
    out_height = 1;
  }
  int64_t row() const { return width * channels; }
  int64_t out_row() const { return out_width * channels; }
  // The input row of window row ky of output row oy, or -1.
  int64_t input_row(int64_t oy, int64_t ky) const {
    const int64_t y = vertical.input(oy, ky);
    return y >= 0 && y < height ? y : -1;
  }

 private:
  Pooling(const OpCall& call, const TensorView& x, const TensorView& y, const Windows& windows)
      : PoolRow{x.shape[1], x.shape[3], y.shape[3], windows.y.kernel, windows.x.kernel, windows.x.stride, windows.x.padding},
        images(x.shape[0]),
        height(x.shape[2]),
        out_height(y.shape[2]),
        vertical(windows.y) {
    const std::string problem = max_pooling_problem(windows);
    if (!problem.empty()) throw usage_error("{}: {}", call.op, problem);
  }
};

constexpr int64_t kPieceBlocks = 16;  // of an output, at most, that a thread handles at a time

void max_pool2d(Context& context, const OpCall& call) {
  const TensorView &x = call.inputs[0], &y = call.outputs[0], &index_view = call.outputs[1];
  if (y.size() == 0 || !is_channels_last(y) || !is_channels_last(index_view)) return run_plain(call);
  const Pooling shape(call, x, y);
  const Images in(context, x);
  const int64_t rows = BlockOutput::rows_of_piece(shape.out_row(), kPieceBlocks), all_rows = shape.images * shape.out_height;
  BlockOutput out(context, call, 0, rows * shape.out_row());
  const bool parallel = x.size() >= kParallelElements;
  const int slots = parallel ? context.threads : 1;
  const ThreadScratch wide_in(context.allocator, slots, in.direct() ? 0 : bytes_of(shape.kernel_y * shape.row()));
  const ThreadTiles results(context, out, slots, rows * shape.out_row());
  const auto& kernels = pooling_kernels();
  parallel_for(context, blocks_of(all_rows, rows), parallel, [&](int64_t piece) {
    const int slot = parallel ? omp_get_thread_num() : 0;
    const int64_t first = piece * rows, n = std::min(rows, all_rows - first);
    float* to = results.at(slot, first * shape.out_row());
    for (int64_t row = first; row < first + n; ++row) {
      const int64_t image = row / shape.out_height, oy = row % shape.out_height;
      std::array<const float*, kPoolPlaces> window{};
      for (int64_t ky = 0; ky < shape.kernel_y; ++ky) {
        const int64_t iy = shape.input_row(oy, ky);
        if (iy < 0) continue;
        window[static_cast<size_t>(ky)] = in.read((image * shape.height + iy) * shape.row(), shape.row(),
                                                  wide_in.of(slot) + (in.direct() ? 0 : ky * shape.row()));
      }
      kernels.forward(shape, window.data(), to + (row - first) * shape.out_row(), index_view.as<uint8_t>() + row * shape.out_row());
    }
    out.put(first * shape.out_row(), to, n * shape.out_row());
  });
  out.finish();
  record_stored(call, 1);
}

// Image by image: windows may overlap, and each element adds up its gradients in the order of the windows.
void max_pool2d_backward(Context& context, const OpCall& call) {
  const TensorView &g = call.inputs[0], &index_view = call.inputs[1], &dx = call.outputs[0];
  if (g.size() == 0 || dx.size() == 0 || !is_channels_last(dx) || !is_channels_last(index_view)) return run_plain(call);
  Pooling shape(call, dx, g);
  const Images gradients(context, g);
  const bool tiles = shape.tiles();
  if (tiles) shape.make_images_of_rows();
  const int64_t image = shape.height * shape.row(), out_image = shape.out_height * shape.out_row();
  const int64_t images = tiles ? BlockOutput::rows_of_piece(image, kPieceBlocks) : 1;  // of a piece
  BlockOutput out(context, call, 0, images * image);
  const bool parallel = dx.size() >= kParallelElements;
  const int slots = parallel ? context.threads : 1;
  const ThreadScratch wide_g(context.allocator, slots, gradients.direct() ? 0 : bytes_of(images * out_image));
  const ThreadTiles results(context, out, slots, images * image);
  const auto backward = tiles ? pooling_kernels().backward_tiles : pooling_kernels().backward;
  parallel_for(context, blocks_of(shape.images, images), parallel, [&](int64_t piece) {
    const int slot = parallel ? omp_get_thread_num() : 0;
    const int64_t first = piece * images, n = std::min(images, shape.images - first);
    const float* from = gradients.read(first * out_image, n * out_image, wide_g.of(slot));
    const uint8_t* indices = index_view.as<const uint8_t>() + first * out_image;
    float* to = results.at(slot, first * image);
    if (!tiles) std::memset(to, 0, bytes_of(n * image));
    for (int64_t row = 0; row < n * shape.out_height; ++row) {
      std::array<float*, kPoolPlaces> window{};
      for (int64_t ky = 0; ky < shape.kernel_y; ++ky) {
        const int64_t iy = shape.input_row(row % shape.out_height, ky);
        if (iy >= 0) window[static_cast<size_t>(ky)] = to + (row / shape.out_height * shape.height + iy) * shape.row();
      }
      backward(shape, from + row * shape.out_row(), indices + row * shape.out_row(), window.data());
    }
    out.put(first * image, to, n * image);
  });
  out.finish();
}

// Pooling of any windows, image by image, between channels-last images: vectors run along the channels.
struct ImagePooling {
  PoolAxes axes;
  int64_t channels;

  // Pooled element (oy, ox) of channel 0, in a pooled image; element (iy, ix) in an image.
  int64_t pooled(int64_t oy, int64_t ox) const { return (oy * axes.x.outputs + ox) * channels; }
  int64_t place(int64_t iy, int64_t ix) const { return (iy * axes.x.extent + ix) * channels; }
  // body(pooled, rows, columns) for each window.
  template <typename Body>
  void for_each_window(Body body) const {
    for (int64_t oy = 0; oy < axes.y.outputs; ++oy)
      for (int64_t ox = 0; ox < axes.x.outputs; ++ox) body(pooled(oy, ox), axes.y.span(oy), axes.x.span(ox));
  }
  // body(place) for each element that a window covers.
  template <typename Body>
  void for_each_place(const PoolSpan& rows, const PoolSpan& columns, Body body) const {
    for (int64_t iy = rows.begin; iy < rows.end; ++iy)
      for (int64_t ix = columns.begin; ix < columns.end; ++ix) body(place(iy, ix));
  }
};

// body(image, from, to) for each image of input 0 and output 0, of which one is pooled from the other.
template <typename Body>
void for_each_image(Context& context, const OpCall& call, Body body) {
  const TensorView &from = call.inputs[0], &to = call.outputs[0];
  const Images in(context, from);
  const int64_t images = to.shape[0], in_image = from.size() / images, out_image = to.size() / images;
  const int64_t of_piece = BlockOutput::rows_of_piece(out_image, kPieceBlocks);
  BlockOutput out(context, call, 0, of_piece * out_image);
  const bool parallel = std::max(from.size(), to.size()) >= kParallelElements;
  const int slots = parallel ? context.threads : 1;
  const ThreadScratch wide_in(context.allocator, slots, in.direct() ? 0 : bytes_of(in_image));
  const ThreadTiles results(context, out, slots, of_piece * out_image);
  parallel_for(context, blocks_of(images, of_piece), parallel, [&](int64_t piece) {
    const int slot = parallel ? omp_get_thread_num() : 0;
    const int64_t first = piece * of_piece, n = std::min(of_piece, images - first);
    float* values = results.at(slot, first * out_image);
    for (int64_t i = 0; i < n; ++i)
      body(first + i, in.read((first + i) * in_image, in_image, wide_in.of(slot)), values + i * out_image);
    out.put(first * out_image, values, n * out_image);
  });
  out.finish();
}

// The image and what is pooled from it; where not both have elements and lie channels-last, the plain twin computes.
bool pools_images(const TensorView& in, const TensorView& out) { return in.size() > 0 && out.size() > 0 && is_channels_last(out); }

void average_pool2d(Context& context, const OpCall& call) {
  const TensorView &x = call.inputs[0], &y = call.outputs[0];
  if (!pools_images(x, y)) return run_plain(call);
  const ImagePooling shape{PoolAxes(*call.attributes, x, y), x.shape[1]};
  for_each_image(context, call, [&](int64_t, const float* from, float* to) {
    shape.for_each_window([&](int64_t pooled, const PoolSpan& rows, const PoolSpan& columns) {
      float* mean = to + pooled;
      std::fill_n(mean, shape.channels, 0.0f);
      shape.for_each_place(rows, columns, [&](int64_t place) {
        for (int64_t c = 0; c < shape.channels; ++c) mean[c] += from[place + c];
      });
      const auto divisor = static_cast<float>(shape.axes.divisor(rows, columns));
      for (int64_t c = 0; c < shape.channels; ++c) mean[c] /= divisor;
    });
  });
}

void average_pool2d_backward(Context& context, const OpCall& call) {
  const TensorView &g = call.inputs[0], &dx = call.outputs[0];
  if (!pools_images(g, dx)) return run_plain(call);
  const ImagePooling shape{PoolAxes(*call.attributes, dx, g), dx.shape[1]};
  const int64_t image = dx.shape[2] * dx.shape[3] * shape.channels;
  for_each_image(context, call, [&](int64_t, const float* from, float* to) {
    std::fill_n(to, image, 0.0f);
    shape.for_each_window([&](int64_t pooled, const PoolSpan& rows, const PoolSpan& columns) {
      const auto divisor = static_cast<float>(shape.axes.divisor(rows, columns));
      shape.for_each_place(rows, columns, [&](int64_t place) {
        for (int64_t c = 0; c < shape.channels; ++c) to[place + c] += from[pooled + c] / divisor;
      });
    });
  });
}

void adaptive_max_pool2d(Context& context, const OpCall& call) {
  const TensorView &x = call.inputs[0], &y = call.outputs[0], &index_view = call.outputs[1];
  if (!pools_images(x, y) || !is_channels_last(index_view)) return run_plain(call);
  const ImagePooling shape{PoolAxes(*call.attributes, x, y), x.shape[1]};
  const int64_t image = y.size() / y.shape[0];
  for_each_image(context, call, [&](int64_t i, const float* from, float* to) {
    shape.for_each_window([&](int64_t pooled, const PoolSpan& rows, const PoolSpan& columns) {
      float* largest = to + pooled;
      int32_t* index = index_view.as<int32_t>() + i * image + pooled;
      const int64_t first = shape.place(rows.begin, columns.begin);
      for (int64_t c = 0; c < shape.channels; ++c) {
        largest[c] = from[first + c];
        index[c] = static_cast<int32_t>(first / shape.channels);
      }
      shape.for_each_place(rows, columns, [&](int64_t place) {
        const auto here = static_cast<int32_t>(place / shape.channels);
        for (int64_t c = 0; c < shape.channels; ++c) {
          const float value = from[place + c], best = largest[c];
          const bool wins = value > best || (value != value && best == best);  // larger, or the first NaN
          largest[c] = wins ? value : best;
          index[c] = wins ? here : index[c];
        }
      });
      for (int64_t c = 0; c < shape.channels; ++c) index[c] = largest[c] != largest[c] ? marked_nan(index[c]) : index[c];
    });
  });
  record_stored(call, 1);
}

void adaptive_max_pool2d_backward(Context& context, const OpCall& call) {
  const TensorView &g = call.inputs[0], &index_view = call.inputs[1], &dx = call.outputs[0];
  if (!pools_images(g, dx) || !is_channels_last(index_view)) return run_plain(call);
  const int64_t channels = dx.shape[1], image = dx.shape[2] * dx.shape[3] * channels, pooled = g.size() / g.shape[0];
  for_each_image(context, call, [&](int64_t i, const float* from, float* to) {
    std::fill_n(to, image, 0.0f);
    const int32_t* indices = index_view.as<const int32_t>() + i * pooled;
    for (int64_t e = 0; e < pooled; ++e) {
      const bool is_nan = indices[e] < 0;
      const int64_t place = is_nan ? marked_nan(indices[e]) : indices[e];
      to[place * channels + e % channels] += is_nan ? std::numeric_limits<float>::quiet_NaN() : from[e];
    }
  });
}

}  // namespace

std::vector<NamedKernel> pooling_ops() {
  return {{"max_pool2d", max_pool2d},
          {"max_pool2d_backward", max_pool2d_backward},
          {"avg_pool2d", average_pool2d},
          {"avg_pool2d_backward", average_pool2d_backward},
          {"adaptive_avg_pool2d", average_pool2d},
          {"adaptive_avg_pool2d_backward", average_pool2d_backward},
          {"adaptive_max_pool2d", adaptive_max_pool2d},
          {"adaptive_max_pool2d_backward", adaptive_max_pool2d_backward}};
}

}  // namespace ulpscope::cpu
