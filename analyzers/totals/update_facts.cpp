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
  additions += later.additions;
  counts += later.counts;
  sums += later.sums;
  largest = std::max(largest, later.largest);
  keep_first(first_lost, later.first_lost);
}

void RunUpdates::append(const RunUpdates& later) {
  weights.append(later.weights);
  running_sums.append(later.running_sums);
  if (!first_large) first_large = later.first_large;
  large_steps += later.large_steps;
  keep_larger(longest, later.longest);
}

void RunUpdates::beside(const RunUpdates& other) {
  weights.beside(other.weights);
  running_sums.beside(other.running_sums);
  keep_earlier(first_large, other.first_large);
  large_steps = std::max(large_steps, other.large_steps);
  keep_larger(longest, other.longest);
}

namespace {

// The name of the parameter whose gradients the op adds up in a backward pass, or "".
const std::string& parameter_of_sum(const Selection& selection, uint32_t tensor) {
  static const std::string none;
  const OpInfo& op = selection.op(tensor);
  const TensorInfo& info = selection.tensor(tensor);
  const bool adds = op.function == OpFunction::accumulate || op.function == OpFunction::add;
  return adds && op.phase == Phase::backward && is_gradient(info.role) ? info.parameter : none;
}

}  // namespace

void UpdateFacts::begin(const AnalysisContext& context) {
  context_ = &context;
  gradient_sums_.clear();
  const Selection& selection = context.selection;
  for (uint32_t i = 0; i < selection.size(); ++i)
    if (const std::string& parameter = parameter_of_sum(selection, i); selection.contains(i) && !parameter.empty())
      gradient_sums_.try_emplace({parameter, selection.tensor(i).dtype}, i);
}

// The gradients of a parameter that several ops use are one sum, though each addition is an op.
uint32_t UpdateFacts::sum_of(uint32_t tensor) const {
  const std::string& parameter = parameter_of_sum(context_->selection, tensor);
  return parameter.empty() ? tensor : gradient_sums_.at({parameter, context_->selection.tensor(tensor).dtype});
}

void UpdateFacts::add_sums(const Block& block, RunUpdates& run) {
  std::map<uint32_t, SumTotals> of_step;
  for (const SumRow& row : block.sums) {
    if (!context_->selection.contains(row.tensor)) continue;
    SumTotals& totals = of_step[sum_of(row.tensor)];
    const double largest = std::max(totals.largest, row.counts.magnitude);
    totals.additions += row.additions;
    totals.counts += row.counts;
    totals.sums = totals.largest = largest;
  }
  for (auto& [tensor, totals] : of_step) {
    if (totals.lost_share() >= SumTotals::kMostLost) totals.first_lost = block.step.step;
    run.running_sums[tensor].append(totals);
  }
}

void UpdateFacts::update(const Block& block) {
  if (block.parameters.empty() && block.sums.empty()) return;
  RunUpdates& run = updates_.at(block.rank, block.step);
  add_sums(block, run);
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
