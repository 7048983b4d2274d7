#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/findings/flushed_values.h"
#include "ulpscope/analyzers/findings/tensor_place.h"
#include "ulpscope/analyzers/judgements/range_judgement.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"

namespace ulpscope::findings {

namespace {

constexpr Template kValuesFlushed{
    "range.values_flushed",
    "{formats} underflow in {tensors} of {all:count tensor} other than gradients: {place} lost {flushed} "
    "of its nonzero elements to zero."};
constexpr Template kValuesOverLimit{"range.values_flushed.limit", "Tensors that lost more than {limit:%} are counted."};

void find_flushed_values(const RunFacts& facts, Findings& found) {
  const Suspects flushed = flushed_values(facts, false);
  if (flushed.empty()) return;
  const RoundingBounds& seen = facts.ranges().find(flushed.worst_tensor())->judged.totals.seen;
  found.add_judged(Severity::info,
                   {kValuesFlushed({{"formats", formats_of(facts, flushed.extent().tensors)},
                                    {"tensors", flushed.size()},
                                    {"all", rounded_values(facts)},
                                    {"place", tensor_place(facts, flushed.worst_tensor())},
                                    {"flushed", {share(seen.flushed.lower, seen.base), Unit::share}}}),
                    kValuesOverLimit({{"limit", {facts.context.options.flushed_limit, Unit::share}}})},
                   flushed.worst(), {}, flushed.extent());
}

}  // namespace

extern constinit const FindingRule range_values_flushed{
    .code = "range.values_flushed",
    .part = Part::ranges,
    .raised = "Underflow: rounding a value other than a gradient to FP16 or BF16 made more than 1% of its nonzero elements zero.",
    .meaning = "Losing the smallest activations and weights is often harmless.",
    .picture = Picture::flushed,
    .shown_by = "experiments/failures/subnormals_flushed.toml",
    .find = find_flushed_values,
};

}  // namespace ulpscope::findings
