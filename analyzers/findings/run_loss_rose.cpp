#include <algorithm>
#include <cmath>

#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/findings/rate_text.h"
#include "ulpscope/analyzers/judgements/loss_ends.h"
#include "ulpscope/analyzers/judgements/loss_judgement.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/subject/lowest_losses.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/tensor_rounding.h"
#include "ulpscope/analyzers/subject/trend.h"

namespace ulpscope::findings {

namespace {

constexpr Template kLossRose{"run.loss_rose",
                             "The loss rose from {lowest:.4g}, the lowest median of its blocks of {steps} steps (that from step "
                             "{step} on), to {last:.4g} over the last {steps}."};
constexpr Template kLowerRateBefore{"advice.lower_rate_before",
                                    "Let the learning rate{rate:brackets} decay from step {step} on, by a schedule."};
constexpr Template kComparisonTells{
    "advice.comparison_tells",
    "`ulpscope compare` with the same run in FP32{precision:brackets} shows whether precision has a "
    "part in it."};

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
  if (optimizes_in_turns(facts)) return;
  Advice advice = why_weights_shrink(facts);
  advice.text += kLowerRateBefore({{"rate", advice.lower(learning_rate_now(facts))}, {"step", ordinal(lowest->first_step)}});
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
        "The last losses (40 at most, behind the block of 20 steps with the lowest median) are higher than those of that block: "
        "by a rank-sum test at 4.5 standard deviations, which chance passes in 3 of a million runs. And the loss rose by more than "
        "5%, and by more than 10% of what the run had gained by then, or a quarter of that on a logarithmic scale.",
    .meaning = "The run ended worse than it was before: its steps were too long by then, or something went wrong on the way.",
    .help = "Decay the learning rate; compare with the same run in FP32.",
    .shown_by = "experiments/failures/loss_comes_back.toml",
    .find = find_rise,
};

}  // namespace ulpscope::findings
