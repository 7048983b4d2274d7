#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/findings/overflow_text.h"
#include "ulpscope/analyzers/judgements/gradient_judgement.h"
#include "ulpscope/analyzers/judgements/run_facts.h"

namespace ulpscope::findings {

namespace {

constexpr Template kClippingHides{
    "range.clipping_hides_infinity",
    "{overflow}: clipping by value made finite numbers of the infinities that reached it, and the updates took them."};

void find_clipped_infinities(const RunFacts& facts, Findings& found) {
  if (!facts.gradients().clipping_hides_infinity) return;
  const Suspects kept = overflowed_gradients(facts, facts.gradients().overflow_kept);
  found.add_judged(Severity::warning, kClippingHides({{"overflow", overflow_kept_title(facts)}}), kept.worst(),
                   overflow_kept_advice(facts, kept.worst_tensor()), kept_extent(facts, kept));
}

}  // namespace

extern constinit const FindingRule range_clipping_hides_infinity{
    .code = "range.clipping_hides_infinity",
    .part = Part::ranges,
    .raised = "Infinite gradients were clipped by value, so that the step was taken with them.",
    .meaning = "The update went along the limit of clipping, whatever the gradient was.",
    .help = "Let the scaler skip such steps: check for infinities before clipping, or lower the loss scale.",
    .picture = Picture::nonfinite_elements,
    .shown_by = "experiments/failures/clipping_hides_infinities.toml --set clipping.value=65536",
    .find = find_clipped_infinities,
};

}  // namespace ulpscope::findings
