#include "ulpscope/analyzers/findings/flushed_values.h"

#include "ulpscope/analyzers/judgements/range_judgement.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/tensor_rounding.h"

namespace ulpscope::findings {

namespace {

bool is_on_way_to_loss(const RunFacts& facts, uint32_t tensor) {
  const Role role = facts.selection.tensor(tensor).role;
  return (role == Role::activation || role == Role::input) && facts.selection.op(tensor).phase != Phase::evaluation;
}

template <typename Holds>
size_t count_rounded(const RunFacts& facts, Holds&& holds) {
  std::vector<uint32_t> tensors;
  for (const auto& [i, judged, unused] : facts.ranges().tensors())
    if (is_plainly_narrow(facts.selection.tensor(i).dtype) && judged.totals.rows_seen > 0 && holds(i)) tensors.push_back(i);
  return facts.selection.count_outputs(tensors);
}

}  // namespace

Suspects flushed_values(const RunFacts& facts, bool felt) {
  Suspects suspects(facts.selection);
  for (const auto& [i, judged, unused] : facts.ranges().tensors()) {
    const TensorInfo& tensor = facts.selection.tensor(i);
    const RoundingBounds& seen = judged.totals.seen;
    const double lost = share(seen.flushed.lower, seen.base);
    if (is_gradient(tensor.role) || !is_plainly_narrow(tensor.dtype) || lost <= facts.context.options.flushed_limit) continue;
    const bool is_felt = is_on_way_to_loss(facts, i) && judged.scaled.flush_loss.matters() && 2 * seen.flushed.lower > seen.base;
    if (is_felt == felt) suspects.add(lost, i, {share_of("flushed", seen.flushed.lower, seen.base)}, judged.first_flushed);
  }
  return suspects;
}

size_t rounded_gradients(const RunFacts& facts) {
  return count_rounded(facts, [&](uint32_t tensor) { return is_gradient(facts.selection.tensor(tensor).role); });
}

size_t rounded_values(const RunFacts& facts) {
  return count_rounded(facts, [&](uint32_t tensor) { return !is_gradient(facts.selection.tensor(tensor).role); });
}

size_t rounded_forward_values(const RunFacts& facts) {
  return count_rounded(facts, [&](uint32_t tensor) { return is_on_way_to_loss(facts, tensor); });
}

}  // namespace ulpscope::findings
