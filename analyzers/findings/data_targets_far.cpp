#include <cmath>

#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/judgements/guesses.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"

namespace ulpscope::findings {

namespace {

constexpr Template kTargetsFar{
    "data.targets_far",
    "The targets are far from 0, where a model's outputs begin: their mean is {mean:.4g}, their standard "
    "deviation {deviation:.4g}."};
constexpr Template kTargetsLarge{"data.targets_far.large",
                                 "The targets are large, and a model's outputs begin near 0: their mean is {mean:.4g}, their "
                                 "standard deviation {deviation:.4g}."};
constexpr Template kNotReached{"data.targets_far.not_reached",
                               "After {steps:count step} the loss is no better than that of predicting the mean."};
constexpr Template kStandardize{"advice.standardize_targets",
                                "Standardize the targets: subtract their mean, and divide by their standard deviation."};

void find_far_targets(const RunFacts& facts, Findings& found) {
  const StepTotals& steps = facts.judged_steps();
  if (facts.context.options.restricts_steps() || steps.count < kLeastJudged) return;
  const MeanGuess* const guess = facts.mean_guess();
  if (guess == nullptr || !guess->is_not_beaten() || !guess->lies_far()) return;
  found.add(
      Severity::error,
      {(guess->mean * guess->mean > guess->loss ? kTargetsFar
                                                : kTargetsLarge)({{"mean", guess->mean}, {"deviation", std::sqrt(guess->loss)}}),
       kNotReached({{"steps", steps.count}})},
      {{key_of_step(facts.context.trace, steps.last.step), {{"mean_loss", guess->run_loss}, {"loss_of_the_mean", guess->loss}}}},
      kStandardize());
}

}  // namespace

extern constinit const FindingRule data_targets_far{
    .code = "data.targets_far",
    .part = Part::run,
    .raised =
        "Predicting the mean of all targets would have cost no more than the mean squared error of the run. The targets' standard "
        "deviation exceeds 100, or their mean exceeds three standard deviations and 3.",
    .meaning = "The model first has to learn to output such large numbers; until then its losses and gradients are as large.",
    .help = "Standardize the targets: subtract their mean and divide by their standard deviation. Undo it on the model's outputs.",
    .picture = Picture::largest_exponents,
    .explains = {"run.no_better_than_guessing", "run.loss_stayed", "scale.backoffs", "scale.below_100", "scale.below_1000"},
    .shown_by = "experiments/failures/targets_far_from_zero.toml",
    .find = find_far_targets,
};

}  // namespace ulpscope::findings
