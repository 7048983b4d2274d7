#include "ulpscope/analyzers/totals/update_history.h"

#include <cmath>

#include "ulpscope/analyzers/subject/output_slots.h"

namespace ulpscope {

void UpdateSeries::append(const UpdateSeries& later) { steps.insert(steps.end(), later.steps.begin(), later.steps.end()); }

void UpdateSeries::beside(const UpdateSeries& other) {
  std::vector<UpdateStep> both;
  auto mine = steps.begin();
  auto its = other.steps.begin();
  while (mine != steps.end() || its != other.steps.end()) {
    if (its == other.steps.end() || (mine != steps.end() && mine->step < its->step)) {
      both.push_back(*mine++);
    } else if (mine == steps.end() || its->step < mine->step) {
      both.push_back(*its++);
    } else {
      both.push_back({mine->step, mine->nonzero + its->nonzero, mine->lost + its->lost,
                      std::hypot(mine->weight_norm, its->weight_norm), std::hypot(mine->update_norm, its->update_norm),
                      std::isnan(mine->learning_rate) ? its->learning_rate : mine->learning_rate});
      ++mine;
      ++its;
    }
  }
  steps = std::move(both);
}

void UpdateHistory::update(const Block& block) {
  if (block.parameters.empty()) return;
  RunUpdateSeries& run = series_.at(block.rank, block.step);
  for (const ParameterRow& row : block.parameters) {
    if (!context_->selection.contains(row.tensor)) continue;
    if (is_average_of_weights(context_->selection.tensor(row.tensor), context_->selection.op(row.tensor))) continue;
    run.weights[row.tensor].steps.push_back({row.step, row.nonzero, row.lost, row.weight_norm, row.update_norm, row.learning_rate});
  }
}

}  // namespace ulpscope
