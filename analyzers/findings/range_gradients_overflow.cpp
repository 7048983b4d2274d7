#include <fmt/format.h>

#include "ulpscope/analyzers/findings/families.h"
#include "ulpscope/analyzers/findings/nonfinite_text.h"
#include "ulpscope/analyzers/findings/overflow_text.h"
#include "ulpscope/analyzers/findings/rate_text.h"
#include "ulpscope/analyzers/judgements/gradient_judgement.h"
#include "ulpscope/analyzers/judgements/range_judgement.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/scale_judgement.h"
#include "ulpscope/base/text.h"

namespace ulpscope::findings {

namespace {

// The gradient that NaN and infinities began with.
void find_first_gradient(const RunFacts& facts, Findings& found) {
  for (const NonfiniteOrigin& origin : facts.ranges().origins()) {
    if (facts.ranges().start_of(origin) != NonfiniteStart::gradient_overflowed) continue;
    Advice help = smaller_scale_of_loss(facts);
    if (facts.scale().is_at_floor())
      if (const SettingMention floor = facts.context.settings.now(SettingKind::scale_floor); !floor.empty())
        help += fmt::format(", but it may fall no further ({})", help.lower(floor));
    help += ", and so does BF16";
    help.note({.kind = SettingKind::precision, .value = "\"bf16\""});
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
      found.add_judged(Severity::info, overflow_kept_title(facts) + "; no gradient of a parameter became infinite.", kept.worst(),
                       "", kept_extent(facts, kept));
      return;
    }
    found.add_judged(ranges.reached_weights() ? Severity::error : Severity::warning,
                     overflow_kept_title(facts) + (ranges.reached_weights() ? ", and infinities reached the weights."
                                                   : ranges.is_filtered()   ? "."
                                                                            : "; no weight became infinite."),
                     kept.worst(), overflow_kept_advice(facts, kept.worst_tensor()), kept_extent(facts, kept));
  }
  if (!gradients.overflow_skipped.empty()) {
    const Suspects skipped = overflowed_gradients(facts, gradients.overflow_skipped);
    found.add_judged(
        Severity::info,
        fmt::format("{} overflowed, only in steps that the scaler skipped.", count_of(skipped.size(), "gradient tensor")),
        skipped.worst(), "", skipped.extent());
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
