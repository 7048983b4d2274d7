#include "ulpscope/analyzers/judgements/loss_ends.h"

#include <algorithm>

#include "ulpscope/analyzers/subject/step_facts.h"
#include "ulpscope/analyzers/subject/step_losses.h"

namespace ulpscope {

std::vector<StepLoss> known_losses(const Snapshot& of_rank, StepRange steps) {
  std::vector<StepLoss> losses;
  visit_steps_with_losses(of_rank, steps, [&](std::span<const StepRow> rows) {
    for (const StepRow& row : rows)
      if (row.loss_known) losses.push_back({row.step, row.loss});
    return true;
  });
  return losses;
}

std::vector<double> last_losses(const StepTotals& steps, size_t most) {
  const size_t n = std::min(most, steps.last_losses.size());
  return {steps.last_losses.end() - static_cast<std::ptrdiff_t>(n), steps.last_losses.end()};
}

}  // namespace ulpscope
