// Optimizer updates of a block of FP32 elements.
#pragma once

#include <cstdint>

#include "ulpscope/kernels/op_call.h"

namespace ulpscope::cpu {

// In place but for the gradient; `second` is nullptr where the optimizer has one state, `first` too where it has none. The update d
// is written, and what became of it counted, where `d` is not nullptr.
struct UpdateBlock {
  float* weight;
  const float* gradient;
  float *first, *second;
  float* d;
  int64_t n;
};
using UpdateKernel = UpdateCounts (*)(const Attributes& attributes, const UpdateBlock& block);
struct UpdateKernels {
  UpdateKernel sgd, adam;
  // g <- g * factor; true iff some g was NaN or Inf.
  bool (*unscale)(const float* g, float factor, float* out, int64_t n);
};
const UpdateKernels& update_kernels();

}  // namespace ulpscope::cpu
