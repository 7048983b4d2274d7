#include "ulpscope/analyzers/loss_ends.h"

#include <algorithm>
#include <cmath>

#include "ulpscope/analyzers/step_facts.h"

namespace ulpscope {

std::vector<double> last_losses(const StepTotals& steps) {
  const size_t n = std::min(kEndLosses, steps.last_losses.size());
  return {steps.last_losses.end() - static_cast<std::ptrdiff_t>(n), steps.last_losses.end()};
}

double median(std::vector<double> losses) {
  for (double& loss : losses)
    if (std::isnan(loss)) loss = INFINITY;
  const auto middle = losses.begin() + static_cast<std::ptrdiff_t>(losses.size() / 2);
  std::nth_element(losses.begin(), middle, losses.end());
  if (losses.size() % 2 == 1) return *middle;
  return *std::max_element(losses.begin(), middle) / 2 + *middle / 2;
}

}  // namespace ulpscope
