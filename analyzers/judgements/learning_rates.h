// The learning rate over the steps of a run, as schedules and warm-ups made it.
#pragma once

#include <cstdint>
#include <vector>

namespace ulpscope {

class RunFacts;

struct LearningRate {
  uint64_t step;
  double value;
};

// Of the first rank, in the steps that are judged and in which it is known. Throws Error (unreadable).
std::vector<LearningRate> learning_rates_of(const RunFacts& facts);

}  // namespace ulpscope
