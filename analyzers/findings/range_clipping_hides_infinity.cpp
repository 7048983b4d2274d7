#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/findings/overflow_text.h"
#include "ulpscope/analyzers/findings/tensor_place.h"
#include "ulpscope/analyzers/judgements/gradient_judgement.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"

namespace ulpscope::findings {

namespace {

constexpr Template kClippingHides{
    "range.clipping_hides_infinity",
    "Clipping by value hides overflow: {gradients:count gradient tensor} overflowed {formats} in {steps:count step} that "
    "{steps:either was|were} not skipped, most often {place}."};
constexpr Template kClippedInfUsed{
    "range.clipping_hides_infinity.used",
    "It turned the Inf that reached it into finite numbers{value:brackets}, and the updates used them."};

void find_clipped_infinities(const RunFacts& facts, Findings& found) {
  const GradientJudgement& gradients = facts.gradients();
  if (!gradients.clipping_hides_infinity) return;
  const Suspects kept = overflowed_gradients(facts, gradients.overflow_kept);
  found.add_judged(Severity::warning,
                   {kClippingHides({{"gradients", facts.selection.count_outputs(gradients.overflow_kept)},
                                    {"formats", formats_of(facts, gradients.overflow_kept)},
                                    {"steps", gradients.overflow_kept_steps.size()},
                                    {"place", tensor_place(facts, kept.worst_tensor())}}),
                    kClippedInfUsed({{"value", facts.context.settings.now(SettingKind::clip_value)}})},
                   kept.worst(), overflow_kept_advice(facts, kept.worst_tensor()), kept_extent(facts, kept));
}

}  // namespace

extern constinit const FindingRule range_clipping_hides_infinity{
    .code = "range.clipping_hides_infinity",
    .part = Part::ranges,
    .raised = "Gradients overflowed to Inf, and clipping by value made them finite, so that the step was taken.",
    .meaning = "The update took the clipping limit in place of the gradient.",
    .help = "Check for Inf before clipping, so that the step is skipped, or lower the loss scale.",
    .picture = Picture::nonfinite_elements,
    .shown_by = "experiments/failures/clipping_hides_infinities.toml --set clipping.value=65536",
    .find = find_clipped_infinities,
};

}  // namespace ulpscope::findings
