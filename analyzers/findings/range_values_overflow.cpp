#include <algorithm>
#include <utility>

#include "ulpscope/analyzers/findings/families.h"
#include "ulpscope/analyzers/findings/nonfinite_text.h"
#include "ulpscope/analyzers/findings/overflow_text.h"
#include "ulpscope/analyzers/judgements/range_judgement.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/suspects.h"
#include "ulpscope/analyzers/judgements/wide_scope.h"
#include "ulpscope/analyzers/subject/precision_facts.h"
#include "ulpscope/analyzers/subject/sentence_names.h"
#include "ulpscope/analyzers/subject/tensor_place.h"
#include "ulpscope/analyzers/subject/tensor_rounding.h"

namespace ulpscope::findings {

namespace {

constexpr Template kOverflowOfValues{"range.values_overflow",
                                     "{format} overflow: {place}{others}, {elements:count value}, first in step {step}."};
constexpr Template kNoInfReached{"range.values_overflow.harmless", "No Inf reached a weight."};

// The value that NaN and Inf began with.
void find_first_value(const RunFacts& facts, Findings& found) {
  for (const NonfiniteOrigin& origin : facts.ranges().origins())
    if (facts.ranges().start_of(origin) == NonfiniteStart::value_overflowed) tell_overflow(facts, origin, found);
}

void find_values_overflow(const RunFacts& facts, Findings& found) {
  const RangeJudgement& ranges = facts.ranges();
  Suspects overflowed(facts.selection);
  for (const auto& [i, judged, unused] : ranges.tensors()) {
    const TensorInfo& tensor = facts.selection.tensor(i);
    // Weights and states that an update made Inf are a matter of range.nonfinite, and no forward values.
    if (is_gradient(tensor.role) || !is_plainly_narrow(tensor.dtype) || facts.selection.op(i).phase == Phase::optimizer) continue;
    const RoundingBounds& seen = judged.totals.seen;
    const uint64_t infinite = seen.overflowed.lower - judged.totals.saturated;
    if (infinite == 0) continue;
    overflowed.add(static_cast<double>(infinite), i,
                   {{"elements", count_cell(infinite), Unit::count}, share_of("overflowed", infinite, seen.base)},
                   judged.scaled.first_overflow);
  }
  if (overflowed.empty()) return;
  // Where the run broke of something else, these did no harm.
  const std::vector<uint32_t> tensors = overflowed.extent().tensors;
  const bool began_here = ranges.origins().empty() ||
                          std::any_of(tensors.begin(), tensors.end(), [&](uint32_t tensor) { return ranges.is_origin(tensor); });
  const Severity harm = began_here ? ranges.harm() : Severity::info;
  const uint32_t worst = overflowed.worst_tensor();
  const TensorInfo& made = facts.selection.tensor(worst);
  const Name format = format_name(*info(made.dtype).format);
  const TensorRanges& judged = ranges.find(worst)->judged;
  Sentences title = kOverflowOfValues({{"format", format},
                                       {"place", tensor_place(facts.selection, worst)},
                                       {"others", and_others(overflowed.size())},
                                       {"elements", judged.totals.seen.overflowed.lower - judged.totals.saturated},
                                       {"step", ordinal(judged.scaled.first_overflow->step)}});
  Advice advice;
  if (harm != Severity::info && has_range_of_fp32(made.dtype))
    advice = kNoTypeHelps({{"format", format}});
  else if (harm != Severity::info)
    advice = Advice(kNoScaleHelps()) + widen(facts, worst);
  if (!ranges.reached_weights() && !ranges.is_filtered() && harm == Severity::info) title += kNoInfReached();
  found.add_judged(harm, std::move(title), overflowed.worst(), std::move(advice), overflowed.extent());
}

}  // namespace

extern constinit const FindingRule range_values_overflow{
    .code = "range.values_overflow",
    .part = Part::ranges,
    .raised = "A value other than a gradient overflowed: it was finite before rounding, and Inf after it.",
    .meaning = "An error where Inf reached the loss, a weight or a gradient; a note where it went no further.",
    .help =
        "Loss scaling does not affect forward values. Keep the modules in FP32 that hand the value on, up to a norm or the loss, "
        "or "
        "train in BF16.",
    .picture = Picture::overflowed,
    .explains = kOfNonfinite,
    .shown_by = "experiments/failures/activations_overflow_fp16.toml",
    .find_start = find_first_value,
    .find = find_values_overflow,
};

}  // namespace ulpscope::findings
