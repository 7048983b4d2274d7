#include <algorithm>
#include <span>

#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/findings/update_text.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/subject/precision_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"

namespace ulpscope::findings {

namespace {

constexpr Template kClippedWhileScaled{
    "updates.clipped_while_scaled",
    "Gradients are clipped before they are unscaled, so that the loss scale counts as a part of their norm."};
constexpr Template kShortens{"updates.clipped_while_scaled.shortens",
                             "It shrinks the norm at least {ratio} in each of {steps:count step}."};
constexpr Template kUnscaleFirst{"advice.unscale_first",
                                 "Unscale the gradients before clipping: `scaler.unscale_(optimizer)` in PyTorch."};

// Where an op that unscales reads what clipping made.
void find_clipped_while_scaled(const RunFacts& facts, Findings& found) {
  const StepTotals& steps = facts.judged_steps();
  const Clipping& clipping = steps.clipping;
  // A step or two may be clipped as they are to be; a scale of 1 makes no difference.
  constexpr double kLeastRatio = 2;
  if (facts.context.options.restricts_steps() || !facts.precision().scales_loss || clipping.steps == 0 ||
      !(clipping.least > kLeastRatio))
    return;
  const Snapshot& trace = facts.context.trace;
  Extent extent{.first_step = steps.first.step, .steps = clipping.steps};
  for (uint32_t i = 0; i < facts.selection.size(); ++i) {
    const TensorInfo& tensor = facts.selection.tensor(i);
    if (trace.ops()[tensor.op].function != OpFunction::clip_norm || tensor.slot != 0) continue;
    const auto uses = trace.graph().uses(tensor.op);
    if (std::any_of(uses.begin(), uses.end(),
                    [&](const GraphEdge& use) { return trace.ops()[use.consumer].function == OpFunction::unscale; }))
      extent.tensors.push_back(i);
  }
  if (extent.tensors.empty()) return;
  found.add_judged(Severity::warning,
                   Sentences{kClippedWhileScaled()} + kShortens({{"ratio", shortened_by(clipping)}, {"steps", clipping.steps}}),
                   {{key_of_step(trace, steps.last.step), {{"clipped_by_at_least", floored(clipping.least), Unit::ratio}}}},
                   Advice(kUnscaleFirst()), std::move(extent));
}

}  // namespace

extern constinit const FindingRule updates_clipped_while_scaled{
    .code = "updates.clipped_while_scaled",
    .part = Part::updates,
    .raised = "An op that unscales gradients read what clipping to a norm had made, and clipping halved each norm or more.",
    .meaning = "The limit applies to norms that have the loss scale in them: updates are too small by up to that scale.",
    .help = "Unscale the gradients before clipping.",
    .explains = {"updates.clipped_away", "updates.damped_by_epsilon", "run.no_better_than_guessing", "updates.none_applied",
                 "updates.lost", "run.loss_stayed"},
    .find = find_clipped_while_scaled,
};

}  // namespace ulpscope::findings
