#include "ulpscope/analyzers/findings/families.h"
#include "ulpscope/analyzers/judgements/gradients_read.h"
#include "ulpscope/analyzers/judgements/loss_judgement.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/sentence_names.h"
#include "ulpscope/analyzers/subject/tensor_place.h"

namespace ulpscope::findings {

namespace {

constexpr Template kKept{
    "updates.gradients_kept",
    "Gradients of steps that were over stayed in those of later ones: in {kept} of the first {steps:count step}, "
    "{gradient} was added to what an update had read before."};
constexpr Template kSetToZero{"advice.zero_gradients",
                              "Set gradients to zero in each step, before the backward pass: `optimizer.zero_grad()` in PyTorch."};

void find_kept(const RunFacts& facts, Findings& found) {
  if (facts.context.options.restricts_steps()) return;
  const GradientsRead& read = facts.gradients_read();
  // A step alone may be meant so, as after a batch that the loop left out.
  constexpr uint64_t kFewest = 2;
  if (!read.kept || read.kept->steps < kFewest || 2 * read.kept->steps < read.steps - 1) return;
  const GradientsRead::Kept& kept = *read.kept;
  RowKey key = facts.selection.key(kept.gradients.front());
  key.step = kept.first_step;
  found.add(
      ended_no_better(facts) ? Severity::error : Severity::warning,
      kKept({{"kept", kept.steps}, {"steps", read.steps}, {"gradient", tensor_place(facts.selection, kept.gradients.front())}}),
      {{key, {{"steps", static_cast<double>(kept.steps), Unit::count}}}}, Advice(kSetToZero()), {kept.gradients, kept.first_step});
}

}  // namespace

extern constinit const FindingRule updates_gradients_kept{
    .code = "updates.gradients_kept",
    .part = Part::updates,
    .raised =
        "In at least half of the first 16 steps that were taken, and in two or more, a gradient was added to one of an earlier "
        "step "
        "that an update had read. An error where the run ended no better than it began.",
    .meaning = "Gradients of all steps add up: updates grow, point where earlier steps pointed, and swing.",
    .help = "Set gradients to zero in each step.",
    .explains = kOfNonfinite + Codes{"run.diverged", "model.values_grow", "model.dead_output", "updates.clipped_away"},
    .find = find_kept,
};

}  // namespace ulpscope::findings
