#include <cmath>

#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/judgements/guesses.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"

namespace ulpscope::findings {

namespace {

constexpr Template kTargetsFar{"data.targets_far",
                               "The targets lie far from where the outputs of a model begin, near 0: their mean is {mean:.4g}, "
                               "they deviate from it by {deviation:.4g}, and the run did not get there."};
constexpr Template kSubtractMean{"advice.subtract_mean_of_targets", "Subtract their mean, and divide by their deviation."};

void find_far_targets(const RunFacts& facts, Findings& found) {
  const StepTotals& steps = facts.judged_steps();
  if (facts.context.options.restricts_steps() || steps.count < kLeastJudged) return;
  const MeanGuess* const guess = facts.mean_guess();
  if (guess == nullptr || !guess->is_not_beaten() || !guess->lies_far()) return;
  found.add(
      Severity::error, kTargetsFar({{"mean", guess->mean}, {"deviation", std::sqrt(guess->loss)}}),
      {{key_of_step(facts.context.trace, steps.last.step), {{"mean_loss", guess->run_loss}, {"loss_of_the_mean", guess->loss}}}},
      kSubtractMean());
}

}  // namespace

extern constinit const FindingRule data_targets_far{
    .code = "data.targets_far",
    .part = Part::run,
    .raised =
        "The mean of all targets would have cost no more than the mean squared error of the run, and they deviate by more than 100 "
        "from it, or it is more than three times their deviation.",
    .meaning = "A model has to learn to make such large numbers first. Its losses and gradients are as large until then.",
    .help = "Subtract the mean of the targets and divide by their deviation, and the other way round for what the model gives.",
    .picture = Picture::largest_exponents,
    .explains = {"run.no_better_than_guessing", "run.loss_stayed", "scale.backoffs", "scale.below_100", "scale.below_1000"},
    .shown_by = "experiments/failures/targets_far_from_zero.toml",
    .find = find_far_targets,
};

}  // namespace ulpscope::findings
