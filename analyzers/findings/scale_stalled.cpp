#include "ulpscope/analyzers/findings/scale_text.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/scale_judgement.h"

namespace ulpscope::findings {

namespace {

constexpr Template kScaleStandsStill{"scale.stalled",
                                     "The loss scale does not grow: it stayed at {scale} for the last {steps:count step} without "
                                     "overflow."};
constexpr Template kGrowthInterval{"scale.stalled.interval", "Its growth interval is {interval:count step}."};
constexpr Template kScaleIsAtCap{"advice.scale_is_at_cap", "It is at its cap{cap:brackets}."};
constexpr Template kCapOrInterval{"advice.scale_is_at_cap_or_grows_later",
                                  "It is at its cap{cap:brackets}, or its growth interval is longer."};

void find_stalled(const RunFacts& facts, Findings& found) {
  const ScaleJudgement& scale = facts.scale();
  if (scale.scaling != LossScaling::scaled || !facts.context.trace.run().dynamic_loss_scale || facts.broke()) return;
  const uint64_t interval = scale.growth_interval(), clean_steps = facts.steps().clean_steps;
  if (clean_steps <= 2 * interval) return;
  const SettingNames& settings = facts.context.settings;
  // A cap of 0 is none.
  const double cap = settings.number(SettingKind::scale_cap).value_or(0);
  const bool is_at_cap = cap == facts.steps().last.scale_after;
  found.add(Severity::info,
            {kScaleStandsStill({{"scale", scale_value(facts.steps().last.scale_after)}, {"steps", clean_steps}}),
             kGrowthInterval({{"interval", interval}})},
            {},
            (is_at_cap ? kScaleIsAtCap
                       : kCapOrInterval)({{"cap", cap > 0 ? Value(settings.with_value(SettingKind::scale_cap)) : Value()}}));
}

}  // namespace

extern constinit const FindingRule scale_stalled{
    .code = "scale.stalled",
    .part = Part::scale,
    .raised = "The loss scale did not grow for more than two growth intervals without overflow.",
    .meaning = "It is at its cap, or its growth interval is longer.",
    .shown_by = "experiments/failures/scaler_thrashes.toml --set scaler.initial=1024 --set scaler.cap=1024",
    .find = find_stalled,
};

}  // namespace ulpscope::findings
