#include <algorithm>
#include <cmath>
#include <utility>

#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/judgements/gradient_judgement.h"
#include "ulpscope/analyzers/judgements/range_judgement.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/suspects.h"
#include "ulpscope/analyzers/subject/precision_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/emulation/rounding.h"

namespace ulpscope::findings {

namespace {

constexpr Template kGradientsRaised{
    "range.gradients_raised",
    "{gradients:count gradient tensor} had more than {limit:%} of the nonzero elements below half the smallest subnormal "
    "number, which the rounding mode raised to it: they are larger than they were computed, and in mode sr right on average "
    "only."};
constexpr Template kNormalOrFp32{"advice.scale_to_normal_or_fp32",
                                 "{said}, so that gradients are normal numbers (which scale fits, {tells}), or use FP32."};
constexpr Template kNormalOrBf16{"advice.scale_to_normal_or_bf16",
                                 "{said}, so that gradients are normal numbers (which scale fits, {tells}), or use BF16."};
constexpr Template kToNearestZero{"advice.raised_are_zero_to_nearest", "To nearest these elements are zero."};

// Numbers that to nearest would be zero, and that the mode makes the smallest subnormal, which is up to any factor too large.
void find_raised(const RunFacts& facts, Findings& found) {
  Suspects suspects(facts.selection);
  double most = 0;
  for (const uint32_t i : facts.gradients().raised) {
    const TensorRanges& judged = facts.ranges().find(i)->judged;
    const TensorInfo& tensor = facts.selection.tensor(i);
    const double how_many = share(judged.raised.lower, judged.totals.seen.base);
    most = std::max(most, how_many);
    suspects.add(how_many, i,
                 {{"raised", share_cell(judged.raised, judged.totals.seen.base), Unit::share},
                  {"rounding", std::string(name_of(tensor.rounding))},
                  {"smallest_subnormal", std::log2(info(tensor.dtype).format->smallest_positive()), Unit::exponent}});
  }
  if (suspects.empty()) return;
  const bool takes_fp32 = has_range_of_fp32(facts.selection.tensor(suspects.worst_tensor()).dtype);
  Advice advice = scaling_advice(facts.precision(), facts.context.settings);
  advice.text.begin_with(takes_fp32 ? kNormalOrFp32 : kNormalOrBf16, {{"tells", wide_recording_tells(facts.context.settings)}});
  advice.text += kToNearestZero();
  found.add_judged(
      2 * most > 1 ? Severity::warning : Severity::info,
      kGradientsRaised({{"gradients", suspects.size()}, {"limit", {facts.context.options.flushed_limit, Unit::share}}}),
      suspects.worst(), std::move(advice), suspects.extent());
}

}  // namespace

extern constinit const FindingRule range_gradients_raised{
    .code = "range.gradients_raised",
    .part = Part::ranges,
    .raised = "Elements that would be zero to nearest were raised to the smallest subnormal number by the rounding mode.",
    .meaning = "They are larger than they were computed.",
    .help = "A larger loss scale, or BF16.",
    .picture = Picture::flushed,
    .shown_by = "experiments/failures/vanishing_gradients_fp16.toml --set arithmetic.rounding=ru",
    .find = find_raised,
};

}  // namespace ulpscope::findings
