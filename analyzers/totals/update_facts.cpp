#include "ulpscope/analyzers/totals/update_facts.h"

#include <algorithm>
#include <cmath>

#include "ulpscope/analyzers/subject/output_slots.h"

namespace ulpscope {

namespace {

// The larger one; of equals, that of the first tensor.
void keep_larger(std::optional<UpdateRatio>& into, const UpdateRatio& other) {
  if (!into || other.ratio > into->ratio || (other.ratio == into->ratio && other.tensor < into->tensor)) into = other;
}
// The earlier one; of the same step, the larger.
void keep_earlier(std::optional<UpdateRatio>& into, const std::optional<UpdateRatio>& other) {
  if (!other || (into && into->step < other->step)) return;
  if (!into || other->step < into->step) {
    into = other;
  } else {
    keep_larger(into, *other);
  }
}

void keep_larger(std::optional<UpdateRatio>& into, const std::optional<UpdateRatio>& other) {
  if (other) keep_larger(into, *other);
}

}  // namespace

std::optional<double> update_over_weight(const ParameterRow& row, const TensorInfo& weight) {
  const double ratio = row.update_norm / row.weight_norm;
  return weight.shape.size() < 2 || !(row.weight_norm > 0) || !std::isfinite(ratio) ? std::nullopt : std::optional(ratio);
}

CountedUpdates& CountedUpdates::operator+=(const CountedUpdates& other) {
  nonzero += other.nonzero;
  lost += other.lost;
  lost_to_decay += other.lost_to_decay;
  return *this;
}

void UpdateTotals::append(const UpdateTotals& later) {
  rows += later.rows;
  all += later.all;
  missed += later.missed;
  decay_asked += later.decay_asked;
  decay_applied += later.decay_applied;
  keep_first(first_lost, later.first_lost);
  keep_first(first_decay_lost, later.first_decay_lost);
}

void SumTotals::append(const SumTotals& later) {
  steps += later.steps;
  additions += later.additions;
  addends += later.addends;
  absorbed += later.absorbed;
  asked += later.asked;
  arrived += later.arrived;
  keep_first(first_lost, later.first_lost);
}

void RunUpdates::append(const RunUpdates& later) {
  weights.append(later.weights);
  sums.append(later.sums);
  if (!first_large) first_large = later.first_large;
  large_steps += later.large_steps;
  keep_larger(longest, later.longest);
}

void RunUpdates::beside(const RunUpdates& other) {
  weights.beside(other.weights);
  sums.beside(other.sums);
  keep_earlier(first_large, other.first_large);
  large_steps = std::max(large_steps, other.large_steps);
  keep_larger(longest, other.longest);
}

void UpdateFacts::update(const Block& block) {
  if (block.parameters.empty() && block.sums.empty()) return;
  RunUpdates& run = updates_.at(block.rank, block.step);
  for (const SumRow& row : block.sums) {
    if (!context_->selection.contains(row.tensor)) continue;
    SumTotals totals{1, row.additions, row.addends, row.absorbed, row.asked, row.arrived};
    if (row.asked > 0 && totals.lost() >= SumTotals::kLimit) totals.first_lost = row.step;
    run.sums[row.tensor].append(totals);
  }
  std::optional<UpdateRatio> largest;
  const bool fitted = context_->is_fitted(block.step);
  for (const ParameterRow& row : block.parameters) {
    if (!context_->selection.contains(row.tensor)) continue;
    UpdateTotals totals{1, {row.nonzero, row.lost, row.lost_to_decay}, {}};
    if (!fitted) {
      totals.missed = totals.all;
      if (2 * row.lost > row.nonzero) totals.first_lost = RowPosition(row.step, block.rank);
    }
    if (row.decay_known && std::isfinite(row.decay_asked) && std::isfinite(row.decay_applied)) {
      totals.decay_asked = row.decay_asked;
      totals.decay_applied = row.decay_applied;
      if (row.decay_applied < UpdateTotals::kDecayLimit * row.decay_asked) totals.first_decay_lost = row.step;
    }
    run.weights[row.tensor].append(totals);
    const TensorInfo& weight = context_->selection.tensor(row.tensor);
    if (is_average_of_weights(weight, context_->selection.op(row.tensor))) continue;
    if (const auto ratio = update_over_weight(row, weight))
      keep_larger(largest, UpdateRatio{row.step, row.tensor, *ratio, block.rank});
  }
  if (!largest) return;
  keep_larger(run.longest, *largest);
  if (largest->ratio < RunUpdates::kLarge) return;
  ++run.large_steps;
  if (!run.first_large) run.first_large = largest;
}

}  // namespace ulpscope
