#include <algorithm>
#include <cmath>

#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/findings/rate_text.h"
#include "ulpscope/analyzers/judgements/loss_ends.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/subject/lowest_losses.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/tensor_rounding.h"
#include "ulpscope/analyzers/subject/trend.h"

namespace ulpscope::findings {

namespace {

constexpr Template kLossRose{"run.loss_rose",
                             "The loss rose: its median was {lowest:.4g} in the {steps} steps from {step} on, and is "
                             "{last:.4g} in the last {steps}."};
constexpr Template kLowerRateBefore{"advice.lower_rate_before",
                                    "Lower the learning rate{rate:brackets} before that, by a schedule."};
constexpr Template kComparisonTells{"advice.comparison_tells",
                                    "Whether the format has a part in it, `ulpscope compare` with a run in FP32 "
                                    "tells{precision:brackets}."};

bool rounds_to_narrow(const Selection& selection) {
  for (uint32_t i = 0; i < selection.size(); ++i)
    if (is_narrow(selection.tensor(i).dtype)) return true;
  return false;
}

// The losses behind the lowest ones: as many as twice those, at most. None where they are fewer than those.
std::vector<double> losses_behind(const StepTotals& steps, const LossBlock& lowest) {
  constexpr uint64_t kSteps = LowestLosses::kSteps;
  const uint64_t behind = lowest.first_step + kSteps;
  if (steps.last.step + 1 < behind + kSteps) return {};
  return last_losses(steps, std::min(2 * kSteps, steps.last.step + 1 - behind));
}

// Whether the loss rose from `lowest` to `end` by more than what comes and goes: a tenth of what the run had won by then, or a
// quarter of that as a logarithm, where a first loss that was huge says nothing of the last ones. A run that had won nothing,
// because it was resumed, is measured by its loss.
bool is_much(double first, double lowest, double end) {
  constexpr double kOfWon = 0.1, kOfLogarithm = 0.25, kOfLoss = 0.05;
  if (!(end - lowest > kOfLoss * std::abs(lowest))) return false;
  if (!(end - lowest > kOfWon * (first - lowest)))
    return lowest > 0 && std::log(end / lowest) > kOfLogarithm * std::log(first / lowest);
  return true;
}

void find_rise(const RunFacts& facts, Findings& found) {
  constexpr size_t kSteps = LowestLosses::kSteps;
  // Of losses that come of one distribution 3 in a million are so far apart; the lowest of many are compared.
  constexpr double kDeviations = 4.5;
  const AnalysisContext& context = facts.context;
  if (context.options.restricts_steps() || facts.broke()) return;  // the end is not that of the run, or says something else
  const StepTotals& steps = facts.steps();
  const std::optional<LossBlock>& lowest = steps.lowest_losses.block();
  if (!lowest || !steps.first.loss_known) return;
  const std::vector<double> behind = losses_behind(steps, *lowest);
  if (behind.size() < kSteps || !(rank_sum_deviations(lowest->losses, behind) > kDeviations)) return;
  const double end = median(last_losses(steps, kSteps));
  if (!std::isfinite(end) || !is_much(steps.first.loss, lowest->median, std::min(end, median(behind)))) return;
  Advice advice;
  advice.text = kLowerRateBefore({{"rate", advice.lower(learning_rate_now(facts))}});
  if (rounds_to_narrow(facts.selection))
    advice.text += kComparisonTells({{"precision", context.settings.now(SettingKind::precision)}});
  found.add(Severity::warning,
            kLossRose({{"lowest", lowest->median}, {"steps", kSteps}, {"step", ordinal(lowest->first_step)}, {"last", end}}),
            {{key_of_step(context.trace, steps.last.step), {{"median_loss", end}}},
             {key_of_step(context.trace, lowest->first_step), {{"lowest_median_loss", lowest->median}}}},
            std::move(advice));
}

}  // namespace

extern constinit const FindingRule run_loss_rose{
    .code = "run.loss_rose",
    .part = Part::run,
    .raised =
        "Of the losses behind the 20 lowest ones, the last 40 at most, so many are higher than these as chance makes of 3 in a "
        "million "
        "runs, and the loss rose by more than a twentieth, and by more than a tenth of what the run had won by then, or a quarter "
        "of "
        "that in logarithms.",
    .meaning =
        "The run ended worse than it was: its steps were too long for where it had come, or something went wrong on the way.",
    .help = "Lower the learning rate with time; compare with a run in FP32.",
    .shown_by = "experiments/failures/loss_comes_back.toml",
    .find = find_rise,
};

}  // namespace ulpscope::findings
