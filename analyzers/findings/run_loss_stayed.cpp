#include <cmath>

#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/findings/rate_text.h"
#include "ulpscope/analyzers/judgements/guesses.h"
#include "ulpscope/analyzers/judgements/loss_ends.h"
#include "ulpscope/analyzers/judgements/loss_judgement.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/trend.h"

namespace ulpscope::findings {

namespace {

constexpr Template kLossStayed{"run.loss_stayed",
                               "The loss did not fall: its median is {first:.4g} over the first {steps} steps, and {last:.4g} over "
                               "the last {steps}."};
constexpr Template kLookAtRateAndTargets{"advice.look_at_rate_and_targets",
                                         "Check the learning rate{rate:brackets}, and the range of inputs and targets."};

// Of losses of which it is not known what guessing gives.
void find_stayed(const RunFacts& facts, Findings& found) {
  constexpr size_t kLeastSteps = 40;
  const AnalysisContext& context = facts.context;
  const StepTotals& steps = facts.steps();
  // A run that goes on from another one may have come down before.
  if (context.options.restricts_steps() || facts.broke() || steps.count < kLeastSteps || steps.first.step > 0 ||
      !context.trace.run().parent_run.empty())
    return;
  const std::optional<Guessing> guessing = guessing_of(context);
  if ((guessing && guessing->loss) || facts.mean_guess()) return;
  const std::vector<double> ends = last_losses(steps);
  if (ends.size() < kEndLosses || steps.first_losses.size() < kEndLosses) return;
  const double first = median(steps.first_losses), last = median(ends);
  if (!(first > 0) || !std::isfinite(last) || last < first || optimizes_in_turns(facts)) return;
  const Advice why = why_updates_are_short(facts);
  found.add(Severity::warning, kLossStayed({{"first", first}, {"last", last}, {"steps", kEndLosses}}),
            {{key_of_step(context.trace, steps.last.step), {{"median_loss", last}, {"first_median_loss", first}}}},
            !why.text.empty() ? why : Advice(kLookAtRateAndTargets({{"rate", learning_rate_now(facts)}})));
}

}  // namespace

extern constinit const FindingRule run_loss_stayed{
    .code = "run.loss_stayed",
    .part = Part::run,
    .raised =
        "A run of 40 steps or more from its start ended with losses no lower than its first ones. Only for losses for which the "
        "loss of guessing is not known, and not for models that are updated in turns, as those of a GAN.",
    .meaning = "By its losses the run learned nothing.",
    .help = "Check the other findings, the learning rate, and the range of inputs and targets.",
    .shown_by = "experiments/failures/absolute_error_learns_nothing.toml",
    .find = find_stayed,
};

}  // namespace ulpscope::findings
