#include <algorithm>

#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/findings/quantization_text.h"
#include "ulpscope/analyzers/judgements/quantization_judgement.h"
#include "ulpscope/analyzers/judgements/range_judgement.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"

namespace ulpscope::findings {

namespace {

constexpr Template kUnscaledInFp8{"range.quantization_unscaled",
                                  "The first steps of delayed FP8 scaling run at scale 1: {tensors} of {all:count FP8 tensor} lost "
                                  "more than {limit:%} of their nonzero elements."};
constexpr Template kNoHistoryYet{"range.quantization_unscaled.history", "There is no amax history yet."};
constexpr Template kLaterStepsHaveScales{"advice.later_steps_have_scales", "Later steps are scaled."};
constexpr Template kFillHistory{"advice.fill_amax_history",
                                "Or give the first step a learning rate of 0: it fills the history without an update."};

void find_unscaled(const RunFacts& facts, Findings& found) {
  Suspects suspects(facts.selection);
  for (const uint32_t i : facts.quantized().unscaled) {
    const ScaledRows& rows = facts.ranges().find(i)->judged.before_history;
    const RoundingBounds& seen = rows.seen;
    suspects.add(share(std::max(seen.flushed.lower, seen.overflowed.lower), seen.base), i,
                 {{"rows", count_cell(rows.rows), Unit::count},
                  share_of("flushed", seen.flushed.lower, seen.base),
                  share_of("saturated", seen.overflowed.lower, seen.base)});
  }
  if (suspects.empty()) return;
  Advice advice;
  advice.text = kLaterStepsHaveScales();
  advice += use_current_scaling(facts.context.settings, false);
  advice.text += kFillHistory();
  found.add_judged(Severity::info,
                   {kUnscaledInFp8({{"tensors", suspects.size()},
                                    {"all", quantized_tensors(facts)},
                                    {"limit", {facts.context.options.flushed_limit, Unit::share}}}),
                    kNoHistoryYet()},
                   suspects.worst(), std::move(advice), suspects.extent());
}

}  // namespace

extern constinit const FindingRule range_quantization_unscaled{
    .code = "range.quantization_unscaled",
    .part = Part::ranges,
    .raised =
        "Delayed FP8 scaling has no amax history in its first steps, where its scale is 1, and tensors lost more than 1% of "
        "their nonzero elements there.",
    .meaning = "These steps underflow or saturate; later ones have scales.",
    .help = "Use current scaling, or take the first step with a learning rate of 0.",
    .explains = {"range.quantization_flushed", "range.quantization_saturated", "range.quantization_stale"},
    .shown_by = "experiments/failures/fp8_first_step_saturates.toml",
    .find = find_unscaled,
};

}  // namespace ulpscope::findings
