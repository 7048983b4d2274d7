// What a gradient scaler would have done over recorded steps: its own rule (emulation/loss_scale.h), told of each step whether some
// gradient would have overflowed at the scale where it then stands. Where the recording does not tell, both is followed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "ulpscope/analyzers/tables/asked_scales.h"
#include "ulpscope/analyzers/totals/what_if_facts.h"

namespace ulpscope {

// The exponents at which it is worth knowing what is flushed: near where the scalers begin.
std::vector<int> replayed_exponents(std::span<const Scaling> scalings);

// A number of which the least and the most are known.
template <typename T>
struct Between {
  T least{}, most{};
  void include(const Between& other) {
    least = std::min(least, other.least);
    most = std::max(most, other.most);
  }
};

struct ReplayedScaling {
  uint64_t steps = 0;
  uint64_t undecided = 0;  // steps of which the recording does not tell whether they overflow, at a scale that may stand there
  bool is_known = true;    // false: there were no steps, or too many ways to go on, and nothing further is
  Between<uint64_t> skipped;
  Between<double> lowest, highest, final;  // scales
  CountBounds flushed;                     // of the elements of all steps, at the scales that stood there
  uint64_t base = 0;
  // By step in which it changes: what the scale may be.
  std::vector<uint64_t> changes;
  std::vector<Between<double>> scales;
};

// `format`: which of those that the steps answer for; `exponents`: those that they know the flushed elements at.
ReplayedScaling replay_scaling(const LossScaleRule& rule, std::span<const StepGradients> steps, size_t format,
                               std::span<const int> exponents);

}  // namespace ulpscope
