#include <algorithm>

#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/findings/update_text.h"
#include "ulpscope/analyzers/judgements/loss_ends.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/subject/precision_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/trend.h"

namespace ulpscope::findings {

namespace {

constexpr Template kClippedAway{
    "updates.clipped_away",
    "Clipping shrinks the gradient norm at least {ratio} in each of {steps} steps: SGD's updates are too small to train."};
constexpr Template kDividedTwice{
    "updates.clipped_away.divided_twice",
    "Gradients were divided by the loss scale once more: between the backward pass and the update their norm "
    "shrinks {ratio} in each of {steps} "
    "steps, which is the loss scale. SGD's updates are too small to train."};
constexpr Template kShrunk{"updates.clipped_away.shrunk",
                           "Before the update the program shrinks the gradient norm at least {ratio} in each of {steps} steps: "
                           "SGD's updates are too small to train."};
constexpr Template kDivideOnce{"advice.divide_once",
                               "Divide gradients by the loss scale once: `scaler.unscale_` and `scaler.step` do it."};
constexpr Template kLookAtGradients{"advice.look_at_changed_gradients",
                                    "Look for what changes gradients between the backward pass and the optimizer's step: norms are "
                                    "{least:.4g} to {largest:.4g} before."};
constexpr Template kLossDidNotFall{"updates.clipped_away.loss_stayed",
                                   "The loss did not fall: {first:.4g} at the start, {last:.4g} at the end (medians)."};
constexpr Template kNormsWere{"advice.norms_of_gradients_were", "{said}: gradient norms are {least:.4g} to {largest:.4g}."};

// An update of SGD is as long as what clipping leaves of the gradients; those of Adam and Lion do not follow it.
void find_clipped_away(const RunFacts& facts, Findings& found) {
  constexpr size_t kLeastSteps = 30;
  const StepTotals& steps = facts.judged_steps();
  const Clipping& clipping = steps.clipping;
  if (facts.context.options.restricts_steps() || clipping.steps < kLeastSteps || !clipping.clips_much()) return;
  Extent extent{.first_step = steps.first.step, .steps = clipping.steps};
  bool is_sgd = false;
  for (uint32_t i = 0; i < facts.selection.size(); ++i) {
    const OpInfo& op = facts.selection.op(i);
    if (op.function == OpFunction::clip_norm || clips_by_value(op)) extent.tensors.push_back(i);
    if (op.kind != OpKind::update || op.function == OpFunction::assign) continue;
    is_sgd = op.function == OpFunction::sgd_update;
    if (!is_sgd) return;
  }
  // A hundredth is less than batches differ by, and no loss stays where it is by diverging.
  const std::vector<double> ends = last_losses(steps);
  if (!is_sgd || ends.empty() || steps.first_losses.empty()) return;
  const double first = median(steps.first_losses), last = median(ends);
  if (!(last >= 0.99 * first && last <= 1.1 * first)) return;
  const Argument least{"least", clipping.least_norm}, largest{"largest", clipping.largest_norm};
  const bool is_divided = clipping.divides_by_scale(), is_clipped = !is_divided && clips_gradients(facts);
  Advice advice;
  if (is_clipped) {
    advice = clip_less(facts);
    advice.text.begin_with(kNormsWere, {least, largest});
  } else {
    advice.text = is_divided ? kDivideOnce() : kLookAtGradients({least, largest});
  }
  found.add_judged(
      Severity::error,
      {(is_divided   ? kDividedTwice
        : is_clipped ? kClippedAway
                     : kShrunk)({{"ratio", shortened_by(clipping)}, {"steps", clipping.steps}}),
       kLossDidNotFall({{"first", first}, {"last", last}})},
      {{key_of_step(facts.context.trace, steps.last.step), {{"clipped_by_at_least", floored(clipping.least), Unit::ratio}}}},
      std::move(advice), std::move(extent));
}

}  // namespace

extern constinit const FindingRule updates_clipped_away{
    .code = "updates.clipped_away",
    .part = Part::updates,
    .raised =
        "Clipping, or what else a program does before the update, shrank the gradient norm more than 100x in every step, and SGD's "
        "updates with it; the loss did not fall.",
    .meaning = "The updates are too small to train.",
    .help = "Clip to a larger norm, or to larger values; divide by the loss scale once.",
    .explains = {"run.no_better_than_guessing", "updates.none_applied", "updates.lost", "run.loss_stayed"},
    .shown_by = "experiments/failures/clipped_away.toml",
    .find = find_clipped_away,
};

}  // namespace ulpscope::findings
