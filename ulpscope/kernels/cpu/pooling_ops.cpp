// Max pooling: our own, because a NaN must reach the output.
#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

#include "ulpscope/base/error.h"
#include "ulpscope/kernels/cpu/block_output.h"
#include "ulpscope/kernels/cpu/images.h"
#include "ulpscope/kernels/cpu/parallel.h"
#include "ulpscope/kernels/cpu/pooling.h"
#include "ulpscope/kernels/pool_window.h"
#include "ulpscope/kernels/reference/plain.h"

namespace ulpscope::cpu {
namespace {

struct Pooling : PoolRow {
  int64_t images, height, out_height, stride_y, padding_y;

  Pooling(const OpCall& call, const TensorView& x, const TensorView& y)
      : PoolRow{x.shape[1],
                x.shape[3],
                y.shape[3],
                setting(call, "kernel_y"),
                setting(call, "kernel_x"),
                setting(call, "stride_x"),
                setting(call, "padding_x")},
        images(x.shape[0]),
        height(x.shape[2]),
        out_height(y.shape[2]),
        stride_y(setting(call, "stride_y")),
        padding_y(setting(call, "padding_y")) {
    const std::string problem = PoolWindow::of(*call.attributes).problem();
    if (!problem.empty()) throw usage_error("{}: {}", call.op, problem);
  }
  static int64_t setting(const OpCall& call, std::string_view name) { return static_cast<int64_t>(call.attribute(name)); }

  // True iff every element of the input lies in exactly one window.
  bool tiles() const {
    return kernel_y == stride_y && kernel_x == stride_x && padding_y == 0 && padding_x == 0 && out_height * stride_y == height &&
           out_width * stride_x == width;
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
    const int64_t y = oy * stride_y + ky - padding_y;
    return y >= 0 && y < height ? y : -1;
  }
};

// Output rows that a thread handles at a time: whole blocks of statistics where that is not too much.
int64_t rows_of_piece(int64_t row) {
  const int64_t aligned = kStatisticsBlock / std::gcd(kStatisticsBlock, row);
  return aligned * row <= 16 * kStatisticsBlock ? aligned : blocks_of(kStatisticsBlock, row);
}

void max_pool2d(Context& context, const OpCall& call) {
  const TensorView &x = call.inputs[0], &y = call.outputs[0], &index_view = call.outputs[1];
  if (y.size() == 0 || !is_channels_last(y) || !is_channels_last(index_view)) return run_plain(call);
  const Pooling shape(call, x, y);
  const Images in(context, x);
  const int64_t rows = rows_of_piece(shape.out_row()), all_rows = shape.images * shape.out_height;
  BlockOutput out(context, call, 0, rows * shape.out_row());
  const bool parallel = x.size() >= kParallelElements;
  const int slots = parallel ? context.threads : 1;
  const ThreadScratch wide_in(context.allocator, slots, in.direct() ? 0 : bytes_of(shape.kernel_y * shape.row()));
  const ThreadScratch wide_out(context.allocator, slots, out.place(0) != nullptr ? 0 : bytes_of(rows * shape.out_row()));
  const auto& kernels = pooling_kernels();
  parallel_for(context, blocks_of(all_rows, rows), parallel, [&](int64_t piece) {
    const int slot = parallel ? omp_get_thread_num() : 0;
    const int64_t first = piece * rows, n = std::min(rows, all_rows - first);
    float* to = out.place(first * shape.out_row()) != nullptr ? out.place(first * shape.out_row()) : wide_out.of(slot);
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
  const int64_t images = tiles ? rows_of_piece(image) : 1;  // of a piece
  BlockOutput out(context, call, 0, images * image);
  const bool parallel = dx.size() >= kParallelElements;
  const int slots = parallel ? context.threads : 1;
  const ThreadScratch wide_g(context.allocator, slots, gradients.direct() ? 0 : bytes_of(images * out_image));
  const ThreadScratch wide_dx(context.allocator, slots, out.place(0) != nullptr ? 0 : bytes_of(images * image));
  const auto backward = tiles ? pooling_kernels().backward_tiles : pooling_kernels().backward;
  parallel_for(context, blocks_of(shape.images, images), parallel, [&](int64_t piece) {
    const int slot = parallel ? omp_get_thread_num() : 0;
    const int64_t first = piece * images, n = std::min(images, shape.images - first);
    const float* from = gradients.read(first * out_image, n * out_image, wide_g.of(slot));
    const uint8_t* indices = index_view.as<const uint8_t>() + first * out_image;
    float* to = out.place(first * image) != nullptr ? out.place(first * image) : wide_dx.of(slot);
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

}  // namespace

std::vector<NamedKernel> pooling_ops() { return {{"max_pool2d", max_pool2d}, {"max_pool2d_backward", max_pool2d_backward}}; }

}  // namespace ulpscope::cpu
