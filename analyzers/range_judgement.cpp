#include "ulpscope/analyzers/range_judgement.h"

#include <algorithm>

#include "ulpscope/analyzers/range_facts.h"

namespace ulpscope {

RangeJudgement::RangeJudgement(const AnalysisContext& context, const StepFacts& steps, const RangeFacts& facts)
    : judged_(facts.ranges().judged(judged_room_)),
      broken_(facts.ranges().broken(broken_room_)),
      what_if_fp16_(facts.what_if_index(binary16)) {
  static const TensorRanges kNone;
  for (uint32_t i = 0; i < context.selection.size(); ++i) {
    const TensorRanges *const judged = judged_.tensors.find(i), *const broken = broken_.tensors.find(i);
    if (judged || broken) tensors_.push_back({i, judged ? *judged : kNone, broken});
  }
  const AnalysisOptions& options = context.options;
  is_filtered_ = !options.modules.empty() || !options.ops.empty() || !options.phases.empty() || !options.roles.empty() ||
                 !context.trace.run().filters.empty();
  const StepTotals whole = steps.whole();
  const bool broke = steps.broken_from() != UINT64_MAX;
  nonfinite_in_order_ = find_nonfinite();
  reached_weights_ = find_in_weights(context.selection);
  harm_ = judge_harm(context.selection, whole, broke);
  origin_ = find_origin(context, whole, broke);
  start_ = judge_start(context.selection);
}

const RangeJudgement::Tensor* RangeJudgement::find(uint32_t tensor) const {
  const auto found =
      std::lower_bound(tensors_.begin(), tensors_.end(), tensor, [](const Tensor& a, uint32_t b) { return a.index < b; });
  return found == tensors_.end() || found->index != tensor ? nullptr : &*found;
}

NonfiniteRows RangeJudgement::nonfinite(uint32_t tensor) const {
  const Tensor& found = *find(tensor);
  NonfiniteRows rows = found.judged.nonfinite;
  if (found.broken) rows.add(found.broken->nonfinite);
  return rows;
}

uint64_t RangeJudgement::held(uint32_t tensor, uint64_t RangeTotals::*count) const {
  const Tensor& found = *find(tensor);
  return found.judged.totals.*count + (found.broken ? found.broken->totals.*count : 0);
}

std::vector<uint32_t> RangeJudgement::find_nonfinite() const {
  std::vector<std::pair<RowPosition, uint32_t>> first;
  for (const Tensor& tensor : tensors_)
    if (const auto position = nonfinite(tensor.index).first) first.emplace_back(*position, tensor.index);
  std::sort(first.begin(), first.end());
  std::vector<uint32_t> in_order;
  for (const auto& [unused, tensor] : first) in_order.push_back(tensor);
  return in_order;
}

bool RangeJudgement::find_in_weights(const Selection& selection) const {
  return std::any_of(tensors_.begin(), tensors_.end(), [&](const Tensor& tensor) {
    const Role role = selection.tensor(tensor.index).role;
    const bool is_kept = role == Role::weight || role == Role::master_weight || role == Role::optimizer_state;
    return is_kept && nonfinite(tensor.index).rows > 0;
  });
}

Severity RangeJudgement::judge_harm(const Selection& selection, const StepTotals& steps, bool broke) const {
  if (broke || reached_weights_ || steps.is_stuck()) return Severity::error;
  // Of the gradients those that updates are made from: others may hold what a mask takes away.
  for (const Tensor& tensor : tensors_) {
    const Role role = selection.tensor(tensor.index).role;
    const bool is_parameters =
        role == Role::weight_gradient || role == Role::accumulated_gradient || role == Role::unscaled_gradient;
    if (is_parameters && nonfinite(tensor.index).rows > 0) return Severity::warning;
  }
  return wastes_many(steps.nonfinite_losses.size(), steps.count) ? Severity::warning : Severity::info;
}

// The first of the run; where it broke, or no step was taken to its end, the first of the steps that led there one after the other:
// what was nonfinite before them was gone by then. Of skipped steps it is their gradients too.
std::optional<NonfiniteOrigin> RangeJudgement::find_origin(const AnalysisContext& context, const StepTotals& steps,
                                                           bool broke) const {
  std::optional<NonfiniteOrigin> origin;
  if (!nonfinite_in_order_.empty()) {
    const NonfiniteRows first = nonfinite(nonfinite_in_order_.front());
    origin = {nonfinite_in_order_.front(), *first.first, first.overflowed};
  }
  // Events of several ranks do not say whose they are.
  if ((!broke && !steps.is_stuck()) || context.trace.ranks().size() > 1) return origin;
  const EventRow* earliest = nullptr;
  const std::vector<EventRow>& events = context.trace.events();
  uint64_t last = steps.last.step;
  for (auto event = events.rbegin(); event != events.rend(); ++event) {
    if (event->kind != EventKind::nonfinite || event->tensor < 0 || event->step > last || event->step < context.options.steps.first)
      continue;
    // A step that was skipped did nothing to the next one, unless all from there on were.
    const uint64_t next = earliest ? earliest->step : last + 1;
    if (event->step + 1 < next || (steps.skipped.contains(event->step) && !steps.skipped.contains(next) && next <= last)) break;
    earliest = &*event;
  }
  if (earliest == nullptr || (origin && earliest->step == origin->position.step && !steps.skipped.contains(earliest->step)))
    return origin;
  const auto tensor = static_cast<uint32_t>(earliest->tensor);
  if (!context.selection.contains(tensor) || !find(tensor) || (origin && origin->tensor == tensor)) return origin;
  origin = {tensor, {earliest->step, context.trace.run().rank, 0, earliest->micro_batch, earliest->loss_index}, 0};
  context.trace.visit_rows_without_histograms({earliest->step, earliest->step + 1}, [&](std::span<const TensorRow> rows) {
    for (const TensorRow& row : rows) {
      if (row.tensor != tensor || row.micro_batch != earliest->micro_batch || row.loss_index != earliest->loss_index) continue;
      origin->position.sequence = row.sequence;
      if (row.known != StatisticsLevel::none && row.statistics.nonfinite() == 0 &&
          !is_quantized(context.selection.tensor(tensor).dtype))
        origin->overflowed = row.rounding.infinite();
      return false;
    }
    return true;
  });
  return origin;
}

NonfiniteStart RangeJudgement::judge_start(const Selection& selection) const {
  if (!origin_) return NonfiniteStart::none;
  const TensorInfo& made = selection.tensor(origin_->tensor);
  const bool overflowed = origin_->overflowed > 0 && is_plainly_narrow(made.dtype);
  // Told with the steps that were taken with them (GradientJudgement::overflow_kept).
  if (overflowed && harm_ == Severity::warning && is_gradient(made.role)) return NonfiniteStart::none;
  if (!overflowed || harm_ == Severity::info || selection.op(origin_->tensor).phase == Phase::optimizer)
    return NonfiniteStart::other;
  return is_gradient(made.role) ? NonfiniteStart::gradient_overflowed : NonfiniteStart::value_overflowed;
}

}  // namespace ulpscope
