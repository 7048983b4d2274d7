#include "ulpscope/analyzers/gradient_judgement.h"

#include <algorithm>

#include "ulpscope/analyzers/range_judgement.h"
#include "ulpscope/analyzers/run_analysis.h"

namespace ulpscope {

GradientJudgement::GradientJudgement(const AnalysisContext& context, const RangeJudgement& ranges) {
  const Selection& selection = context.selection;
  const double limit = context.options.flushed_limit;
  std::vector<int> slot_of(context.trace.ops().size(), -1);  // outputs of one op share the counts of what it read
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
    const RoundingBounds& seen = facts.totals.seen;
    if (share(seen.flushed.lower, seen.base) > limit) (facts.scaled.flush_loss.matters() ? flushed : flushed_unfelt).push_back(i);
    if (share(facts.raised.lower, seen.base) > limit) raised.push_back(i);
    if (!facts.scaled.overflow_kept.empty()) {
      overflow_kept.push_back(i);
      overflow_kept_steps.add(facts.scaled.overflow_kept);
    } else if (!facts.scaled.overflow_skipped.empty()) {
      overflow_skipped.push_back(i);
    }
  }
  const std::vector<OpInfo>& ops = context.trace.ops();
  clipping_hides_infinity =
      !overflow_kept.empty() && !ranges.reached_weights() && std::any_of(ops.begin(), ops.end(), [](const OpInfo& op) {
        return op.phase == Phase::scaling && op.function == OpFunction::clamp;
      });
}

}  // namespace ulpscope
