#include <algorithm>
#include <cmath>
#include <utility>

#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/findings/flushed_values.h"
#include "ulpscope/analyzers/findings/norm_text.h"
#include "ulpscope/analyzers/findings/scale_text.h"
#include "ulpscope/analyzers/findings/tensor_place.h"
#include "ulpscope/analyzers/judgements/gradient_judgement.h"
#include "ulpscope/analyzers/judgements/range_judgement.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/suspects.h"
#include "ulpscope/analyzers/subject/precision_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/tensor_rounding.h"
#include "ulpscope/analyzers/totals/fitting_scale.h"
#include "ulpscope/emulation/rounding.h"

namespace ulpscope::findings {

namespace {

constexpr Template kGradientsFlushed{"range.gradients_flushed",
                                     "{formats} underflow in {gradients} of {all:count gradient tensor}: {place} lost {flushed} of "
                                     "its nonzero elements to zero."};
constexpr Template kFlushedBefore{"advice.fitting_scales_flushed_before",
                                  "Which loss scale fits is not known: these gradients were computed from flushed ones."};
constexpr Template kMagnitudesUnseen{"advice.fitting_scales_unseen",
                                     "Which loss scale fits is not known: magnitudes before the rounding were not recorded."};
constexpr Template kMagnitudesTell{"advice.magnitudes_tell_fitting_scales",
                                   "Record magnitudes to see which loss scale fits{level:brackets}."};
constexpr Template kNoScaleKeepsThem{
    "advice.no_scale_keeps_gradients",
    "No single loss scale fits: these gradients need at least {smallest}, and the largest overflow above {largest}."};
constexpr Template kNeedAtLeast{"advice.gradients_need_scale_of_at_least", "They need a loss scale of at least {scale}{present}."};
constexpr Template kNeedLargerScale{"advice.gradients_need_larger_scale", "They need a larger loss scale{present}."};
constexpr Template kScaleKeepsThem{"advice.scale_keeps_gradients", "A loss scale of {scale} keeps them{present}."};
constexpr Template kScaleIs{"advice.scale_is", " (now {scale})"};
constexpr Template kScaleIsSetTo{"advice.scale_is_set_to", "{setting:brackets}"};
constexpr Template kScaleVaries{"advice.scale_varies", " (in this run {lowest} to {highest})"};
constexpr Template kComputedMayNeedMore{"advice.computed_may_need_larger_scale",
                                        "Gradients computed from them may need a larger one."};
constexpr Template kLargestThatFits{"advice.largest_scale_that_fits", "The largest that fits is {scale}."};
constexpr Template kFp32ReachesLower{"advice.fp32_reaches_lower", "FP32 has smaller subnormals."};
constexpr Template kUseBf16{"advice.bf16_has_range", "Use BF16{precision:brackets}{fp32}."};
constexpr Template kOrUseBf16{"advice.or_bf16_has_range", "Or use BF16{precision:brackets}{fp32}."};
constexpr Template kFp32ForOp{"advice.fp32_for_op", ", or keep `{op}` in FP32{setting:brackets}"};
constexpr Template kFp32ForModule{"advice.fp32_for_module", ", or keep `{module}` in FP32{setting:brackets}"};

// The loss scale that the run has, or had, as a phrase; nothing where it scales no loss.
Sentence present_scale(const RunFacts& facts) {
  const StepTotals& steps = facts.steps();
  if (!facts.precision().scales_loss || !(steps.lowest_scale <= steps.highest_scale)) return {};
  if (steps.lowest_scale == steps.highest_scale) {
    const SettingNames& settings = facts.context.settings;
    return settings.number(SettingKind::scale_initial) == steps.lowest_scale
               ? kScaleIsSetTo({{"setting", scale_setting(settings, SettingKind::scale_initial)}})
               : kScaleIs({{"scale", scale_value(steps.lowest_scale)}});
  }
  return kScaleVaries({{"lowest", scale_value(steps.lowest_scale)}, {"highest", scale_value(steps.highest_scale)}});
}

// Which loss scale do gradients that flushing hurts need, and do the others leave room for it?
Sentences advice_on_scale(const RunFacts& facts) {
  const SettingNames& settings = facts.context.settings;
  const std::vector<uint32_t>& flushed = facts.gradients().flushed;
  const FittingScales& fitting = facts.fitting();
  std::optional<ExponentBounds> smallest;
  bool is_hidden = false, has_values = true;
  bool is_sure = true;  // signs and random bits have no part in what is flushed, so that the lower bound means something
  for (const uint32_t i : flushed) {
    if (const auto& fit = fitting.tensors[i]; fit && fit->smallest) raise(smallest, *fit->smallest);
    is_hidden = is_hidden || (fitting.tensors[i] && fitting.tensors[i]->hidden);
    has_values = has_values && facts.ranges().find(i)->judged.totals.rows_with_values > 0;
    const TensorInfo& tensor = facts.selection.tensor(i);
    const MagnitudeThreshold zero = magnitude_thresholds(*info(tensor.dtype).format, rounding_of(tensor)).flushed;
    is_sure = is_sure && zero.surely_below == zero.perhaps_below;
  }
  const bool hidden = fitting.run.hidden;
  const std::optional<ExponentBounds>& largest = fitting.run.largest;
  const bool limited = largest && largest->upper != ExponentBounds::kNoUpper;
  if (!smallest || (is_sure && smallest->lower == ExponentBounds::kNoLower)) {
    if (is_hidden) return {kFlushedBefore(), wide_recording_tells(settings)};
    return has_values ? kMagnitudesUnseen() : kMagnitudesTell({{"level", settings.now(SettingKind::recording_level)}});
  }
  if (limited && smallest->lower > largest->upper)
    return kNoScaleKeepsThem({{"smallest", power_value(smallest->lower)}, {"largest", power_value(largest->upper)}});
  const Sentence present = present_scale(facts);
  // A bound that the run's scale keeps already says no more than that it is too small.
  const bool tells_more = is_sure && std::ldexp(1.0, smallest->lower) > facts.steps().highest_scale;
  Sentences advice;
  if (!hidden && smallest->upper != ExponentBounds::kNoUpper)
    advice = kScaleKeepsThem({{"scale", power_value(smallest->upper)}, {"present", present}});
  else if (tells_more)
    advice = kNeedAtLeast({{"scale", power_value(smallest->lower)}, {"present", present}});
  else
    advice = kNeedLargerScale({{"present", present}});
  if (hidden) advice += kComputedMayNeedMore();
  if (limited) advice += kLargestThatFits({{"scale", scale_value(largest)}});
  return hidden ? advice + wide_recording_tells(settings) : advice;
}

// `worst`: the tensor that lost most.
Advice flushed_advice(const RunFacts& facts, uint32_t worst) {
  const SettingNames& settings = facts.context.settings;
  const PrecisionFacts& precision = facts.precision();
  const Sentences on_scale = advice_on_scale(facts);
  const bool some_scale_may_fit = on_scale.front().id() != kNoScaleKeepsThem.id;
  Advice advice;
  if (!precision.scales_loss && some_scale_may_fit) {
    advice = scaling_advice(precision, settings);
    advice.text.begin_with(kScaleTheLoss);
  }
  advice.text += on_scale;
  if (has_range_of_fp32(facts.selection.tensor(worst).dtype)) return advice + kFp32ReachesLower();
  const Setting precision_setting = advice.set(settings.proposed(SettingKind::precision, settings.words().bf16));
  // Without autocast its settings change nothing.
  const OpInfo* const served = precision.casts_weights ? facts.context.graph.served_by(facts.selection.op(worst)) : nullptr;
  Value fp32;
  if (served && served->module.empty()) {
    const Setting setting =
        advice.set(settings.name(SettingKind::precision_of_ops), std::string(settings.words().fp32), served->name);
    fp32 = kFp32ForOp({{"op", Name{NameKind::op, served->name}}, {"setting", setting}});
  } else if (served) {
    const Setting setting = advice.set(settings.name_for(SettingKind::precision_of_modules, served->module),
                                       std::string(settings.words().fp32), served->module);
    fp32 = kFp32ForModule({{"module", Name{NameKind::module, served->module}}, {"setting", setting}});
  }
  return advice + (some_scale_may_fit ? kOrUseBf16 : kUseBf16)({{"precision", precision_setting}, {"fp32", fp32}});
}

Suspects flushed_gradients(const RunFacts& facts, std::span<const uint32_t> tensors) {
  Suspects suspects(facts.selection);
  for (const uint32_t i : tensors) {
    const TensorRanges& judged = facts.ranges().find(i)->judged;
    const RoundingBounds& used = judged.used;
    std::vector<Quantity> values{share_of("flushed", used.flushed.lower, used.base),
                                 {"of_the_norm_at_most", judged.scaled.flush_loss.most_norm, Unit::share}};
    const OpInfo& op = facts.selection.op(i);
    const OpInfo* const served = op.module.empty() ? facts.context.graph.served_by(op) : nullptr;
    if (served) values.push_back({"gradient_of", served->module + (served->module.empty() ? "" : " ") + served->name});
    suspects.add(share(used.flushed.lower, used.base), i, std::move(values), judged.first_flushed);
  }
  return suspects;
}

Sentences title_of(const RunFacts& facts, const Suspects& suspects, std::span<const uint32_t> tensors, Sentence norm) {
  const uint32_t worst = suspects.worst_tensor();
  const RoundingBounds& used = facts.ranges().find(worst)->judged.used;
  return {kGradientsFlushed({{"formats", formats_of(facts, tensors)},
                             {"gradients", suspects.size()},
                             {"all", rounded_gradients(facts)},
                             {"place", tensor_place(facts, worst)},
                             {"flushed", {share(used.flushed.lower, used.base), Unit::share}}}),
          each_lost(suspects.size(), facts.context.options.flushed_limit, std::move(norm))};
}

void find_flushed(const RunFacts& facts, Findings& found) {
  const std::vector<uint32_t>&tensors = facts.gradients().flushed, &unfelt_tensors = facts.gradients().flushed_unfelt;
  if (const Suspects flushed = flushed_gradients(facts, tensors); !flushed.empty()) {
    Extent extent = flushed.extent();
    extent.since_scale_fell = std::all_of(tensors.begin(), tensors.end(), [&](uint32_t i) {
      return began_with_fallen_scale(facts, i, facts.ranges().find(i)->judged.first_flushed);
    });
    found.add_judged(Severity::warning, title_of(facts, flushed, tensors, most_of_norm(facts, tensors)), flushed.worst(),
                     flushed_advice(facts, flushed.worst_tensor()), std::move(extent));
  }
  if (const Suspects unfelt = flushed_gradients(facts, unfelt_tensors); !unfelt.empty()) {
    found.add_judged(Severity::info, title_of(facts, unfelt, unfelt_tensors, little_of_norm(facts, unfelt_tensors)), unfelt.worst(),
                     {}, unfelt.extent());
  }
}

}  // namespace

extern constinit const FindingRule range_gradients_flushed{
    .code = "range.gradients_flushed",
    .part = Part::ranges,
    .raised = "Underflow: rounding a gradient to FP16 or BF16 made more than 1% of its nonzero elements zero.",
    .meaning = "A warning where the lost part of the gradient's norm may exceed its rounding error, and a note where it does not.",
    .help = "Use a larger loss scale or BF16, or keep the op in FP32.",
    .picture = Picture::flushed,
    .explains = {"scale.missing", "scale.none", "scale.under_scaled", "scale.below_100", "scale.below_1000", "scale.fit_*",
                 "updates.none_applied"},
    .shown_by = "experiments/failures/loss_scale_too_small.toml",
    .find = find_flushed,
};

}  // namespace ulpscope::findings
