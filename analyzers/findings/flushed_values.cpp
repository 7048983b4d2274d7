#include "ulpscope/analyzers/findings/flushed_values.h"

#include "ulpscope/analyzers/judgements/range_judgement.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/tensor_rounding.h"

namespace ulpscope::findings {

Suspects flushed_values(const RunFacts& facts, bool felt) {
  Suspects suspects(facts.selection);
  for (const auto& [i, judged, unused] : facts.ranges().tensors()) {
    const TensorInfo& tensor = facts.selection.tensor(i);
    const RoundingBounds& seen = judged.totals.seen;
    const double lost = share(seen.flushed.lower, seen.base);
    if (is_gradient(tensor.role) || !is_plainly_narrow(tensor.dtype) || lost <= facts.context.options.flushed_limit) continue;
    const bool is_felt = (tensor.role == Role::activation || tensor.role == Role::input) &&
                         facts.selection.op(i).phase != Phase::evaluation && judged.scaled.flush_loss.matters() &&
                         2 * seen.flushed.lower > seen.base;
    if (is_felt == felt) suspects.add(lost, i, {share_of("flushed", seen.flushed.lower, seen.base)}, judged.first_flushed);
  }
  return suspects;
}

}  // namespace ulpscope::findings
