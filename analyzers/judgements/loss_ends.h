// The losses at the end of a run: they vary from batch to batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ulpscope/trace/snapshot.h"

namespace ulpscope {

struct StepTotals;

struct StepLoss {
  uint64_t step;
  double loss;
};
// Those that are known, of a trace of one rank, in order.
std::vector<StepLoss> known_losses(const Snapshot& of_rank, StepRange steps);

// Of so many losses at the end of a run.
constexpr size_t kEndLosses = 10;

// The last ones, `most` at most.
std::vector<double> last_losses(const StepTotals& steps, size_t most = kEndLosses);

}  // namespace ulpscope
