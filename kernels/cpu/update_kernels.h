// Optimizer updates of a block of elements, as FP32, chosen at run time by the CPU's instruction set.
#pragma once

#include <cstdint>

#include "ulpscope/emulation/format.h"
#include "ulpscope/kernels/op_call.h"

namespace ulpscope::cpu {

// In place but for the gradient; a state that the call does not bring is nullptr. The update d is written, and what became of it
// counted, where `d` is not nullptr.
struct UpdateBlock {
  float* weight;
  const float* gradient;
  float* const* states;  // as many as the rule has
  float* d;
  int64_t n;
  // What an update that rounds at every step gives without: the weight and the states. nullptr where it is not asked for.
  float* const* wide;
  // Where not nullptr, as `d` is then: the share of it that does not come from weight decay alone (updates.h).
  float* gradient_share = nullptr;
};
using UpdateKernel = UpdateCounts (*)(const Attributes& attributes, const UpdateBlock& block);
// Of the rule with this place in the list of updates.h, for weights of this type; `stepwise`: every operation is rounded to it.
UpdateKernel update_kernel(int index, DType weights, bool stepwise);

// g <- g * factor; true iff some g was NaN or Inf.
bool unscale_block(const float* g, float factor, float* out, int64_t n);

}  // namespace ulpscope::cpu
