#include <algorithm>
#include <cmath>

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
    "Clipping made the gradients at least {ratio:.0f} times shorter in each of {steps} steps, and the loss stayed where it was: "
    "{first:.4g} at first, {last:.4g} in the end."};
constexpr Template kNormsWere{"advice.norms_of_gradients_were",
                              "{said}: norms of the gradients were {least:.4g} to {largest:.4g}."};

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
  Advice advice = clip_less(facts);
  advice.text.begin_with(kNormsWere, {{"least", clipping.least_norm}, {"largest", clipping.largest_norm}});
  found.add_judged(
      Severity::error,
      kClippedAway(
          {{"ratio", {std::floor(clipping.least), Unit::ratio}}, {"steps", clipping.steps}, {"first", first}, {"last", last}}),
      {{key_of_step(facts.context.trace, steps.last.step), {{"clipped_by_at_least", clipping.least, Unit::ratio}}}},
      std::move(advice), std::move(extent));
}

}  // namespace

extern constinit const FindingRule updates_clipped_away{
    .code = "updates.clipped_away",
    .part = Part::updates,
    .raised =
        "Clipping made the gradients more than 1000 times shorter in every step, updates of SGD with them, and the loss did not "
        "move.",
    .meaning = "The run learns next to nothing.",
    .help = "A larger norm, or larger values, to clip to.",
    .explains = {"run.no_better_than_guessing", "updates.none_applied", "updates.lost", "run.loss_stayed"},
    .shown_by = "experiments/failures/clipped_away.toml",
    .find = find_clipped_away,
};

}  // namespace ulpscope::findings
