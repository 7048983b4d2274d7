// Which outputs outlive the call that made them.
#pragma once

#include "ulpscope/trace/op_semantics.h"
#include "ulpscope/trace/records.h"

namespace ulpscope {

inline bool is_running_statistic(const TensorInfo& tensor, const OpInfo& op) {
  return makes_as(op.function, tensor.slot, Meaning::running_mean) || makes_as(op.function, tensor.slot, Meaning::running_variance);
}

// Whether an output outlives its step: a weight, what an optimizer keeps, or a running statistic.
inline bool is_kept(const TensorInfo& tensor, const OpInfo& op) {
  return tensor.role == Role::weight || tensor.role == Role::master_weight || tensor.role == Role::optimizer_state ||
         is_running_statistic(tensor, op);
}

// A running average of weights that the program keeps beside its optimizer: what adds to it is no update by an optimizer.
inline bool is_average_of_weights(const TensorInfo& tensor, const OpInfo& op) {
  return op.kind == OpKind::elementwise && (tensor.role == Role::buffer || tensor.role == Role::weight);
}

}  // namespace ulpscope
