#include <algorithm>
#include <utility>

#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/findings/norm_text.h"
#include "ulpscope/analyzers/findings/scale_text.h"
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

constexpr Template kGradientsFlushed{
    "range.gradients_flushed",
    "{gradients:count gradient tensor} lost more than {limit:%} of the nonzero elements to zero when rounded, and {norm}."};
constexpr Template kGradientsFlushedUnfelt{
    "range.gradients_flushed.unfelt",
    "{gradients:count gradient tensor} lost more than {limit:%} of the nonzero elements to zero when rounded, but {norm}."};
constexpr Template kFlushedBefore{"advice.fitting_scales_flushed_before",
                                  "Which loss scales fit is not known: they were computed from gradients that had been flushed."};
constexpr Template kWhichScalesDo{"advice.which_scales_do", "Which do, {tells}."};
constexpr Template kMagnitudesUnseen{"advice.fitting_scales_unseen",
                                     "Which loss scales fit is not known: the magnitudes before the rounding were not seen."};
constexpr Template kMagnitudesTell{"advice.magnitudes_tell_fitting_scales",
                                   "Which loss scales fit is not known; magnitudes before the rounding tell{level:brackets}."};
constexpr Template kNoScaleKeepsThem{"advice.no_scale_keeps_gradients",
                                     "No single loss scale keeps them: it would have to be at least {smallest}, and the largest "
                                     "gradients overflow above {largest}."};
constexpr Template kNeedAtLeast{"advice.gradients_need_scale_of_at_least",
                                "They need a loss scale of at least {scale}{computed}{largest}."};
constexpr Template kNeedLargerScale{"advice.gradients_need_larger_scale", "They need a larger loss scale{computed}{largest}."};
constexpr Template kScaleKeepsThem{"advice.scale_keeps_gradients", "A loss scale of {scale} keeps them{computed}{largest}."};
constexpr Template kComputedMayNeedMore{"advice.computed_may_need_larger_scale",
                                        ", and what was computed from them may need a larger one: {tells}"};
constexpr Template kLargestThatFits{"advice.largest_scale_that_fits", "; the largest that fits is {scale}"};
constexpr Template kFp32ReachesLower{"advice.fp32_reaches_lower", "FP32 reaches lower."};
constexpr Template kBf16HasRange{"advice.bf16_has_range", "BF16 has the range{fp32}."};
constexpr Template kFp32ForOp{"advice.fp32_for_op", ", and so has FP32 for the op {op}{setting:brackets}"};
constexpr Template kFp32ForModule{"advice.fp32_for_module", ", and so has FP32 for the module {module}{setting:brackets}"};

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
    if (is_hidden) return {kFlushedBefore(), kWhichScalesDo({{"tells", wide_recording_tells(settings)}})};
    return has_values ? kMagnitudesUnseen() : kMagnitudesTell({{"level", settings.now(SettingKind::recording_level)}});
  }
  if (limited && smallest->lower > largest->upper)
    return kNoScaleKeepsThem({{"smallest", power_value(smallest->lower)}, {"largest", power_value(largest->upper)}});
  const Value computed = hidden ? Value(kComputedMayNeedMore({{"tells", wide_recording_tells(settings)}})) : Value();
  const Value fits = limited ? Value(kLargestThatFits({{"scale", scale_value(largest)}})) : Value();
  if (!hidden && smallest->upper != ExponentBounds::kNoUpper)
    return kScaleKeepsThem({{"scale", power_value(smallest->upper)}, {"computed", computed}, {"largest", fits}});
  if (is_sure) return kNeedAtLeast({{"scale", power_value(smallest->lower)}, {"computed", computed}, {"largest", fits}});
  return kNeedLargerScale({{"computed", computed}, {"largest", fits}});
}

// `worst`: the tensor that lost most.
Advice flushed_advice(const RunFacts& facts, uint32_t worst) {
  const SettingNames& settings = facts.context.settings;
  const PrecisionFacts& precision = facts.precision();
  Advice advice;
  if (!precision.scales_loss) {
    advice = scaling_advice(precision, settings);
    advice.text.begin_with(kScaleTheLoss);
  }
  advice.text += advice_on_scale(facts);
  if (has_range_of_fp32(facts.selection.tensor(worst).dtype)) return advice + kFp32ReachesLower();
  advice.note({.kind = SettingKind::precision, .value = std::string(facts.context.settings.words().bf16)});
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
  return advice + kBf16HasRange({{"fp32", fp32}});
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

void find_flushed(const RunFacts& facts, Findings& found) {
  const Value limit{facts.context.options.flushed_limit, Unit::share};
  if (const Suspects flushed = flushed_gradients(facts, facts.gradients().flushed); !flushed.empty()) {
    Extent extent = flushed.extent();
    const std::vector<uint32_t>& tensors = facts.gradients().flushed;
    extent.since_scale_fell = std::all_of(tensors.begin(), tensors.end(), [&](uint32_t i) {
      return began_with_fallen_scale(facts, i, facts.ranges().find(i)->judged.first_flushed);
    });
    found.add_judged(Severity::warning,
                     kGradientsFlushed({{"gradients", flushed.size()}, {"limit", limit}, {"norm", most_of_norm(facts, tensors)}}),
                     flushed.worst(), flushed_advice(facts, flushed.worst_tensor()), std::move(extent));
  }
  if (const Suspects unfelt = flushed_gradients(facts, facts.gradients().flushed_unfelt); !unfelt.empty()) {
    found.add_judged(
        Severity::info,
        kGradientsFlushedUnfelt(
            {{"gradients", unfelt.size()}, {"limit", limit}, {"norm", little_of_norm(facts, facts.gradients().flushed_unfelt)}}),
        unfelt.worst(), {}, unfelt.extent());
  }
}

}  // namespace

extern constinit const FindingRule range_gradients_flushed{
    .code = "range.gradients_flushed",
    .part = Part::ranges,
    .raised = "A gradient lost more than a share of its nonzero elements to zero when it was rounded.",
    .meaning = "A warning where the gradient's norm can feel it; a note where what was lost is less than roundings change anyway.",
    .help = "A larger loss scale, BF16, or FP32 for the op.",
    .picture = Picture::flushed,
    .explains = {"scale.missing", "scale.none", "scale.under_scaled", "scale.below_100", "scale.below_1000", "scale.fit_*",
                 "updates.none_applied"},
    .shown_by = "experiments/failures/loss_scale_too_small.toml",
    .find = find_flushed,
};

}  // namespace ulpscope::findings
