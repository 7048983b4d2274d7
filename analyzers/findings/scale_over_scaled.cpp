#include <cmath>

#include "ulpscope/analyzers/findings/scale_text.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/scale_judgement.h"

namespace ulpscope::findings {

namespace {

constexpr Template kScaleTooLarge{"scale.over_scaled",
                                  "The loss scale, {scale}, is too large: the largest that fits is {largest}."};
constexpr Template kFixedScaleTooLarge{"scale.over_scaled.fixed",
                                       "The fixed loss scale, {scale}, is too large: the largest that fits is {largest}."};
constexpr Template kSmallerScaleThatStays{"advice.smaller_scale_that_stays",
                                          "The rounding mode keeps what overflows at the largest number, which no scaler sees: "
                                          "use a smaller scale that stays{settings:brackets}, or a mode that makes infinities."};
constexpr Template kSmallerOrDynamicScale{"advice.smaller_or_dynamic_scale", "Use a smaller scale, or a dynamic one."};

void find_over_scaled(const RunFacts& facts, Findings& found) {
  const ScaleJudgement& scale = facts.scale();
  const StepTotals& steps = facts.steps();
  const SettingNames& settings = facts.context.settings;
  const std::optional<ExponentBounds>& largest = facts.fitting().run.largest;
  const bool fixed = !facts.context.trace.run().dynamic_loss_scale, saturated = scale.losses().saturated;
  if (scale.scaling != LossScaling::scaled || !(fixed || saturated)) return;
  if (!largest || largest->upper == ExponentBounds::kNoUpper || !(std::log2(scale.judged_scale) > largest->upper)) return;
  Extent extent{{}, steps.skipped.empty() ? steps.first.step : steps.skipped.first()};
  for (uint32_t i = 0; i < facts.selection.size(); ++i)
    if (is_computed_gradient(facts.selection.tensor(i).role)) extent.tensors.push_back(i);
  if (!steps.skipped.empty()) extent.steps = steps.skipped.size();
  extent.value = {"loss_scale", scale.judged_scale, Unit::scale};
  std::vector<Evidence> evidence = blame_evidence(facts);
  evidence.push_back(largest_fitting_evidence(facts));
  Advice advice;
  if (saturated) {
    const Setting initial = advice.lower(settings.name(SettingKind::scale_initial));
    advice.text =
        kSmallerScaleThatStays({{"settings", Value::list({initial, settings.switched(SettingKind::scale_dynamic, false)})}});
  } else {
    advice.text = kSmallerOrDynamicScale();
    advice.note({.kind = SettingKind::scale_initial, .way = SettingChange::Way::lower});
    advice.note({.kind = SettingKind::scale_dynamic, .value = std::string(facts.context.settings.words().on)});
  }
  found.add(2 * steps.skipped.size() > steps.count ? Severity::error : Severity::warning,
            (fixed ? kFixedScaleTooLarge
                   : kScaleTooLarge)({{"scale", scale_value(scale.judged_scale)}, {"largest", scale_value(largest)}}),
            std::move(evidence), std::move(advice), std::move(extent));
}

}  // namespace

extern constinit const FindingRule scale_over_scaled{
    .code = "scale.over_scaled",
    .part = Part::scale,
    .raised = "A fixed loss scale is larger than the largest at which no gradient overflows.",
    .meaning = "Gradients are infinite: steps are skipped, or weights are ruined.",
    .help = "A smaller scale, or one that adapts.",
    .explains = {"range.nonfinite", "range.gradients_overflow", "range.clipping_hides_infinity", "run.loss_nonfinite",
                 "run.no_better_than_guessing", "scale.collapse", "scale.no_step_taken", "scale.backoffs", "updates.none_applied"},
    .shown_by = "experiments/failures/loss_scale_too_large.toml",
    .find = find_over_scaled,
};

}  // namespace ulpscope::findings
