#include "ulpscope/analyzers/findings/scale_text.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/scale_judgement.h"

namespace ulpscope::findings {

namespace {

constexpr Template kScaleStandsStill{"scale.stalled",
                                     "The loss scale has stood at {scale} for {steps:count step} without overflow, more than "
                                     "twice the growth interval of {interval}."};
constexpr Template kScaleIsAtCap{"advice.scale_is_at_cap", "It is at its cap, or its growth interval is longer than that."};

void find_stalled(const RunFacts& facts, Findings& found) {
  const ScaleJudgement& scale = facts.scale();
  if (scale.scaling != LossScaling::scaled || !facts.context.trace.run().dynamic_loss_scale || facts.broke()) return;
  const uint64_t interval = scale.growth_interval(), clean_steps = facts.steps().clean_steps;
  if (clean_steps <= 2 * interval) return;
  found.add(
      Severity::info,
      kScaleStandsStill({{"scale", scale_value(facts.steps().last.scale_after)}, {"steps", clean_steps}, {"interval", interval}}),
      {}, kScaleIsAtCap());
}

}  // namespace

extern constinit const FindingRule scale_stalled{
    .code = "scale.stalled",
    .part = Part::scale,
    .raised = "The loss scale stood still for more than two growth intervals.",
    .meaning = "It is at its cap, or grows more slowly.",
    .shown_by = "experiments/failures/scaler_thrashes.toml --set scaler.initial=1024 --set scaler.cap=1024",
    .find = find_stalled,
};

}  // namespace ulpscope::findings
