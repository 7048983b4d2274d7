#include "ulpscope/analyzers/findings/scale_text.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/scale_judgement.h"

namespace ulpscope::findings {

namespace {

constexpr Template kSmallerScaleKeepsGradients{"advice.smaller_scale_keeps_gradients",
                                               "Gradients overflowed, and the rounding mode kept them at the largest number, so "
                                               "that no step was skipped for it: a smaller scale keeps them."};
constexpr Template kGrowScaleLessOften{"advice.grow_scale_less_often",
                                       "Grow less often (a longer growth interval), or cap the scale."};
constexpr Template kHighScaleIsHealthy{"advice.high_scale_is_healthy", "That is healthy as long as few steps are skipped."};

void find_above_100000(const RunFacts& facts, Findings& found) {
  const ScaleJudgement& scale = facts.scale();
  const ScaleZone& above = scale.zones[2];
  if (scale.scaling != LossScaling::scaled || above.steps == 0) return;
  // Trouble where it costs more than a skipped step now and then. Gradients that are flushed in spite of it ask for a higher one
  // still.
  const bool skips = scale.is_thrashing() && above.skipped > 0, saturated = scale.losses().saturated_above_100000;
  Advice advice;
  if (saturated) {  // which the scaler does not see
    advice.text = kSmallerScaleKeepsGradients();
    advice.note({.kind = SettingKind::scale_initial, .way = SettingChange::Way::lower});
  } else if (skips) {
    advice.text = kGrowScaleLessOften();
    advice.note({.kind = SettingKind::scale_growth_interval, .way = SettingChange::Way::raise});
    advice.note({.kind = SettingKind::scale_cap, .way = SettingChange::Way::lower});
  } else if (5 * above.skipped <= above.steps) {
    advice.text = kHighScaleIsHealthy();
  }
  tell_zone(facts, 2, skips || saturated, advice, found);
}

}  // namespace

extern constinit const FindingRule scale_above_100000{
    .code = "scale.above_100000",
    .part = Part::scale,
    .raised = "The loss scale stood above 100000.",
    .meaning = "The gradients leave room for it: healthy while few steps are skipped.",
    .shown_by = "experiments/failures/scaler_thrashes.toml",
    .find = find_above_100000,
};

}  // namespace ulpscope::findings
