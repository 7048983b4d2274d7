#include "ulpscope/analyzers/findings/scale_text.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/scale_judgement.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/sentence_names.h"

namespace ulpscope::findings {

namespace {

constexpr Template kScaleFell{"scale.collapse",
                              "The loss scale collapsed from {highest} to {scale}: the last {steps} of {all:count step} were "
                              "skipped."};
constexpr Template kScaleStayed{"scale.collapse.stayed",
                                "The loss scale is stuck at {scale}: the last {steps} of {all:count step} were skipped."};
constexpr Template kOverflowAtAnyScale{
    "advice.overflow_at_any_scale",
    "NaN or Inf that stays at every loss scale has another cause: `ulpscope ranges {trace}` shows "
    "where the first one appears."};

Advice advice_on_collapse(const RunFacts& facts) {
  if (facts.broke()) return kLossesWereNonfinite({{"step", ordinal(facts.scale().broken_from)}});
  if (Advice advice = advice_on_floor(facts); !advice.text.empty()) return advice;
  return kOverflowAtAnyScale({{"trace", trace_name(facts.context.trace)}});
}

void find_collapse(const RunFacts& facts, Findings& found) {
  if (!facts.scale().collapsed()) return;
  const StepTotals& steps = facts.steps();
  const bool fell = steps.last.scale_after < steps.highest_scale;
  const Value scale = scale_value(steps.last.scale_after), skipped = steps.trailing_skips, all = steps.count;
  found.add(Severity::error,
            fell ? kScaleFell({{"highest", scale_value(steps.highest_scale)}, {"scale", scale}, {"steps", skipped}, {"all", all}})
                 : kScaleStayed({{"scale", scale}, {"steps", skipped}, {"all", all}}),
            blame_evidence(facts), advice_on_collapse(facts),
            {.steps = steps.trailing_skips, .value = skipped_steps(steps.trailing_skips)});
}

}  // namespace

extern constinit const FindingRule scale_collapse{
    .code = "scale.collapse",
    .part = Part::scale,
    .raised = "The last ten or more steps of the run were all skipped.",
    .meaning = "Training has stopped: skipped steps update no weight.",
    .help = "The findings on NaN and Inf name the first tensor that has one.",
    .explains = {"scale.no_step_taken", "scale.backoffs", "scale.below_100", "scale.below_1000", "scale.thrashing",
                 "scale.under_scaled", "range.gradients_flushed"},
    .shown_by = "experiments/failures/activations_overflow_fp16.toml",
    .find = find_collapse,
};

}  // namespace ulpscope::findings
