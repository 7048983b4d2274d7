#include "ulpscope/analyzers/findings/rate_text.h"
#include "ulpscope/analyzers/findings/scale_text.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/scale_judgement.h"

namespace ulpscope::findings {

namespace {

constexpr Template kStepsSkipped{"scale.backoffs", "{skipped} of {steps:count step} {skipped:either was|were} skipped."};
constexpr Template kStepsSkippedAtStart{"scale.backoffs.began_too_high",
                                        "{skipped} of {steps:count step} {skipped:either was|were} skipped, the first "
                                        "{leading} of them until the scale had come down from {scale}."};
constexpr Template kBeginWithSmallerScale{"advice.begin_with_smaller_scale",
                                          "Begin with a smaller scale{initial:brackets}{factor}."};

void find_backoffs(const RunFacts& facts, Findings& found) {
  const ScaleJudgement& scale = facts.scale();
  const StepTotals& steps = facts.steps();
  if (scale.scaling != LossScaling::scaled || scale.collapsed() || scale.no_step_was_taken() || steps.skipped.empty()) return;
  // A scale that comes down to one that fits costs a few steps of many.
  const bool many = 5 * steps.skipped.size() > steps.count;
  const bool began_too_high = 2 * steps.leading_skips > steps.skipped.size() && steps.lowest_scale < steps.first.scale_before;
  Advice advice;
  if (many && began_too_high) {
    const Setting initial = advice.lower(facts.context.settings.now(SettingKind::scale_initial));
    advice.text = kBeginWithSmallerScale({{"initial", initial}, {"factor", or_lower_loss_factor(facts, advice)}});
  } else if (many) {
    advice = advice_on_steep_growth(facts);
  }
  found.add(many ? Severity::warning : Severity::info,
            began_too_high ? kStepsSkippedAtStart({{"skipped", steps.skipped.size()},
                                                   {"steps", steps.count},
                                                   {"leading", steps.leading_skips},
                                                   {"scale", scale_value(steps.first.scale_before)}})
                           : kStepsSkipped({{"skipped", steps.skipped.size()}, {"steps", steps.count}}),
            blame_evidence(facts), std::move(advice),
            {.first_step = steps.skipped.first(), .steps = steps.skipped.size(), .value = skipped_steps(steps.skipped.size())});
}

}  // namespace

extern constinit const FindingRule scale_backoffs{
    .code = "scale.backoffs",
    .part = Part::scale,
    .raised = "Some steps were skipped: a warning where it was more than a fifth of them.",
    .meaning = "That is how a dynamic loss scale finds its level.",
    .shown_by = "experiments/failures/scale_recovers.toml",
    .find = find_backoffs,
};

}  // namespace ulpscope::findings
