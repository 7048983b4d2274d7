#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/findings/quantization_text.h"
#include "ulpscope/analyzers/judgements/quantization_judgement.h"
#include "ulpscope/analyzers/judgements/range_judgement.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/subject/precision_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"

namespace ulpscope::findings {

namespace {

constexpr Template kSaturatedInFp8{"range.quantization_saturated",
                                   "{tensors:count tensor} had elements beyond the largest FP8 value at their quantisation "
                                   "scale, which they became."};
constexpr Template kCurrentTakesLargest{"advice.current_scaling_takes_largest",
                                        "Current scaling takes the largest magnitude to the largest FP8 value; beyond it lies a "
                                        "value only where NaN or infinity hide the largest magnitude, or where a directed mode "
                                        "rounds it up."};
constexpr Template kLookForNonfinite{"advice.look_for_nonfinite_first", "Look for nonfinite values first."};
constexpr Template kDelayedFollows{"advice.delayed_scale_follows", "The scale of delayed scaling follows from earlier steps."};
constexpr Template kLargerMargin{"advice.larger_margin", "A larger margin{setting:brackets} leaves room above them."};
constexpr Template kMarginLargerBy{"advice.margin_larger_by",
                                   "A margin larger by {margin:g}{setting:brackets} leaves room above them."};
constexpr Template kSaturatesNothing{"advice.saturates_nothing", "{said} saturates nothing."};

// `largest_excess`: the largest magnitude over what the scale left room for; 0: only counts are known.
Advice saturated_advice(bool delays_scales, double largest_excess, const SettingNames& settings) {
  if (!delays_scales) return Sentences{kCurrentTakesLargest(), kLookForNonfinite()};
  constexpr int kMostMargin = 4;  // beyond that, room above takes more binades than E4M3 has to give
  const int margin = largest_excess > 1 ? std::ilogb(largest_excess) + 1 : 0;
  const SettingMention setting = settings.now(SettingKind::quantization_margin);
  Advice advice = current_scaling(settings);
  if (margin <= kMostMargin) {
    const double now = settings.number(SettingKind::quantization_margin).value_or(0);
    advice.note({.kind = SettingKind::quantization_margin, .value = fmt::format("{}", now + std::max(margin, 1))});
  }
  Sentence room;
  if (margin == 0) room = kLargerMargin({{"setting", setting}});
  if (margin > 0 && margin <= kMostMargin)
    room = kMarginLargerBy({{"margin", {static_cast<double>(margin), Unit::bits}}, {"setting", setting}});
  advice.text.begin_with(kSaturatesNothing);
  advice.text = Sentences{kDelayedFollows(), room} + advice.text;
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
  found.add_judged(!harmful.empty() ? Severity::warning : Severity::info, kSaturatedInFp8({{"tensors", suspects.size()}}),
                   suspects.worst(),
                   saturated_advice(quantization_recipe(context.trace) == "delayed", largest_excess, context.settings),
                   harmful.empty() ? suspects.extent() : harmful.extent());
}

}  // namespace

extern constinit const FindingRule range_quantization_saturated{
    .code = "range.quantization_saturated",
    .part = Part::ranges,
    .raised = "Values beyond FP8's range were kept at its largest number.",
    .meaning = "They are smaller than computed.",
    .help = "A margin, or current scaling.",
    .picture = Picture::overflowed,
    .shown_by = "experiments/failures/fp8_stale_scale.toml",
    .find = find_saturated_in_fp8,
};

}  // namespace ulpscope::findings
