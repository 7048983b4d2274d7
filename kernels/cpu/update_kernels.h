// Optimizer updates of a block of elements, as FP32, chosen at run time by the CPU's instruction set.
#pragma once

#include <cstdint>

#include "ulpscope/emulation/format.h"
#include "ulpscope/kernels/op_call.h"
#include "ulpscope/kernels/update_sums.h"

namespace ulpscope::cpu {

using ulpscope::UpdateSums;

// Updates d, by what they are and what became of them (UpdateCounts).
struct UpdateCounters {
  uint64_t nonzero = 0, lost = 0, lost_to_decay = 0;
  uint64_t nan = 0, positive_infinity = 0, negative_infinity = 0;
};

// What became of an update beside the weight and the states. Decay is summed where there is some.
struct UpdateTotals {
  UpdateCounters counts;
  UpdateSums sums;
};

// In place but for the gradient; a state that the call does not bring is nullptr. The update d is written where it is not nullptr.
struct UpdateBlock {
  float* weight;
  const float* gradient;
  float* const* states;  // as many as the rule has
  float* d;
  int64_t n;
  // What an update that rounds on the way gives without: the weight and the states. nullptr where it is not asked for.
  float* const* wide;
  // Where not nullptr, as `d` is then: the share of it that does not come from weight decay alone, and the decay and the new weight
  // without it where the rule adds it (updates.h).
  float *gradient_share = nullptr, *decay = nullptr, *without_decay = nullptr;
};
// Adds to the totals, where they are not nullptr.
using UpdateKernel = void (*)(const Attributes& attributes, const UpdateBlock& block, UpdateTotals* totals);
// Of the rule with this place in the list of updates.h, for weights of this type; `stepwise`: it rounds to that type on the way.
UpdateKernel update_kernel(int index, DType weights, bool stepwise);

// g <- g * factor; true iff some g was NaN or Inf.
bool unscale_block(const float* g, float factor, float* out, int64_t n);

}  // namespace ulpscope::cpu
