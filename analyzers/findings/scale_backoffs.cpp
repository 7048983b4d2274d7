#include <fmt/format.h>

#include "ulpscope/analyzers/findings/rate_text.h"
#include "ulpscope/analyzers/findings/scale_text.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/scale_judgement.h"
#include "ulpscope/base/text.h"

namespace ulpscope::findings {

namespace {

void find_backoffs(const RunFacts& facts, Findings& found) {
  const ScaleJudgement& scale = facts.scale();
  const StepTotals& steps = facts.steps();
  if (scale.scaling != LossScaling::scaled || scale.collapsed() || scale.no_step_was_taken() || steps.skipped.empty()) return;
  // A scale that comes down to one that fits costs a few steps of many.
  const bool many = 5 * steps.skipped.size() > steps.count;
  const bool began_too_high = 2 * steps.leading_skips > steps.skipped.size() && steps.lowest_scale < steps.first.scale_before;
  Advice advice;
  if (many && began_too_high) {
    advice.text =
        "Begin with a smaller scale" + in_brackets({advice.lower(facts.context.settings.now(SettingKind::scale_initial))});
    advice = std::move(advice) + or_lower_loss_factor(facts) + ".";
  } else if (many) {
    advice = advice_on_steep_growth(facts);
  }
  found.add(many ? Severity::warning : Severity::info,
            fmt::format("{} of {} {} skipped{}.", steps.skipped.size(), count_of(steps.count, "step"), was(steps.skipped.size()),
                        began_too_high ? fmt::format(", the first {} of them until the scale had come down from {}",
                                                     steps.leading_skips, scale_text(steps.first.scale_before))
                                       : ""),
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
