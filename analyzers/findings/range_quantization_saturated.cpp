#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/findings/quantization_text.h"
#include "ulpscope/analyzers/findings/tensor_place.h"
#include "ulpscope/analyzers/judgements/quantization_judgement.h"
#include "ulpscope/analyzers/judgements/range_judgement.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/subject/precision_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/sentence_names.h"

namespace ulpscope::findings {

namespace {

constexpr Template kSaturatedInFp8{"range.quantization_saturated",
                                   "FP8 saturation in {tensors} of {all:count FP8 tensor}: {place} has {saturated} of its elements "
                                   "beyond {maximum}, the largest number of {format}."};
constexpr Template kLargestExcess{"range.quantization_saturated.excess", "The largest magnitude is {excess:.4g} times that."};
constexpr Template kDelayedFollows{"range.quantization_saturated.delayed", "Delayed scaling takes the scale from earlier steps."};
constexpr Template kCurrentTakesLargest{
    "range.quantization_saturated.current",
    "Current scaling takes the amax to the largest number: only NaN, Inf or a directed rounding "
    "mode leads beyond it."};
constexpr Template kLookForNonfinite{"advice.look_for_nonfinite_first", "First look for NaN and Inf."};
constexpr Template kLargerMargin{"advice.larger_margin", "Use a larger margin{setting:brackets}."};
constexpr Template kMarginLargerBy{"advice.margin_larger_by", "Raise the margin by {margin:g}{setting:brackets}."};

// `largest_excess`: the largest magnitude over what the scale left room for; 0: only counts are known.
Advice saturated_advice(bool delays_scales, double largest_excess, const SettingNames& settings) {
  if (!delays_scales) return Sentence(kLookForNonfinite());
  constexpr int kMostMargin = 4;  // beyond that, room above takes more binades than E4M3 has to give
  const int margin = largest_excess > 1 ? std::ilogb(largest_excess) + 1 : 0;
  const SettingMention setting = settings.now(SettingKind::quantization_margin);
  const bool can_have_margin = margin <= kMostMargin;
  Advice advice = use_current_scaling(settings, can_have_margin);
  if (!can_have_margin) return advice;
  const double now = settings.number(SettingKind::quantization_margin).value_or(0);
  advice.note({.kind = SettingKind::quantization_margin, .value = fmt::format("{}", now + std::max(margin, 1))});
  const Sentence room = margin == 0
                            ? kLargerMargin({{"setting", setting}})
                            : kMarginLargerBy({{"margin", {static_cast<double>(margin), Unit::bits}}, {"setting", setting}});
  advice.text = room + advice.text;
  return advice;
}

void find_saturated_in_fp8(const RunFacts& facts, Findings& found) {
  const double limit = facts.context.options.flushed_limit;
  Suspects suspects(facts.selection), harmful(facts.selection);  // harmful: what makes it more than a note
  double largest_excess = 0;
  for (const uint32_t i : facts.quantized().saturated) {
    const ScaledRows& rows = facts.ranges().find(i)->judged.scaled;
    const RoundingBounds& seen = rows.seen;
    const double saturated = share(seen.overflowed.lower, seen.base);
    largest_excess = std::max(largest_excess, rows.largest_excess);
    suspects.add(saturated, i,
                 {{"steps", count_cell(rows.overflow_kept.size() + rows.overflow_skipped.size()), Unit::count},
                  {"elements", count_cell(seen.overflowed.lower), Unit::count},
                  share_of("saturated", seen.overflowed.lower, seen.base)},
                 rows.first_overflow);
    if (saturated > limit) harmful.add(saturated, i, {}, rows.first_overflow);
  }
  if (suspects.empty()) return;
  const AnalysisContext& context = facts.context;
  const bool delays_scales = quantization_recipe(context.trace) == "delayed";
  const uint32_t worst = suspects.worst_tensor();
  const RoundingBounds& seen = facts.ranges().find(worst)->judged.scaled.seen;
  const FloatFormat& format = *info(facts.selection.tensor(worst).dtype).format;
  Sentences title = kSaturatedInFp8({{"tensors", suspects.size()},
                                     {"all", quantized_tensors(facts)},
                                     {"place", tensor_place(facts, worst)},
                                     {"saturated", {share(seen.overflowed.lower, seen.base), Unit::share}},
                                     {"maximum", format.largest_finite()},
                                     {"format", format_name(format)}});
  if (const double excess = facts.ranges().find(worst)->judged.scaled.largest_excess; excess > 1)
    title += kLargestExcess({{"excess", excess}});
  title += (delays_scales ? kDelayedFollows : kCurrentTakesLargest)();
  found.add_judged(!harmful.empty() ? Severity::warning : Severity::info, std::move(title), suspects.worst(),
                   saturated_advice(delays_scales, largest_excess, context.settings),
                   harmful.empty() ? suspects.extent() : harmful.extent());
}

}  // namespace

extern constinit const FindingRule range_quantization_saturated{
    .code = "range.quantization_saturated",
    .part = Part::ranges,
    .raised = "Saturation in FP8: at the quantization scale values exceeded the format's largest number, and became it.",
    .meaning = "These values are smaller than computed.",
    .help = "Use a larger margin, or current scaling.",
    .picture = Picture::overflowed,
    .shown_by = "experiments/failures/fp8_stale_scale.toml",
    .find = find_saturated_in_fp8,
};

}  // namespace ulpscope::findings
