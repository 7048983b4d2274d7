#include "ulpscope/analyzers/findings/overflow_text.h"
#include "ulpscope/analyzers/findings/rate_text.h"
#include "ulpscope/analyzers/findings/scale_text.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/scale_judgement.h"

namespace ulpscope::findings {

namespace {

constexpr Template kStepsSkipped{"scale.backoffs", "{skipped} of {steps:count step} ({share}) {skipped:either was|were} skipped."};
constexpr Template kBeganTooHigh{"scale.backoffs.began_too_high",
                                 "The first {leading:count skip} brought the loss scale down from {from} to {to}."};
constexpr Template kBeginWithSmallerScale{"advice.begin_with_smaller_scale",
                                          "Start with a smaller loss scale{initial:brackets}{below}{factor}."};

void find_backoffs(const RunFacts& facts, Findings& found) {
  const ScaleJudgement& scale = facts.scale();
  const StepTotals& steps = facts.steps();
  if (scale.scaling != LossScaling::scaled || scale.collapsed() || scale.no_step_was_taken() || steps.skipped.empty()) return;
  // A scale that comes down to one that fits costs a few steps of many, and a short run has few.
  constexpr size_t kLeastMany = 10;
  const bool many = 5 * steps.skipped.size() > steps.count && steps.skipped.size() >= kLeastMany;
  const bool began_too_high = 2 * steps.leading_skips > steps.skipped.size() && steps.lowest_scale < steps.first.scale_before;
  Sentences title = kStepsSkipped(
      {{"skipped", steps.skipped.size()}, {"steps", steps.count}, {"share", share_value(steps.skipped.size(), steps.count)}});
  if (began_too_high) {
    // Each of them is a change, and the run began with them.
    const double from = steps.first.scale_before, to = steps.changes[steps.leading_skips - 1].after;
    if (to < from) title += kBeganTooHigh({{"leading", steps.leading_skips}, {"from", scale_value(from)}, {"to", scale_value(to)}});
  }
  Advice advice;
  if (many && began_too_high) {
    const Setting initial = advice.lower(facts.context.settings.now_or_name(SettingKind::scale_initial));
    advice.text = kBeginWithSmallerScale(
        {{"initial", initial}, {"below", below_fitting(facts)}, {"factor", or_lower_loss_factor(facts, advice)}});
  } else if (many) {
    title += steep_growth(facts);
    advice = grow_by_less(facts);
  }
  found.add(many ? Severity::warning : Severity::info, std::move(title), blame_evidence(facts), std::move(advice),
            {.first_step = steps.skipped.first(), .steps = steps.skipped.size(), .value = skipped_steps(steps.skipped.size())});
}

}  // namespace

extern constinit const FindingRule scale_backoffs{
    .code = "scale.backoffs",
    .part = Part::scale,
    .raised = "Steps were skipped: a warning above 20% of them and from 10 on, a note below.",
    .meaning = "A dynamic loss scale finds its level by skipping steps that overflow. Skipped steps update no weight.",
    .help = "A smaller initial loss scale, or a smaller growth factor.",
    .shown_by = "experiments/failures/scale_recovers.toml",
    .find = find_backoffs,
};

}  // namespace ulpscope::findings
