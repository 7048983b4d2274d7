#include "ulpscope/analyzers/findings/families.h"
#include "ulpscope/analyzers/judgements/gradients_read.h"
#include "ulpscope/analyzers/judgements/loss_judgement.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/sentence_names.h"
#include "ulpscope/analyzers/subject/tensor_place.h"

namespace ulpscope::findings {

namespace {

constexpr Template kNeverScaled{
    "updates.never_scaled",
    "Gradients were divided by the loss scale, and no loss that they come from had been multiplied by it: in {kept} of the first "
    "{steps:count step}, {gradient} was {scale:.6g}x too small."};
constexpr Template kAllLosses{"updates.never_scaled.all", "The scaled loss was computed, and no gradient comes from it."};
constexpr Template kGoBackFromScaled{
    "advice.go_back_from_scaled",
    "Begin each backward pass at what the scaler gives, for every loss: `scaler.scale(loss).backward()` in PyTorch."};

void find_never_scaled(const RunFacts& facts, Findings& found) {
  if (facts.context.options.restricts_steps()) return;
  const GradientsRead& read = facts.gradients_read();
  constexpr uint64_t kFewest = 2;
  if (!read.never_scaled || read.never_scaled->steps < kFewest || 2 * read.never_scaled->steps < read.steps) return;
  const GradientsRead::NeverScaled& never = *read.never_scaled;
  RowKey key = facts.selection.key(never.gradients.front());
  key.step = never.first_step;
  Sentences title = kNeverScaled({{"kept", never.steps},
                                  {"steps", read.steps},
                                  {"gradient", tensor_place(facts.selection, never.gradients.front())},
                                  {"scale", never.scale}});
  if (never.is_all) title += kAllLosses();
  found.add(ended_no_better(facts) ? Severity::error : Severity::warning, std::move(title), {{key, {{"loss_scale", never.scale}}}},
            Advice(kGoBackFromScaled()), {never.gradients, never.first_step});
}

}  // namespace

extern constinit const FindingRule updates_never_scaled{
    .code = "updates.never_scaled",
    .part = Part::updates,
    .raised =
        "In at least half of the first 16 steps that were taken, and in two or more, the scaler had multiplied a loss by a scale "
        "of 4 or "
        "more, and divided gradients by it that come from no scaled loss. An error where the run ended no better than it began.",
    .meaning =
        "These gradients are too small by the loss scale: the optimizer hardly moves their parameters, unless it divides by the "
        "size of gradients, and then its eps decides.",
    .help = "Scale every loss that goes back.",
    .explains = {"run.no_better_than_guessing", "updates.lost", "updates.damped_by_epsilon", "range.gradients_flushed",
                 "updates.clipped_away"},
    .find = find_never_scaled,
};

}  // namespace ulpscope::findings
