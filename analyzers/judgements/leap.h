// One update that was out of all proportion to those before it, as of a sample, a gradient or a weight that was wrong in one step.
// A learning rate that is too large makes updates and losses grow over steps.
#pragma once

#include <cstdint>
#include <optional>

#include "ulpscope/analyzers/totals/update_facts.h"

namespace ulpscope {

class RunFacts;

struct Leap {
  UpdateRatio update;
  double before = 0;          // the largest ratio of an update to its weight in the steps before
  uint64_t steps_before = 0;  // that had updates
  // The first tensor of the step, in order of execution, whose magnitudes leapt while those before it had not; with its largest,
  // and the largest in the steps before.
  struct Tensor {
    uint32_t tensor;
    double largest, before;
  };
  std::optional<Tensor> first = {};
};

// Of the run's first update that was as large as its weight, where it was a hundred times as large as all before it and the losses
// had not grown by then. Nothing where fewer than ten steps with updates came before.
std::optional<Leap> leap_of(const RunFacts& facts);

}  // namespace ulpscope
