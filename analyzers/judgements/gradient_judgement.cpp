#include "ulpscope/analyzers/judgements/gradient_judgement.h"

#include <algorithm>

#include "ulpscope/analyzers/judgements/range_judgement.h"
#include "ulpscope/analyzers/subject/precision_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/tensor_rounding.h"

namespace ulpscope {

namespace {

// An op that clips by value read an infinity in a step that was taken, and handed on none.
bool clipping_took_infinities(const AnalysisContext& context, const RangeJudgement& ranges) {
  const auto was_infinite = [&](uint32_t i) {
    const RangeJudgement::Tensor* const tensor = ranges.find(i);
    return tensor != nullptr && tensor->judged.nonfinite.infinite > 0;
  };
  return std::any_of(ranges.tensors().begin(), ranges.tensors().end(), [&](const RangeJudgement::Tensor& clipped) {
    const OpInfo& op = context.selection.op(clipped.index);
    if (!clips_by_value(op) || was_infinite(clipped.index)) return false;
    const std::span<const uint32_t> read = context.graph.tensors_read_by(context.selection.tensor(clipped.index).op, 0);
    return std::any_of(read.begin(), read.end(), was_infinite);
  });
}

}  // namespace

GradientJudgement::GradientJudgement(const AnalysisContext& context, const RangeJudgement& ranges) {
  const Selection& selection = context.selection;
  const double limit = context.options.flushed_limit;
  std::vector<int64_t> slot_of(context.trace.ops().size(), -1);  // outputs of one op share the counts of what it read
  for (const auto& [i, facts, unused] : ranges.tensors()) {
    const TensorInfo& tensor = selection.tensor(i);
    if (slot_of[tensor.op] < 0 || slot_of[tensor.op] == tensor.slot) {
      slot_of[tensor.op] = tensor.slot;
      if (share(facts.input.flushed, facts.input.nonzero) > limit)
        (selection.op(i).phase == Phase::backward ? read_as_zero_in_backward : read_as_zero_elsewhere).push_back(i);
    }
    if (facts.vanished_steps > 0) vanished.push_back(i);
    vanished_passes += facts.vanished_steps;
    if (!is_gradient(tensor.role) || !is_plainly_narrow(tensor.dtype)) continue;
    const RoundingBounds &seen = facts.totals.seen, &used = facts.used;
    if (share(used.flushed.lower, used.base) > limit) (facts.scaled.flush_loss.matters() ? flushed : flushed_unfelt).push_back(i);
    if (share(facts.raised.lower, seen.base) > limit) raised.push_back(i);
    if (!facts.scaled.overflow_kept.empty()) {
      overflow_kept.push_back(i);
      overflow_kept_steps.add(facts.scaled.overflow_kept);
    } else if (!facts.scaled.overflow_skipped.empty()) {
      overflow_skipped.push_back(i);
    }
  }
  clipping_hides_infinity = !overflow_kept.empty() && !ranges.reached_weights() && clipping_took_infinities(context, ranges);
}

}  // namespace ulpscope
