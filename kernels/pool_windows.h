// The windows of pooling ops: which of them there can be, what of an image each covers, and how an index says where the largest
// element was.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "ulpscope/kernels/windows.h"

namespace ulpscope {

// An index of max_pool2d has eight bits: the row-major place in the window, and one bit that marks a NaN.
inline constexpr int kPoolPlaces = 128;  // of a window, at most
inline constexpr int kPoolNaN = 128;     // added to the place of a NaN
inline constexpr int kPoolPlaceMask = kPoolPlaces - 1;

// What no backend takes: "padding: expected at most half the kernel of 2 x 2, found 2 x 0"; or "". Padding of at most half the
// kernel means that every window has a place in the image.
std::string pooling_problem(const Windows& windows);
// The same for max_pool2d: "kernel: expected at most 128 elements, found 12 x 12".
std::string max_pooling_problem(const Windows& windows);

// An index of adaptive_max_pool2d: the row-major place in the image, or what is left of it below zero where that is NaN.
constexpr int32_t marked_nan(int32_t place) { return -1 - place; }

// The elements of a dimension that a window covers.
struct PoolSpan {
  int64_t begin, end;  // without padding
  int64_t padded;      // how many there are with the padding
};

// The windows along one dimension: sliding ones, or as many parts of the extent as are asked for, as equal as they can be.
struct PoolAxis {
  int64_t extent = 0, outputs = 0;
  bool adaptive = false;
  Window window;

  constexpr PoolSpan span(int64_t output) const {
    if (adaptive) {
      const int64_t begin = output * extent / outputs, end = ((output + 1) * extent + outputs - 1) / outputs;
      return {begin, end, end - begin};
    }
    const int64_t first = window.input(output, 0), last = first + window.kernel;
    return {std::max<int64_t>(first, 0), std::min(last, extent), std::min(last, extent + window.padding) - first};
  }
  // The outputs begin, ..., end - 1 whose windows cover a place in the extent.
  constexpr std::pair<int64_t, int64_t> covering(int64_t place) const {
    if (adaptive) return {place * outputs / extent, ((place + 1) * outputs - 1) / extent + 1};
    const int64_t last = place + window.padding, before = last - window.kernel;
    return {before < 0 ? 0 : before / window.stride + 1, std::min(last / window.stride + 1, outputs)};
  }
};

// Those of a pooling op: adaptive where its attributes have no kernel.
struct PoolAxes {
  PoolAxis y, x;
  bool count_padding = false;  // a mean divides by the window's size with its padding

  PoolAxes(const Attributes& attributes, const TensorView& image, const TensorView& pooled);
  constexpr int64_t divisor(const PoolSpan& rows, const PoolSpan& columns) const {
    return count_padding ? rows.padded * columns.padded : (rows.end - rows.begin) * (columns.end - columns.begin);
  }
};

// What max_pool2d and its gradient make of an index: the place of an element in its window.
struct PlaceInWindow {
  using Index = uint8_t;
  Windows windows;

  // Throws Error (usage) for windows that no backend takes.
  PlaceInWindow(const OpCall& call, int64_t width);
  // Of the element (y, x) of the image in window (oy, ox).
  constexpr int64_t index(int64_t oy, int64_t ox, int64_t y, int64_t x, bool is_nan) const {
    const int64_t place = (y - windows.y.input(oy, 0)) * windows.x.kernel + x - windows.x.input(ox, 0);
    return place + (is_nan ? kPoolNaN : 0);
  }
  // The element that it names.
  constexpr std::pair<int64_t, int64_t> chosen(int64_t oy, int64_t ox, int64_t index) const {
    const int64_t place = index & kPoolPlaceMask;
    return {windows.y.input(oy, 0) + place / windows.x.kernel, windows.x.input(ox, 0) + place % windows.x.kernel};
  }
  static constexpr bool is_nan(int64_t index) { return index >= kPoolNaN; }
};

// And adaptive_max_pool2d: its place in the image.
struct PlaceInImage {
  using Index = int32_t;
  int64_t width;

  PlaceInImage(const OpCall& /*call*/, int64_t image_width) : width(image_width) {}
  constexpr int64_t index(int64_t /*oy*/, int64_t /*ox*/, int64_t y, int64_t x, bool is_nan) const {
    const auto place = static_cast<int32_t>(y * width + x);
    return is_nan ? marked_nan(place) : place;
  }
  constexpr std::pair<int64_t, int64_t> chosen(int64_t /*oy*/, int64_t /*ox*/, int64_t index) const {
    const int64_t place = is_nan(index) ? marked_nan(static_cast<int32_t>(index)) : index;
    return {place / width, place % width};
  }
  static constexpr bool is_nan(int64_t index) { return index < 0; }
};

}  // namespace ulpscope
