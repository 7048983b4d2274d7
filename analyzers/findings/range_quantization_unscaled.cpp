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
                                  "{lost} in the first steps of delayed scaling, whose quantisation scale is 1: there was no "
                                  "history yet."};
constexpr Template kLaterStepsHaveScales{"advice.later_steps_have_scales", "Later steps have scales."};
constexpr Template kHasScaleAtOnce{"advice.has_scale_at_once",
                                   "{said} has one at once; a first step with learning rate 0 fills the histories without an "
                                   "update."};

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
  Advice advice = current_scaling(facts.context.settings);
  advice.text.begin_with(kHasScaleAtOnce);
  advice.text = kLaterStepsHaveScales() + advice.text;
  found.add_judged(Severity::info, kUnscaledInFp8({{"lost", lost_much(facts, suspects)}}), suspects.worst(), std::move(advice),
                   suspects.extent());
}

}  // namespace

extern constinit const FindingRule range_quantization_unscaled{
    .code = "range.quantization_unscaled",
    .part = Part::ranges,
    .raised = "Tensors were rounded to FP8 without a scale.",
    .meaning = "Values that a scale would keep are lost.",
    .help = "A recipe that scales them.",
    .explains = {"range.quantization_flushed", "range.quantization_saturated", "range.quantization_stale"},
    .shown_by = "experiments/failures/fp8_first_step_saturates.toml",
    .find = find_unscaled,
};

}  // namespace ulpscope::findings
