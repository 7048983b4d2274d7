#include "ulpscope/analyzers/judgements/quantization_judgement.h"

#include <algorithm>

#include "ulpscope/analyzers/judgements/range_judgement.h"
#include "ulpscope/analyzers/subject/run_analysis.h"

namespace ulpscope {

QuantizationJudgement::QuantizationJudgement(const AnalysisContext& context, const RangeJudgement& ranges) {
  const double limit = context.options.flushed_limit;
  for (const auto& [i, facts, unused] : ranges.tensors()) {
    if (!is_quantized(context.selection.tensor(i).dtype)) continue;
    const RoundingBounds& first = facts.before_history.seen;
    if (share(std::max(first.flushed.lower, first.overflowed.lower), first.base) > limit) unscaled.push_back(i);
    const RoundingBounds &seen = facts.scaled.seen, &own = facts.scaled.at_own_scale;
    if (seen.overflowed.lower > 0) saturated.push_back(i);
    const double lost = share(seen.flushed.lower, seen.base);
    if (lost <= limit) continue;
    const bool matters = facts.scaled.flush_loss.matters();
    (matters && is_stale(seen, own, limit) ? stale : matters ? flushed : flushed_unfelt).push_back(i);
  }
}

}  // namespace ulpscope
