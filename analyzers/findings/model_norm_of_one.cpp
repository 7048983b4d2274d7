#include <span>
#include <utility>
#include <vector>

#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/judgements/loss_ends.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/sentence_names.h"
#include "ulpscope/analyzers/subject/tensor_place.h"
#include "ulpscope/analyzers/subject/trend.h"
#include "ulpscope/trace/op_semantics.h"

namespace ulpscope::findings {

namespace {

constexpr Template kNormOfOne{"model.norm_of_one",
                              "{place} normalizes each value by itself: what it gives does not depend on what it reads, and no "
                              "gradient goes back through it."};
constexpr Template kRemoveNorm{"advice.remove_norm", "Remove that norm, or normalize over a dimension with several values."};

// The elements of all its rows.
uint64_t elements_of(const RunFacts& facts, uint32_t tensor) {
  uint64_t elements = 0;
  const Snapshot& trace = facts.context.trace;
  trace.of_rank(trace.ranks().front()).visit_history(tensor, {0, UINT64_MAX}, [&](std::span<const TensorRow> rows) {
    for (const TensorRow& row : rows) elements += row.statistics.count;
    return true;
  });
  return elements;
}

// The model learned all the same, around that norm.
bool learned(const StepTotals& steps) {
  const std::vector<double> ends = last_losses(steps);
  return !ends.empty() && !steps.first_losses.empty() && median(ends) < 0.5 * median(steps.first_losses);
}

// The norm takes away as many means as it has values, in every row: each value is its own mean.
void find_norm_of_one(const RunFacts& facts, Findings& found) {
  if (facts.broke()) return;  // 0 / 0 where its eps is 0, and told as that
  const Selection& selection = facts.selection;
  Extent extent{.first_step = facts.steps().first.step};
  std::vector<Evidence> evidence;
  for (uint32_t i = 0; i < selection.size(); ++i) {
    const OpInfo& op = selection.op(i);
    const bool is_norm = op.function == OpFunction::layer_norm || op.function == OpFunction::group_norm;
    if (!is_norm || op.phase != Phase::forward || selection.tensor(i).slot != 0) continue;
    const std::span<const uint32_t> means =
        facts.context.graph.made_by(selection.tensor(i).op, *slot_of(op.function, Meaning::mean));
    const uint64_t values = elements_of(facts, i);
    if (means.empty() || values == 0 || elements_of(facts, means.front()) != values) continue;
    extent.tensors.push_back(i);
    if (evidence.size() < kMostEvidence) evidence.push_back({selection.key(i), {{"elements", count_cell(values), Unit::count}}});
  }
  if (extent.tensors.empty()) return;
  const Value place = tensor_place(selection, extent.tensors.front());
  found.add(learned(facts.steps()) ? Severity::info : Severity::warning, kNormOfOne({{"place", place}}), std::move(evidence),
            Advice(kRemoveNorm()), std::move(extent));
}

}  // namespace

extern constinit const FindingRule model_norm_of_one{
    .code = "model.norm_of_one",
    .part = Part::ranges,
    .raised =
        "A layer norm or group norm has groups of one value each, in every step. A note where the loss fell to less than half.",
    .meaning = "The value is its own mean: the result is the bias, or 0, and gradients end there.",
    .help = "No norm in that place, or one over a dimension with several values.",
    .explains = {"run.no_better_than_guessing", "run.loss_stayed", "updates.none_applied", "range.gradients_vanish"},
    .shown_by = "experiments/failures/layer_norm_of_one_value.toml",
    .find_start = find_norm_of_one,
};

}  // namespace ulpscope::findings
