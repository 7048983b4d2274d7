// How far a tensor was from what its type holds over the steps before something, and how that changed.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ulpscope/analyzers/subject/selection.h"

namespace ulpscope {

// Below so many bits of headroom, a quarter of the largest number, the next steps may overflow.
inline constexpr double kLowHeadroom = 2;

// Headroom: log2 of the type's largest number over the largest magnitude (docs/numerics.md), of each step the least.
struct HeadroomHistory {
  struct Step {
    uint64_t step;
    double bits;
  };
  std::vector<Step> steps;   // the last before that step, ascending; those whose values are known and not all zero
  std::optional<Step> last;  // that step, as far as its rows lie before the position
  // Bits a step that it shrank by, or grew by where below 0: the median of the slopes between all pairs of steps (Theil-Sen), where
  // the steps' order is no chance (Mann-Kendall, 1%).
  std::optional<double> shrinks;
  std::optional<uint64_t> low_since;  // to the end, `last` included, it was below kLowHeadroom

  // So many steps before `step`, or, where its values are not known then, in the last step before that in which they are.
  std::optional<double> before(uint64_t step, uint64_t back) const;
};

// Of the rows of the tensor before the position, of the same rank; of the last `most` steps before its step.
HeadroomHistory headroom_before(const Snapshot& trace, uint32_t tensor, const RowPosition& position, size_t most = 50);

}  // namespace ulpscope
