#include <algorithm>
#include <cmath>
#include <vector>

#include "ulpscope/analyzers/findings/scale_text.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/scale_judgement.h"

namespace ulpscope::findings {

namespace {

constexpr Template kScaleTooLarge{"scale.over_scaled",
                                  "The loss scale of {scale} is too large: gradients overflow above {largest}{or_sooner}."};
constexpr Template kFixedScaleTooLarge{"scale.over_scaled.fixed",
                                       "The fixed loss scale of {scale} is too large: gradients overflow above "
                                       "{largest}{or_sooner}."};
constexpr Template kOrSooner{"scale.over_scaled.or_sooner", " or sooner"};
constexpr Template kScaleSetBack{"scale.over_scaled.set_back",
                                 "The loss scale of {scale} is too large: gradients overflow above {largest}{or_sooner}. It backs "
                                 "off, and is {scale} again in the next step."};
constexpr Template kMakeScalerOnce{"advice.make_scaler_once",
                                   "Make the scaler once, before the loop, so that it keeps the scale that it came down to."};
constexpr Template kSomeSkipped{"scale.over_scaled.skipped",
                                "{skipped} of {steps:count step} ({share}) {skipped:either was|were} skipped."};
constexpr Template kSaturates{"scale.over_scaled.saturates",
                              "The rounding mode saturates them at the largest finite value, which no scaler detects."};
constexpr Template kSmallerScaleThatStays{
    "advice.smaller_scale_that_stays", "Use a smaller fixed scale{settings:brackets}, or a rounding mode that overflows to Inf."};
constexpr Template kSmallerOrDynamicScale{"advice.smaller_or_dynamic_scale",
                                          "Lower the loss scale to {largest} or less{initial:brackets}, or use a dynamic "
                                          "one{dynamic:brackets}."};
constexpr Template kMuchSmallerOrDynamicScale{
    "advice.much_smaller_or_dynamic_scale",
    "Use a dynamic loss scale{dynamic:brackets}, which finds what fits, or lower it below "
    "{largest}{initial:brackets}: gradients behind what overflowed may need still less."};

// The scale that a step began with is above the one that the change before left, which no scaler does: another one was made.
bool is_set_back(const std::vector<ScaleChange>& changes) {
  const auto is_above = [](const ScaleChange& one, const ScaleChange& next) { return next.before > one.after; };
  return std::adjacent_find(changes.begin(), changes.end(), is_above) != changes.end();
}

bool backs_off_in_each_step(const std::vector<ScaleChange>& changes) {
  const auto differs = [](const ScaleChange& one, const ScaleChange& next) {
    return next.step != one.step + 1 || next.before != one.before || !(next.after < next.before);
  };
  return changes.size() > 1 && std::adjacent_find(changes.begin(), changes.end(), differs) == changes.end();
}

bool stays(const std::vector<ScaleChange>& changes) {
  return std::all_of(changes.begin(), changes.end(), [](const ScaleChange& change) { return change.after == change.before; });
}

void find_over_scaled(const RunFacts& facts, Findings& found) {
  const ScaleJudgement& scale = facts.scale();
  const StepTotals& steps = facts.steps();
  const SettingNames& settings = facts.context.settings;
  const std::optional<ExponentBounds>& largest = facts.fitting().run.largest;
  const bool adapts = facts.context.trace.run().dynamic_loss_scale, saturated = scale.saturated();
  if (scale.scaling != LossScaling::scaled || (adapts && !saturated)) return;
  // The bound of gradients in FP32 is what FP16 would take.
  if (facts.fitting().what_if != nullptr) return;
  if (!largest || largest->upper == ExponentBounds::kNoUpper || !(std::log2(scale.judged_scale) > largest->upper)) return;
  Extent extent{{}, steps.skipped.empty() ? steps.first.step : steps.skipped.first()};
  for (uint32_t i = 0; i < facts.selection.size(); ++i)
    if (is_computed_gradient(facts.selection.tensor(i).role)) extent.tensors.push_back(i);
  if (!steps.skipped.empty()) extent.steps = steps.skipped.size();
  std::vector<Evidence> evidence = blame_evidence(facts);
  evidence.push_back(largest_fitting_evidence(facts));
  // Above it they overflow for sure; that they fit it is another question.
  const Value bound = power_value(largest->upper);
  const bool fixed = !adapts && stays(steps.changes), anew = !adapts && is_set_back(steps.changes);
  const bool in_each_step = anew && backs_off_in_each_step(steps.changes);
  const double used = in_each_step ? steps.changes.front().before : scale.judged_scale;
  const Template& too_large = in_each_step ? kScaleSetBack : fixed ? kFixedScaleTooLarge : kScaleTooLarge;
  extent.value = {"loss_scale", used, Unit::scale};
  // The trace has only a bound of a step that overflowed: what was computed from an infinity has no magnitude.
  const bool is_bound = largest->lower != largest->upper;
  Sentences title =
      too_large({{"scale", scale_value(used)}, {"largest", bound}, {"or_sooner", is_bound ? Value(kOrSooner()) : Value()}});
  if (saturated) title += kSaturates();
  // Where none was taken, that is told.
  if (!steps.skipped.empty() && steps.skipped.size() < steps.count)
    title += kSomeSkipped(
        {{"skipped", steps.skipped.size()}, {"steps", steps.count}, {"share", share_value(steps.skipped.size(), steps.count)}});
  Advice advice;
  if (anew) {
    advice.text = kMakeScalerOnce();
  } else if (saturated) {
    const Setting initial = advice.lower(settings.now_or_name(SettingKind::scale_initial));
    advice.text =
        kSmallerScaleThatStays({{"settings", Value::list({initial, settings.switched(SettingKind::scale_dynamic, false)})}});
  } else {
    const Setting initial = advice.lower(settings.now_or_name(SettingKind::scale_initial));
    const Setting dynamic = advice.set(settings.switched(SettingKind::scale_dynamic, true));
    const Template& lower = is_bound ? kMuchSmallerOrDynamicScale : kSmallerOrDynamicScale;
    advice.text = lower({{"largest", bound}, {"initial", initial}, {"dynamic", dynamic}});
  }
  found.add(2 * steps.skipped.size() > steps.count ? Severity::error : Severity::warning, std::move(title), std::move(evidence),
            std::move(advice), std::move(extent));
}

}  // namespace

extern constinit const FindingRule scale_over_scaled{
    .code = "scale.over_scaled",
    .part = Part::scale,
    .raised =
        "Gradients overflow at a loss scale that no scaler of the run adapts, as one that is made anew again and again, or at one "
        "where the "
        "rounding mode saturates, so that no scaler notices.",
    .meaning = "Gradients overflow: steps are skipped, or weights become NaN or Inf.",
    .help = "A smaller loss scale, or a dynamic one; one scaler for the whole run.",
    .explains = {"range.nonfinite", "range.gradients_overflow", "range.clipping_hides_infinity", "run.loss_nonfinite",
                 "run.no_better_than_guessing", "scale.collapse", "scale.no_step_taken", "scale.backoffs", "updates.none_applied"},
    .shown_by = "experiments/failures/loss_scale_too_large.toml",
    .find = find_over_scaled,
};

}  // namespace ulpscope::findings
