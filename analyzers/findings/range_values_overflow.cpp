#include <algorithm>

#include "ulpscope/analyzers/findings/families.h"
#include "ulpscope/analyzers/findings/nonfinite_text.h"
#include "ulpscope/analyzers/findings/rate_text.h"
#include "ulpscope/analyzers/judgements/range_judgement.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/suspects.h"
#include "ulpscope/analyzers/subject/precision_facts.h"
#include "ulpscope/analyzers/subject/tensor_rounding.h"

namespace ulpscope::findings {

namespace {

constexpr Template kOverflowOfValues{"range.values_overflow",
                                     "{tensors:count tensor} other than gradients overflowed when rounded."};
constexpr Template kHarmlessOverflowOfValue{"range.values_overflow.harmless",
                                            "{tensors:count tensor} other than gradients overflowed when rounded, and no "
                                            "infinity reached a weight."};
constexpr Template kSoDoesBf16{"advice.so_does_bf16", "{said}, and so does BF16."};
constexpr Template kRunInWiderType{"advice.run_in_wider_type",
                                   "No loss scale helps a forward value: run {place} in FP32 or BF16, or make its "
                                   "inputs smaller."};
constexpr Template kNoScaleHelps{"advice.no_scale_helps_forward", "No loss scale helps a forward value."};
constexpr Template kKeepInWiderType{"advice.keep_in_wider_type", "Keep {place} in FP32, use BF16, or make its inputs smaller."};

// The value that NaN and infinities began with.
void find_first_value(const RunFacts& facts, Findings& found) {
  for (const NonfiniteOrigin& origin : facts.ranges().origins()) {
    if (facts.ranges().start_of(origin) != NonfiniteStart::value_overflowed) continue;
    const TensorInfo& made = facts.selection.tensor(origin.tensor);
    const OpInfo& op = facts.selection.op(origin.tensor);
    Advice help;
    if (made.role == Role::loss && op.function == OpFunction::scale && op.phase != Phase::forward) {
      help = smaller_scale_of_loss(facts);
      help.text.begin_with(kSoDoesBf16);
      help.note({.kind = SettingKind::precision, .value = std::string(facts.context.settings.words().bf16)});
    } else {
      help = kRunInWiderType({{"place", typed_place(facts.precision(), op)}});
      note_wide_types(facts.precision(), op, made.dtype, help);
    }
    tell_overflow(facts, origin, help, found);
  }
}

void find_values_overflow(const RunFacts& facts, Findings& found) {
  const RangeJudgement& ranges = facts.ranges();
  Suspects overflowed(facts.selection);
  for (const auto& [i, judged, unused] : ranges.tensors()) {
    const TensorInfo& tensor = facts.selection.tensor(i);
    // Weights and states that an update made infinite are a matter of range.nonfinite, and no forward values.
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
  Advice advice;
  if (harm != Severity::info && has_range_of_fp32(facts.selection.tensor(worst).dtype)) {
    advice = kNoTypeHelps();
  } else if (harm != Severity::info) {
    const OpInfo& op = facts.selection.op(worst);
    advice = Sentences{kNoScaleHelps(), kKeepInWiderType({{"place", typed_place(facts.precision(), op)}})};
    note_wide_types(facts.precision(), op, facts.selection.tensor(worst).dtype, advice);
  }
  const bool is_harmless = !ranges.reached_weights() && !ranges.is_filtered() && harm == Severity::info;
  found.add_judged(harm, (is_harmless ? kHarmlessOverflowOfValue : kOverflowOfValues)({{"tensors", overflowed.size()}}),
                   overflowed.worst(), std::move(advice), overflowed.extent());
}

}  // namespace

extern constinit const FindingRule range_values_overflow{
    .code = "range.values_overflow",
    .part = Part::ranges,
    .raised = "A value other than a gradient became infinite when it was rounded.",
    .meaning = "An error where the infinity reached the loss, a weight or a gradient; a note where an op took it away.",
    .help = "No loss scale helps a forward value: keep the op in FP32, use BF16, or make its inputs smaller.",
    .picture = Picture::overflowed,
    .explains = kOfNonfinite,
    .shown_by = "experiments/failures/activations_overflow_fp16.toml",
    .find_start = find_first_value,
    .find = find_values_overflow,
};

}  // namespace ulpscope::findings
