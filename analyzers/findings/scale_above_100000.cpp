#include "ulpscope/analyzers/findings/scale_text.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/scale_judgement.h"

namespace ulpscope::findings {

namespace {

constexpr Template kSmallerScaleKeepsGradients{"advice.smaller_scale_keeps_gradients",
                                               "Lower the loss scale{initial:brackets}: gradients saturate at the largest finite "
                                               "value, which no scaler detects."};
constexpr Template kHighScaleIsHealthy{"advice.high_scale_is_healthy", "A high scale is harmless while few steps are skipped."};

void find_above_100000(const RunFacts& facts, Findings& found) {
  const ScaleJudgement& scale = facts.scale();
  const ScaleZone& above = scale.zones[2];
  if (scale.scaling != LossScaling::scaled || above.steps == 0) return;
  // Trouble where it costs more than a skipped step now and then. Gradients that are flushed in spite of it ask for a higher one
  // still.
  const bool skips = scale.is_thrashing() && above.skipped > 0, saturated = scale.ranges().saturated_above_100000;
  Advice advice;
  if (saturated) {  // which the scaler does not see
    const Setting initial = advice.lower(facts.context.settings.now_or_name(SettingKind::scale_initial));
    advice.text = kSmallerScaleKeepsGradients({{"initial", initial}});
  } else if (skips) {
    advice = grow_less_often(facts);
  } else if (5 * above.skipped <= above.steps) {
    advice.text = kHighScaleIsHealthy();
  }
  tell_zone(facts, 2, skips || saturated, {}, advice, found);
}

}  // namespace

extern constinit const FindingRule scale_above_100000{
    .code = "scale.above_100000",
    .part = Part::scale,
    .raised = "The loss scale was above 100,000.",
    .meaning = "Harmless while few steps are skipped: the gradients are small enough for it.",
    .shown_by = "experiments/failures/scaler_thrashes.toml",
    .find = find_above_100000,
};

}  // namespace ulpscope::findings
