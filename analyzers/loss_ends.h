// The losses at the end of a run: they vary from batch to batch.
#pragma once

#include <cstddef>
#include <vector>

namespace ulpscope {

struct StepTotals;

// Of so many losses at the end of a run.
constexpr size_t kEndLosses = 10;

// The last ones, kEndLosses at most.
std::vector<double> last_losses(const StepTotals& steps);
// Of at least one loss; of an even number, the mean of the two in the middle. One that is NaN or infinite is as bad as can be.
double median(std::vector<double> losses);

}  // namespace ulpscope
