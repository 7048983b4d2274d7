// The windows of max_pool2d: which of them there can be, and how an index says where in its window the largest element was.
#pragma once

#include <cstdint>
#include <string>

#include "ulpscope/kernels/op_call.h"

namespace ulpscope {

// An index has eight bits: the row-major place in the window, and one bit that marks a NaN.
inline constexpr int kPoolPlaces = 128;  // of a window, at most
inline constexpr int kPoolNaN = 128;     // added to the place of a NaN
inline constexpr int kPoolPlaceMask = kPoolPlaces - 1;

struct PoolWindow {
  int64_t kernel_y, kernel_x, stride_y, stride_x, padding_y, padding_x;

  static PoolWindow of(const Attributes& attributes);
  // What no backend takes: "kernel: expected at most 128 elements, found 12 x 12"; or "". Padding of at most half the kernel means
  // that every window has a place in the image.
  std::string problem() const;
};

}  // namespace ulpscope
