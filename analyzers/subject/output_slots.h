// Which output of an op of some function is what (docs/trace_format.md, Outputs).
#pragma once

#include <cstdint>

#include "ulpscope/trace/records.h"

namespace ulpscope {

inline constexpr uint32_t kSecondMomentSlot = 2;       // adam_update
inline constexpr uint32_t kSumsOfExponentsSlot = 1;    // cross_entropy: their logarithms, of each row of logits
inline constexpr uint32_t kRunningStatisticsSlot = 3;  // batch_norm: from this one on; and its inputs that they are averages with
inline constexpr uint32_t kRunningVarianceSlot = 4;    // batch_norm
// Inputs of scaled_matmul: the inverse scales of its factors.
inline constexpr int kFirstInverseScale = 2, kSecondInverseScale = 3;

inline bool is_running_statistic(const TensorInfo& tensor, const OpInfo& op) {
  return op.function == OpFunction::batch_norm && tensor.slot >= kRunningStatisticsSlot;
}

// Whether an output outlives its step: a weight, what an optimizer keeps, or a running statistic.
inline bool is_kept(const TensorInfo& tensor, const OpInfo& op) {
  return tensor.role == Role::weight || tensor.role == Role::master_weight || tensor.role == Role::optimizer_state ||
         is_running_statistic(tensor, op);
}

}  // namespace ulpscope
