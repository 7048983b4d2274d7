// Indices of calls, which are checked.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ulpscope/base/error.h"
#include "ulpscope/kernels/device/indices.h"
#include "ulpscope/kernels/device/launcher-inl.h"
#include "ulpscope/kernels/targets.h"

namespace ulpscope::device {

// Has indices checked; refuse(value, i), the Error of index i, is thrown when all is complete.
template <class L, class Refuse>
void check_indices(L& launcher, Indices& indices, Refuse refuse) {
  indices.facts = static_cast<IndexFacts*>(launcher.pend(sizeof(IndexFacts), [refuse](const void* copy) {
    const auto& facts = *static_cast<const IndexFacts*>(copy);
    if (facts.first_bad_complement != 0) throw refuse(facts.bad, static_cast<int64_t>(~facts.first_bad_complement));
  }));
  if (indices.size == 0) return;
  const int64_t blocks = (indices.size + kMostThreads - 1) / kMostThreads;
  launcher.machine().launch(Grid{std::min(blocks, kMostRowBlocks), threads_for(indices.size)}, CheckIndices{indices});
  launcher.machine().launch(Grid{}, TellBadIndex{indices});
}

// The targets of a loss over classes (targets.h).
template <class L>
Indices targets_of(L& launcher, const OpCall& call, const TensorView& view, int64_t classes) {
  Indices targets{input_of(view), view.size(), classes, true, ignored_target(call), nullptr};
  check_indices(launcher, targets,
                [op = call.op, classes](int64_t target, int64_t row) { return target_out_of_range(op, target, row, classes); });
  return targets;
}

}  // namespace ulpscope::device
