#include <algorithm>

#include "ulpscope/analyzers/findings/scale_text.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/scale_judgement.h"

namespace ulpscope::findings {

namespace {

constexpr Template kScaleThrashes{"scale.thrashing",
                                  "The loss scale thrashes: {skipped} of {steps} steps were skipped after it had been found."};
constexpr Template kGrowLessOftenOrCap{"advice.grow_less_often_or_cap", "Grow less often{interval:brackets}, or cap the scale."};

void find_thrashing(const RunFacts& facts, Findings& found) {
  const ScaleJudgement& scale = facts.scale();
  if (scale.scaling != LossScaling::scaled || scale.collapsed() || facts.broke() || !scale.is_thrashing()) return;
  const StepTotals& steps = facts.steps();
  const auto grown = std::find_if(steps.changes.begin(), steps.changes.end(),
                                  [](const ScaleChange& change) { return change.after > change.before; });
  const auto skipped = std::find_if(grown, steps.changes.end(), [](const ScaleChange& change) { return change.skipped; });
  Advice advice = advice_on_steep_growth(facts);
  if (advice.text.empty()) {
    const Setting interval = advice.raise(facts.context.settings.name(SettingKind::scale_growth_interval));
    advice.text = kGrowLessOftenOrCap({{"interval", interval}});
    advice.note({.kind = SettingKind::scale_cap, .way = SettingChange::Way::lower});
  }
  const uint64_t skips = steps.skipped.size() - steps.leading_skips;
  found.add(Severity::warning, kScaleThrashes({{"skipped", skips}, {"steps", steps.count - steps.leading_skips}}),
            blame_evidence(facts), std::move(advice), {.first_step = skipped->step, .steps = skips, .value = skipped_steps(skips)});
}

}  // namespace

extern constinit const FindingRule scale_thrashing{
    .code = "scale.thrashing",
    .part = Part::scale,
    .raised = "More than a tenth of the steps were skipped because the scale had grown.",
    .meaning = "These steps are wasted.",
    .help = "A longer growth interval, or a cap of the scale.",
    .explains = {"scale.backoffs", "scale.above_100000"},
    .shown_by = "experiments/failures/scaler_thrashes.toml",
    .find = find_thrashing,
};

}  // namespace ulpscope::findings
