#include <algorithm>

#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/findings/norm_text.h"
#include "ulpscope/analyzers/findings/quantization_text.h"
#include "ulpscope/analyzers/findings/tensor_place.h"
#include "ulpscope/analyzers/judgements/quantization_judgement.h"
#include "ulpscope/analyzers/judgements/range_judgement.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/sentence_names.h"

namespace ulpscope::findings {

namespace {

constexpr Template kStaleScale{
    "range.quantization_stale",
    "Stale FP8 scale in {tensors} of {all:count FP8 tensor}: {place} lost {flushed} of its nonzero elements "
    "to zero in {format}."};
constexpr Template kOwnScaleLoses{"range.quantization_stale.own_scale",
                                  "At the scale of its own amax {tensors:either it|the worst one} would lose at most {own}."};
constexpr Template kScaleOfHistory{"range.quantization_stale.history",
                                   "The scale follows the largest amax of earlier steps, perhaps that of one outlier."};
constexpr Template kShorterHistory{"advice.shorter_amax_history", "Use a shorter amax history{history:brackets}."};
constexpr Template kSmallerMargin{"advice.smaller_margin", "Or use a smaller margin{margin:brackets}."};

void find_stale(const RunFacts& facts, Findings& found) {
  const std::vector<uint32_t>& tensors = facts.quantized().stale;
  if (tensors.empty()) return;
  const bool lost_most = std::any_of(tensors.begin(), tensors.end(), [&](uint32_t i) {
    const RoundingBounds& seen = facts.ranges().find(i)->judged.scaled.seen;
    return share(seen.flushed.lower, seen.base) > 0.5;
  });
  const Suspects stale = flushed_in_fp8(facts, tensors, true);
  const SettingNames& settings = facts.context.settings;
  Advice advice;
  // A shorter history is tried first.
  const Setting history = advice.lower(settings.now(SettingKind::quantization_history));
  advice.text = kShorterHistory({{"history", history}});
  advice += use_current_scaling(settings, true);
  if (settings.number(SettingKind::quantization_margin).value_or(0) > 0)
    advice.text += kSmallerMargin({{"margin", advice.lower(settings.now(SettingKind::quantization_margin))}});
  const uint32_t worst = stale.worst_tensor();
  const RoundingBounds& own = facts.ranges().find(worst)->judged.scaled.at_own_scale;
  found.add_judged(
      lost_most ? Severity::error : Severity::warning,
      {kStaleScale({{"tensors", stale.size()},
                    {"all", quantized_tensors(facts)},
                    {"place", tensor_place(facts, worst)},
                    {"flushed", flushed_of(facts, worst)},
                    {"format", format_name(*info(facts.selection.tensor(worst).dtype).format)}}),
       each_lost(stale.size(), facts.context.options.flushed_limit, most_of_norm(facts, tensors)),
       kOwnScaleLoses({{"tensors", stale.size()}, {"own", {share(own.flushed.upper, own.base), Unit::share}}}), kScaleOfHistory()},
      stale.worst(), std::move(advice), stale.extent());
}

}  // namespace

extern constinit const FindingRule range_quantization_stale{
    .code = "range.quantization_stale",
    .part = Part::ranges,
    .raised =
        "Underflow in FP8 at a scale that the amax history of earlier steps set far below what the tensor's own amax asks for.",
    .meaning = "Values are lost that FP8 can hold at a scale of their own.",
    .help = "Use a shorter history or current scaling.",
    .explains = {"range.quantization_saturated", "range.quantization_flushed", "run.no_better_than_guessing", "run.loss_rose",
                 "run.loss_stayed"},
    .shown_by = "experiments/failures/fp8_stale_scale.toml",
    .find = find_stale,
};

}  // namespace ulpscope::findings
