#include <cmath>

#include "ulpscope/analyzers/findings/scale_text.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/scale_judgement.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/sentence_names.h"

namespace ulpscope::findings {

namespace {

constexpr Template kAllSkipped{"scale.no_step_taken",
                               "No step was taken: all {steps} steps were skipped, so the run learned nothing."};
constexpr Template kOnlyStepSkipped{"scale.no_step_taken.only_one",
                                    "No step was taken: the only step was skipped, so the run learned nothing."};
constexpr Template kScaleIsInfinite{"advice.scale_is_infinite",
                                    "An infinite loss scale makes every gradient infinite or NaN: start with a finite one."};
constexpr Template kLookAtFirstNonfinite{"advice.look_at_first_nonfinite",
                                         "What made the first NaN or infinity is where to look: `ulpscope ranges {trace}`."};
constexpr Template kScaleComesDown{"advice.scale_comes_down",
                                   "The loss scale was still coming down, from {first} to {last}: start with a smaller one, or "
                                   "train longer."};
constexpr Template kScaleComesDownUnless{
    "advice.scale_comes_down_unless",
    "The loss scale was still coming down, from {first} to {last}: start with a smaller one, or train longer, unless the first "
    "NaN or infinity has another cause: `ulpscope ranges {trace}`."};

Advice advice_on_skips(const RunFacts& facts) {
  const StepTotals& steps = facts.steps();
  const SettingChange smaller{.kind = SettingKind::scale_initial, .way = SettingChange::Way::lower};
  if (!std::isfinite(steps.first.scale_before)) {
    Advice advice = kScaleIsInfinite();
    advice.note(smaller);
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
  const Value first = scale_value(steps.first.scale_before), last = scale_value(steps.last.scale_after);
  Advice advice = is_too_large.value_or(false) ? kScaleComesDown({{"first", first}, {"last", last}})
                                               : kScaleComesDownUnless({{"first", first}, {"last", last}, {"trace", trace}});
  advice.note(smaller);
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
    .meaning = "The run learned nothing.",
    .help = "The findings on NaN and infinity say why.",
    .explains = {"scale.backoffs", "scale.below_100", "scale.below_1000", "updates.none_applied", "run.no_better_than_guessing"},
    .shown_by = "experiments/failures/loss_scale_too_large.toml",
    .find = find_no_step_taken,
};

}  // namespace ulpscope::findings
