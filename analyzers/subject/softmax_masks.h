// Masks are tensors whose infinities a softmax reads in order to give their elements no weight. Nobody made them, or an op did that
// puts constants in place of elements, or one that adds or copies such.
#pragma once

#include <cstdint>
#include <vector>

#include "ulpscope/analyzers/subject/tensor_graph.h"
#include "ulpscope/trace/snapshot.h"

namespace ulpscope {

class SoftmaxMasks {
 public:
  SoftmaxMasks(const Snapshot& trace, const TensorGraph& graph);

  // The ops that made it and that read it say so; whether it is one its rows tell.
  bool may_be(uint32_t tensor) const { return !readers_.empty() && !readers_[tensor].empty(); }
  // The outputs of those that read it as a mask.
  const std::vector<uint32_t>& readers(uint32_t tensor) const { return readers_[tensor]; }

 private:
  std::vector<std::vector<uint32_t>> readers_;  // by tensor; empty: no tensor may be one
};

// Whether the row holds what a mask does: infinities of one sign, none of which a rounding made, and no NaN.
bool holds_mask(const TensorRow& row);

}  // namespace ulpscope
