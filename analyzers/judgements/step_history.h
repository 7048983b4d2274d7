// Losses and learning rates of the steps of a run that may grow.
#pragma once

#include <cstdint>
#include <vector>

namespace ulpscope {

struct AnalysisContext;

struct StepNumbers {
  uint64_t step = 0;
  double loss = 0, learning_rate = 0;
  bool loss_known = false, skipped = false;
};

// Steps of the run's first rank, of which each is read once.
class StepHistory {
 public:
  // All of them, in order, with losses as visit_steps_with_losses fills them in. `context`: of the same trace each time, which may
  // have grown. What is given changes with the next call.
  const std::vector<StepNumbers>& steps(const AnalysisContext& context);

 private:
  std::vector<StepNumbers> steps_;
};

}  // namespace ulpscope
