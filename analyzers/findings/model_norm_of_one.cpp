#include <optional>
#include <utility>
#include <vector>

#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/sentence_names.h"
#include "ulpscope/analyzers/subject/tensor_place.h"
#include "ulpscope/trace/op_semantics.h"

namespace ulpscope::findings {

namespace {

constexpr Template kNormOfOne{
    "model.norm_of_one",
    "{place} normalizes each value by itself: it gives its bias, whatever it reads, and nothing before it learns."};
constexpr Template kRemoveNorm{"advice.remove_norm", "Remove that norm, or normalize over a dimension with several values."};

// The number of elements of the tensor's first row; nothing where it has none.
std::optional<uint64_t> elements_of(const RunFacts& facts, uint32_t tensor) {
  std::optional<uint64_t> elements;
  facts.context.trace.of_rank(facts.context.trace.ranks().front())
      .visit_history(tensor, {0, UINT64_MAX}, [&](std::span<const TensorRow> rows) {
        if (!rows.empty()) elements = rows.front().statistics.count;
        return rows.empty();
      });
  return elements;
}

// Of a norm that takes away the mean of as many values as it has means: each is its own mean.
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
    const std::optional<uint64_t> values = elements_of(facts, i);
    if (means.empty() || !values || *values == 0 || elements_of(facts, means.front()) != values) continue;
    extent.tensors.push_back(i);
    if (evidence.size() < kMostEvidence) evidence.push_back({selection.key(i), {{"elements", count_cell(*values), Unit::count}}});
  }
  if (extent.tensors.empty()) return;
  const Value place = tensor_place(selection, extent.tensors.front());
  found.add(Severity::warning, kNormOfOne({{"place", place}}), std::move(evidence), Advice(kRemoveNorm()), std::move(extent));
}

}  // namespace

extern constinit const FindingRule model_norm_of_one{
    .code = "model.norm_of_one",
    .part = Part::ranges,
    .raised = "A layer norm or group norm has groups of one value each.",
    .meaning = "The value is its own mean: the result is the bias, and gradients end there.",
    .help = "No norm in that place, or one over a dimension with several values.",
    .explains = {"run.no_better_than_guessing", "run.loss_stayed", "updates.none_applied", "range.gradients_vanish"},
    .shown_by = "experiments/failures/layer_norm_of_one_value.toml",
    .find_start = find_norm_of_one,
};

}  // namespace ulpscope::findings
