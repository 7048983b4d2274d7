// Products and convolutions as matrix products: rows of a first factor times columns of a second, batch after batch, and where
// their elements lie in the tensors of a call. The terms of a sum stand in the order
//   (kernel row, kernel column, channel) for a convolution, a transposed one and the gradient of the input, terms that fall into
//   the
//     padding or between strides being products with zero,
//   (image, row, column) of the map for the gradient of the weight.
#pragma once

#include <cstdint>
#include <optional>

#include "ulpscope/kernels/op_call.h"
#include "ulpscope/kernels/view.h"
#include "ulpscope/kernels/windows.h"

namespace ulpscope {

// What the windows of a convolution meet of a tensor [N, channels, H, W]: for a pixel (image, row, column) of the other one, and a
// tap (kernel row, kernel column, channel) of the window there.
struct WindowElements {
  Window y, x;
  bool is_map;  // the tensor has an element for each window: it is asked for the one that lies on the pixel so
  int64_t pixels_y, pixels_x, kernel_x, channels;
  int64_t height, width;
  int64_t image_stride, channel_stride, y_stride, x_stride;

  // -1: in the padding, or between strides.
  constexpr int64_t offset_of(int64_t pixel, int64_t tap) const {
    const int64_t row = pixel / pixels_x, place = tap / channels;
    const int64_t at_y = along(y, row % pixels_y, place / kernel_x, height),
                  at_x = along(x, pixel % pixels_x, place % kernel_x, width);
    if (at_y < 0 || at_x < 0) return -1;
    return row / pixels_y * image_stride + tap % channels * channel_stride + at_y * y_stride + at_x * x_stride;
  }
  // Calls body(offset, count) for what a tap meets on `pixels` pixels: one, or as many as are zero, which -1 says.
  template <typename Body>
  void for_each_row(int64_t tap, int64_t pixels, const Body& body) const {
    const int64_t place = tap / channels, channel = tap % channels * channel_stride;
    for (int64_t row = 0; row < pixels / pixels_x; ++row) {
      const int64_t at_y = along(y, row % pixels_y, place / kernel_x, height);
      if (at_y < 0) {
        body(-1, pixels_x);
        continue;
      }
      const int64_t start = row / pixels_y * image_stride + channel + at_y * y_stride;
      for (int64_t pixel = 0; pixel < pixels_x; ++pixel) {
        const int64_t at_x = along(x, pixel, place % kernel_x, width);
        body(at_x < 0 ? -1 : start + at_x * x_stride, 1);
      }
    }
  }

 private:
  constexpr int64_t along(const Window& window, int64_t pixel, int64_t k, int64_t extent) const {
    const int64_t at = is_map ? window.output(pixel, k, extent) : window.input(pixel, k);
    return at < extent ? at : -1;
  }
};

// The lines of a factor, rows of the first or columns of the second, are made of terms.
struct Factor {
  const void* data = nullptr;
  DType dtype = DType::f32;
  ElementOrder batch = {};
  // Of a matrix: an element lies at the sum of the offsets of its batch, line and term.
  ElementOrder line = {}, term = {};
  // Of windows: lines are pixels and terms are taps, or the other way round.
  bool is_windowed = false, lines_are_taps = false;
  WindowElements windows = {};

  // Calls body(offset, stride, count) for the terms of a line, runs of so many that are so far apart, one after the other. Offset
  // -1: these are zero.
  template <typename Body>
  void for_each_run(int64_t in_batch, int64_t in_line, int64_t terms, const Body& body) const {
    const int64_t base = batch.offset_of(in_batch);
    if (!is_windowed) {
      const int last = term.rank - 1;
      const int64_t first = base + line.offset_of(in_line), run = last < 0 ? 1 : term.shape[last];
      for (int64_t i = 0; i < terms; i += run) body(first + term.offset_of(i), last < 0 ? 0 : term.strides[last], run);
    } else if (lines_are_taps) {
      windows.for_each_row(in_line, terms, [&](int64_t offset, int64_t count) { body(offset < 0 ? -1 : base + offset, 0, count); });
    } else {
      for (int64_t tap = 0; tap < terms; tap += windows.channels) {
        const int64_t offset = windows.offset_of(in_line, tap);
        body(offset < 0 ? -1 : base + offset, windows.channel_stride, windows.channels);
      }
    }
  }
  // In elements; -1: the term is zero.
  constexpr int64_t offset_of(int64_t in_batch, int64_t in_line, int64_t in_term) const {
    const int64_t base = batch.offset_of(in_batch);
    if (!is_windowed) return base + line.offset_of(in_line) + term.offset_of(in_term);
    const int64_t offset = lines_are_taps ? windows.offset_of(in_term, in_line) : windows.offset_of(in_line, in_term);
    return offset < 0 ? -1 : base + offset;
  }
};

struct ProductFactors {
  Factor a = {}, b = {};
  int64_t batches = 0, rows = 0, columns = 0, terms = 0;
  // Output 0, a dimension of which is two where it is split into groups: the sum of a row and column lies at the sum of three
  // offsets.
  TensorView output = {};
  ElementOrder batch = {}, row = {}, column = {};
  TensorView sums = {};                 // how [batches, rows, columns] sums lie as a tensor of the output's shape
  std::optional<TensorView> bias = {};  // likewise, repeated
};

// Of a call of arithmetic_products().
ProductFactors product_factors(const OpCall& call);

}  // namespace ulpscope
