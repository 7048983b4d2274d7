// The losses at the end of a run: they vary from batch to batch.
#pragma once

#include <cstddef>
#include <vector>

namespace ulpscope {

struct StepTotals;

// Of so many losses at the end of a run.
constexpr size_t kEndLosses = 10;

// The last ones, `most` at most.
std::vector<double> last_losses(const StepTotals& steps, size_t most = kEndLosses);

}  // namespace ulpscope
