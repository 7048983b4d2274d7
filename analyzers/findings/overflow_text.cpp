#include "ulpscope/analyzers/findings/overflow_text.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "ulpscope/analyzers/findings/nonfinite_text.h"
#include "ulpscope/analyzers/findings/scale_text.h"
#include "ulpscope/analyzers/findings/update_text.h"
#include "ulpscope/analyzers/judgements/gradient_judgement.h"
#include "ulpscope/analyzers/judgements/range_judgement.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/scale_judgement.h"
#include "ulpscope/analyzers/subject/precision_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/sentence_names.h"
#include "ulpscope/analyzers/totals/fitting_scale.h"

namespace ulpscope::findings {

namespace {

constexpr Template kOnOverflowLowerFloor{"advice.lower_floor_on_overflow", "Lower the floor of the loss scale{floor:brackets}."};
constexpr Template kOnOverflowFallFaster{
    "advice.scale_falls_faster", "Let the loss scale fall faster{backoff:brackets}, or begin with a lower one{initial:brackets}."};
constexpr Template kOnOverflowBeginLower{"advice.begin_with_lower_scale",
                                         "Begin with a lower loss scale{initial:brackets}{below}."};
constexpr Template kBelow{"advice.scale_below", ", below {largest}"};
constexpr Template kAtMost{"advice.scale_at_most", ", to {largest} or less"};
constexpr Template kOnOverflowMakeDynamic{"advice.make_scale_dynamic",
                                          "Make the loss scale dynamic{dynamic:brackets}, or lower it{initial:brackets}."};
constexpr Template kOnOverflowEnableScaling{"advice.enable_dynamic_scale",
                                            "Enable dynamic loss scaling{enabled:brackets}: it skips steps that overflow."};
constexpr Template kOnOverflowLowerFactor{"advice.lower_loss_factor", "Or lower the factor of the loss{factor:brackets}."};
constexpr Template kOnOverflowLowerFactorOfSgd{
    "advice.lower_loss_factor_of_sgd", "Or lower the factor of the loss{factor:brackets}, and raise the learning rate by as much."};
constexpr Template kOnOverflowOrBf16{"advice.or_bf16", "Or train in BF16{precision:brackets}, which has FP32's range."};
constexpr Template kAndOthers{"place.and_others", " and {others:count other tensor}"};

}  // namespace

Sentence below_fitting(const RunFacts& facts) {
  const std::optional<ExponentBounds>& largest = facts.fitting().run.largest;
  if (!largest || largest->upper == ExponentBounds::kNoUpper || !(std::log2(facts.steps().first.scale_before) > largest->upper))
    return {};
  return (largest->lower == largest->upper ? kAtMost : kBelow)({{"largest", power_value(largest->upper)}});
}

Suspects overflowed_gradients(const RunFacts& facts, std::span<const uint32_t> tensors) {
  Suspects suspects(facts.selection);
  for (const uint32_t i : tensors) {
    const TensorRanges& judged = facts.ranges().find(i)->judged;
    const ScaledRows& rows = judged.scaled;
    suspects.add(static_cast<double>(rows.overflow_kept.empty() ? rows.overflow_skipped.size() : rows.overflow_kept.size()), i,
                 {{"steps", count_cell(rows.overflow_kept.size() + rows.overflow_skipped.size()), Unit::count},
                  {"elements", count_cell(judged.totals.seen.overflowed.lower - judged.totals.saturated), Unit::count}},
                 rows.first_overflow);
  }
  return suspects;
}

Extent kept_extent(const RunFacts& facts, const Suspects& kept) {
  const GradientJudgement& gradients = facts.gradients();
  Extent extent = kept.extent();
  extent.steps = gradients.overflow_kept_steps.size();
  return extent;
}

Advice overflow_kept_advice(const RunFacts& facts, uint32_t worst) {
  return lower_scale_advice(facts, facts.selection.tensor(worst).dtype);
}

Advice lower_scale_advice(const RunFacts& facts, DType dtype) {
  constexpr double kSlow = 0.9;  // a scaler that backs off by less takes ten steps and more to halve its scale
  const SettingNames& settings = facts.context.settings;
  const PrecisionFacts& precision = facts.precision();
  const bool has_wide_range = has_range_of_fp32(dtype);
  if (!precision.scales_loss && has_wide_range) return kNoTypeHelps({{"format", format_name(*info(dtype).format)}});
  Advice advice;
  const auto initial = [&] { return advice.lower(settings.now(SettingKind::scale_initial)); };
  const SettingMention floor = settings.now(SettingKind::scale_floor);
  if (precision.adapts_scale && facts.scale().is_at_floor() && !floor.empty()) {
    advice.text = kOnOverflowLowerFloor({{"floor", advice.lower(floor)}});
  } else if (precision.adapts_scale && facts.context.trace.run().backoff_factor > kSlow) {
    const Setting backoff = advice.lower(settings.now(SettingKind::scale_backoff_factor));
    advice.text = kOnOverflowFallFaster({{"backoff", backoff}, {"initial", initial()}});
  } else if (precision.adapts_scale) {
    advice.text = kOnOverflowBeginLower({{"initial", initial()}, {"below", below_fitting(facts)}});
  } else if (precision.scales_loss) {
    const Setting dynamic = advice.set(settings.switched(SettingKind::scale_dynamic, true));
    advice.text = kOnOverflowMakeDynamic({{"dynamic", dynamic}, {"initial", initial()}});
  } else {
    advice.text = kOnOverflowEnableScaling({{"enabled", advice.set(settings.switched(SettingKind::scale_enabled, true))}});
  }
  if (settings.number(SettingKind::loss_factor).value_or(1) > 1) {
    const SettingMention factor = settings.now(SettingKind::loss_factor);
    // Updates of SGD are as much smaller: without another learning rate that is another training, and nothing to try.
    advice.text += uses_sgd(facts) ? kOnOverflowLowerFactorOfSgd({{"factor", factor}})
                                   : kOnOverflowLowerFactor({{"factor", advice.lower(factor)}});
  }
  if (!has_wide_range) {
    advice.note({.kind = SettingKind::precision, .value = std::string(settings.words().bf16)});
    advice.text += kOnOverflowOrBf16({{"precision", settings.now(SettingKind::precision)}});
  }
  return advice;
}

Sentence and_others(size_t all) { return all > 1 ? kAndOthers({{"others", all - 1}}) : Sentence(); }

}  // namespace ulpscope::findings
