#include <cmath>

#include "ulpscope/analyzers/findings/scale_text.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/scale_judgement.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/sentence_names.h"

namespace ulpscope::findings {

namespace {

constexpr Template kAllSkipped{"scale.no_step_taken", "All {steps} steps were skipped: no weight was updated."};
constexpr Template kOnlyStepSkipped{"scale.no_step_taken.only_one", "The only step was skipped: no weight was updated."};
constexpr Template kScaleIsInfinite{"advice.scale_is_infinite",
                                    "Start with a finite loss scale{initial:brackets}: this one makes every gradient NaN or Inf."};
constexpr Template kLookAtFirstNonfinite{"advice.look_at_first_nonfinite",
                                         "`ulpscope ranges {trace}` shows where the first NaN or Inf appears."};
constexpr Template kScaleComesDown{"advice.scale_comes_down",
                                   "Start with a smaller loss scale{initial:brackets}, or train longer: it was still falling, from "
                                   "{first} to {last}."};
constexpr Template kUnlessOtherCause{"advice.unless_nonfinite_has_other_cause",
                                     "If the first NaN or Inf has another cause, `ulpscope ranges {trace}` shows it."};

Advice advice_on_skips(const RunFacts& facts) {
  const StepTotals& steps = facts.steps();
  const SettingMention initial = facts.context.settings.now_or_name(SettingKind::scale_initial);
  if (!std::isfinite(steps.first.scale_before)) {
    Advice advice;
    advice.text = kScaleIsInfinite({{"initial", advice.lower(initial)}});
    return advice;
  }
  if (facts.broke()) return kLossesWereNonfinite({{"step", ordinal(facts.scale().broken_from)}});
  const Name trace = trace_name(facts.context.trace);
  const bool comes_down = facts.context.trace.run().dynamic_loss_scale && steps.last.scale_after > 1 &&
                          steps.last.scale_after < steps.first.scale_before &&
                          steps.changes.back().after < steps.changes.back().before;
  if (Advice advice = advice_on_floor(facts); !advice.text.empty()) return advice;
  // Where recorded gradients would have fitted the last scale, something else than the scale made them infinite.
  const std::optional<bool> is_too_large = last_scale_is_too_large(facts);
  if (!comes_down || !is_too_large.value_or(true)) return kLookAtFirstNonfinite({{"trace", trace}});
  Advice advice;
  advice.text = kScaleComesDown({{"initial", advice.lower(initial)},
                                 {"first", scale_value(steps.first.scale_before)},
                                 {"last", scale_value(steps.last.scale_after)}});
  if (!is_too_large.value_or(false)) advice.text += kUnlessOtherCause({{"trace", trace}});
  return advice;
}

void find_no_step_taken(const RunFacts& facts, Findings& found) {
  if (!facts.scale().no_step_was_taken()) return;
  const StepTotals& steps = facts.steps();
  found.add(Severity::error, steps.count == 1 ? kOnlyStepSkipped() : kAllSkipped({{"steps", steps.count}}),
            facts.scale().scaling == LossScaling::scaled ? blame_evidence(facts) : std::vector<Evidence>(), advice_on_skips(facts),
            {.steps = steps.count, .value = skipped_steps(steps.count)});
}

}  // namespace

extern constinit const FindingRule scale_no_step_taken{
    .code = "scale.no_step_taken",
    .part = Part::scale,
    .raised = "Every step was skipped.",
    .meaning = "No weight was updated.",
    .help = "A smaller initial loss scale, or what the findings on NaN and Inf advise.",
    .explains = {"scale.backoffs", "scale.below_100", "scale.below_1000", "updates.none_applied", "run.no_better_than_guessing"},
    .shown_by = "experiments/failures/loss_scale_too_large.toml",
    .find = find_no_step_taken,
};

}  // namespace ulpscope::findings
