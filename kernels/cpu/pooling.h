// The inner loops of max pooling on channels-last images.
#pragma once

#include <cstdint>

namespace ulpscope::cpu {

// One row of windows. rows[ky] is the input row of window row ky, or nullptr where it is padding.
struct PoolRow {
  int64_t channels, width, out_width;  // of the images
  int64_t kernel_y, kernel_x, stride_x, padding_x;
};
struct PoolingKernels {
  // The largest element of each window, and its place (pool_windows.h).
  void (*forward)(const PoolRow& shape, const float* const* rows, float* out, uint8_t* indices);
  // Adds the gradient of each window to the element that it came from.
  void (*backward)(const PoolRow& shape, const float* gradients, const uint8_t* indices, float* const* rows);
  // The same where windows neither overlap nor leave a column out: every element of the rows is set.
  void (*backward_tiles)(const PoolRow& shape, const float* gradients, const uint8_t* indices, float* const* rows);
};
const PoolingKernels& pooling_kernels();

}  // namespace ulpscope::cpu
