#include "ulpscope/analyzers/findings/families.h"
#include "ulpscope/analyzers/findings/nonfinite_text.h"
#include "ulpscope/analyzers/findings/overflow_text.h"
#include "ulpscope/analyzers/findings/rate_text.h"
#include "ulpscope/analyzers/judgements/gradient_judgement.h"
#include "ulpscope/analyzers/judgements/range_judgement.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/scale_judgement.h"

namespace ulpscope::findings {

namespace {

constexpr Template kSmallerScaleOrBf16{"advice.smaller_scale_or_bf16", "{said}{floor}, and so does BF16."};
constexpr Template kFallsNoFurther{"advice.scale_falls_no_further", ", but it may fall no further{floor:brackets}"};
constexpr Template kInfinitiesTakenAway{"range.gradients_overflow.taken_away",
                                        "{overflow}; no gradient of a parameter became infinite."};
constexpr Template kInfinitiesReached{"range.gradients_overflow.reached_weights",
                                      "{overflow}, and infinities reached the weights."};
constexpr Template kNoWeightInfinite{"range.gradients_overflow.no_weight", "{overflow}; no weight became infinite."};
constexpr Template kGradientsOverflow{"range.gradients_overflow", "{overflow}."};
constexpr Template kOverflowSkipped{"range.gradients_overflow.skipped",
                                    "{gradients:count gradient tensor} overflowed, only in steps that the scaler skipped."};

// The gradient that NaN and infinities began with.
void find_first_gradient(const RunFacts& facts, Findings& found) {
  for (const NonfiniteOrigin& origin : facts.ranges().origins()) {
    if (facts.ranges().start_of(origin) != NonfiniteStart::gradient_overflowed) continue;
    Advice help = smaller_scale_of_loss(facts);
    Value at_floor;
    if (facts.scale().is_at_floor())
      if (const SettingMention floor = facts.context.settings.now(SettingKind::scale_floor); !floor.empty())
        at_floor = kFallsNoFurther({{"floor", help.lower(floor)}});
    help.text.begin_with(kSmallerScaleOrBf16, {{"floor", at_floor}});
    help.note({.kind = SettingKind::precision, .value = std::string(facts.context.settings.words().bf16)});
    tell_overflow(facts, origin, help, found);
  }
}

// In steps that were taken an op took the infinities away before they got to a gradient of a parameter, as where relu's is 0.
bool were_taken_away(const RunFacts& facts) {
  const RangeJudgement& ranges = facts.ranges();
  if (ranges.is_filtered() || ranges.harm() != Severity::info) return false;
  bool are_known = false;
  for (const RangeJudgement::Tensor& tensor : ranges.tensors()) {
    if (!is_gradient_of_parameters(facts.selection.tensor(tensor.index).role)) continue;
    if (ranges.nonfinite(tensor.index).rows > 0) return false;
    are_known = true;
  }
  return are_known;
}

// What stands between infinite gradients and the weights decides what became of them.
void find_gradients_overflow(const RunFacts& facts, Findings& found) {
  const RangeJudgement& ranges = facts.ranges();
  const GradientJudgement& gradients = facts.gradients();
  if (!gradients.overflow_kept.empty() && !gradients.clipping_hides_infinity) {
    const Suspects kept = overflowed_gradients(facts, gradients.overflow_kept);
    if (were_taken_away(facts)) {
      found.add_judged(Severity::info, kInfinitiesTakenAway({{"overflow", overflow_kept_title(facts)}}), kept.worst(), {},
                       kept_extent(facts, kept));
      return;
    }
    const Template& title = ranges.reached_weights() ? kInfinitiesReached
                            : ranges.is_filtered()   ? kGradientsOverflow
                                                     : kNoWeightInfinite;
    found.add_judged(ranges.reached_weights() ? Severity::error : Severity::warning,
                     title({{"overflow", overflow_kept_title(facts)}}), kept.worst(),
                     overflow_kept_advice(facts, kept.worst_tensor()), kept_extent(facts, kept));
  }
  if (!gradients.overflow_skipped.empty()) {
    const Suspects skipped = overflowed_gradients(facts, gradients.overflow_skipped);
    found.add_judged(Severity::info, kOverflowSkipped({{"gradients", skipped.size()}}), skipped.worst(), {}, skipped.extent());
  }
}

}  // namespace

extern constinit const FindingRule range_gradients_overflow{
    .code = "range.gradients_overflow",
    .part = Part::ranges,
    .raised = "A gradient became infinite when it was rounded.",
    .meaning =
        "An error where the step was taken; a note where the scaler skipped it, which is how it finds its level, or an "
        "op took the infinities away before any gradient of a parameter.",
    .help = "A dynamic loss scale, which skips such steps, or a lower one.",
    .picture = Picture::overflowed,
    .explains = kOfNonfinite,
    .shown_by = "experiments/failures/loss_factor_overflows_without_scaler.toml",
    .find_start = find_first_gradient,
    .find = find_gradients_overflow,
};

}  // namespace ulpscope::findings
