#include "ulpscope/analyzers/findings/families.h"
#include "ulpscope/analyzers/judgements/gradients_read.h"
#include "ulpscope/analyzers/judgements/loss_judgement.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"

namespace ulpscope::findings {

namespace {

constexpr Template kStillScaled{
    "updates.still_scaled",
    "Optimizers read gradients of the scaled loss that nothing had unscaled: in step {step} the loss scale was {scale:.6g}."};
constexpr Template kStepThroughScaler{
    "advice.step_through_scaler",
    "Let the gradient scaler take the steps, which unscales: `scaler.step(optimizer)` and `scaler.update()` in PyTorch."};

void find_still_scaled(const RunFacts& facts, Findings& found) {
  if (facts.context.options.restricts_steps()) return;
  const std::optional<GradientsRead::Scaled>& scaled = facts.gradients_read().scaled;
  if (!scaled) return;
  RowKey key = facts.selection.key(scaled->gradients.front());
  key.step = scaled->step;
  found.add(ended_no_better(facts) ? Severity::error : Severity::warning,
            kStillScaled({{"step", ordinal(scaled->step)}, {"scale", scaled->scale}}), {{key, {{"loss_scale", scaled->scale}}}},
            Advice(kStepThroughScaler()), {scaled->gradients, scaled->step});
}

}  // namespace

extern constinit const FindingRule updates_still_scaled{
    .code = "updates.still_scaled",
    .part = Part::updates,
    .raised =
        "In one of the first 16 steps that were taken, all gradients that updates read had a loss scale of 4 or more in them, and "
        "the "
        "recorded norm of the gradients, as the updates used them, had it too. An error where the run ended no better than it "
        "began.",
    .meaning =
        "The loss was scaled, and the optimizer stepped by itself: each step is too long by the loss scale, but for "
        "optimizers that divide by the size of gradients, and nothing skips steps with NaN or Inf.",
    .help = "Step through the gradient scaler.",
    .explains = kOfNonfinite + Codes{"run.diverged", "run.update_leapt", "updates.lost", "updates.clipped_away",
                                     "model.values_grow", "model.dead_output"},
    .find = find_still_scaled,
};

}  // namespace ulpscope::findings
