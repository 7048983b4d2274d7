#include "ulpscope/analyzers/findings/scale_text.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/scale_judgement.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/sentence_names.h"

namespace ulpscope::findings {

namespace {

constexpr Template kScaleFell{"scale.collapse",
                              "The loss scale collapsed: the last {steps:count step} in a row were skipped, and it fell to "
                              "{scale}."};
constexpr Template kScaleStayed{"scale.collapse.stayed",
                                "The loss scale collapsed: the last {steps:count step} in a row were skipped, and it stayed at "
                                "{scale}."};
constexpr Template kOverflowAtAnyScale{"advice.overflow_at_any_scale",
                                       "Gradients that overflow at any scale hold NaN or infinity for another reason: what made "
                                       "the first is where to look (`ulpscope ranges {trace}`)."};

Advice advice_on_collapse(const RunFacts& facts) {
  if (facts.broke()) return kLossesWereNonfinite({{"step", ordinal(facts.scale().broken_from)}});
  if (Advice advice = advice_on_floor(facts); !advice.text.empty()) return advice;
  return kOverflowAtAnyScale({{"trace", trace_name(facts.context.trace)}});
}

void find_collapse(const RunFacts& facts, Findings& found) {
  if (!facts.scale().collapsed()) return;
  const StepTotals& steps = facts.steps();
  const bool fell = steps.last.scale_after < steps.highest_scale;
  found.add(Severity::error,
            (fell ? kScaleFell : kScaleStayed)({{"steps", steps.trailing_skips}, {"scale", scale_value(steps.last.scale_after)}}),
            blame_evidence(facts), advice_on_collapse(facts),
            {.steps = steps.trailing_skips, .value = skipped_steps(steps.trailing_skips)});
}

}  // namespace

extern constinit const FindingRule scale_collapse{
    .code = "scale.collapse",
    .part = Part::scale,
    .raised = "The scaler skipped steps to the end of the run, ten or more in a row.",
    .meaning = "Training has stopped.",
    .help = "The findings on NaN and infinity say where they come from.",
    .explains = {"scale.no_step_taken", "scale.backoffs", "scale.below_100", "scale.below_1000", "scale.thrashing",
                 "scale.under_scaled", "range.gradients_flushed"},
    .shown_by = "experiments/failures/activations_overflow_fp16.toml",
    .find = find_collapse,
};

}  // namespace ulpscope::findings
