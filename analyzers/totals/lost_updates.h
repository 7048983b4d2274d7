// Nonzero updates that left the stored weight as it was, over the steps: shares of them, the step from which on a weight does not
// learn any more, and, where the recording only leads up to it, the steps in which that is to be expected. Definitions:
// docs/numerics.md.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace ulpscope {

// What became of the updates of a weight, or of several, in one step.
struct UpdateStep {
  uint64_t step = 0;
  uint64_t nonzero = 0, lost = 0;
  double weight_norm = 0, update_norm = 0;
  double learning_rate = std::numeric_limits<double>::quiet_NaN();  // not known
};

struct LostUpdates {
  uint64_t nonzero = 0, lost = 0;
  std::optional<double> share() const;  // none where there were no nonzero updates
};
LostUpdates add_up(std::span<const UpdateStep> steps);

// The first or the last tenth of the steps, rounded up.
std::span<const UpdateStep> first_tenth(std::span<const UpdateStep> steps);
std::span<const UpdateStep> last_tenth(std::span<const UpdateStep> steps);
// At most `most` blocks of neighbours, as equal in size as they can be, in order.
std::vector<std::span<const UpdateStep>> blocks_of(std::span<const UpdateStep> steps, size_t most);
// Of |d| / |w| in the steps in which w was not zero and d finite.
std::optional<double> median_ratio(std::span<const UpdateStep> steps);

// Learning has stalled where 99% of the nonzero updates are lost.
inline constexpr uint64_t kStalledPercent = 99;

struct Stall {
  bool extrapolated;
  uint64_t first, last;  // the step, or where it is extrapolated the steps between which it is to be expected
};
std::optional<Stall> find_stall(std::span<const UpdateStep> steps);

}  // namespace ulpscope
