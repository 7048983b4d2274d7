#include <algorithm>

#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/judgements/mean_losses.h"
#include "ulpscope/analyzers/totals/compared_runs.h"

namespace ulpscope::findings {

namespace {

constexpr Template kLossIsHigher{"compare.loss_higher",
                                 "The second run loses accuracy: its mean loss over the last {steps:count common step} is "
                                 "{mean_b:.4g}, the first run's {mean_a:.4g}{change}."};
constexpr Template kAboveChance{
    "compare.loss_higher.errors",
    "The difference is {errors:.3g} times its standard error (limit: {limit:g}) and exceeds {least:%}."};
constexpr Template kTableOfTensors{
    "advice.table_of_tensors", "See the table of tensors: those whose underflow, overflow, NaN and Inf differ most come first."};

void find_higher_loss(const ComparedRuns& runs, Findings& found) {
  if (!runs.are_comparable() || !runs.have_enough_losses()) return;
  const MeanLosses losses = mean_losses(runs);
  if (!losses.is_higher()) return;
  Sentences title =
      kLossIsHigher({{"steps", losses.steps}, {"mean_b", losses.b}, {"mean_a", losses.a}, {"change", losses.change()}});
  if (losses.error > 0) {
    title += kAboveChance({{"errors", (losses.b - losses.a) / losses.error},
                           {"limit", MeanLosses::kErrors},
                           {"least", {MeanLosses::kResolved, Unit::share}}});
  }
  const bool has_tensors = std::any_of(runs.outputs.begin(), runs.outputs.end(),
                                       [](const auto& output) { return output.second.a != nullptr && output.second.b != nullptr; });
  found.add(Severity::warning, std::move(title),
            {{{}, {{"mean_a", losses.a}, {"mean_b", losses.b}, {"error_of_the_difference", losses.error}}}},
            has_tensors ? kTableOfTensors() : Sentence());
}

}  // namespace

extern constinit const FindingRule compare_loss_higher{
    .code = "compare.loss_higher",
    .part = Part::compare,
    .raised =
        "The mean loss of the second run over the last common steps is higher than the first run's: by more than twice the "
        "standard error of the difference, and by more than 5%. Both runs have one seed and, as far as recorded, began with the "
        "same weights and trained on the same samples.",
    .meaning = "The second run loses accuracy.",
    .help = "Look at the table of tensors, which begins with those whose underflow, overflow, NaN and Inf differ most.",
    .compare = find_higher_loss,
};

}  // namespace ulpscope::findings
