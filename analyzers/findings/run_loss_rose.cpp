#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/loss_ends.h"
#include "ulpscope/analyzers/lowest_losses.h"
#include "ulpscope/analyzers/run_analysis.h"
#include "ulpscope/analyzers/run_facts.h"
#include "ulpscope/analyzers/trend.h"
#include "ulpscope/analyzers/what_if.h"

namespace ulpscope::findings {

namespace {

bool rounds_to_narrow(const Selection& selection) {
  for (uint32_t i = 0; i < selection.size(); ++i)
    if (is_narrow(selection.tensor(i).dtype)) return true;
  return false;
}

void find_rise(const RunFacts& facts, Findings& found) {
  constexpr size_t kSteps = LowestLosses::kSteps;
  // A smaller share of what the run had won comes and goes.
  constexpr double kGivenBack = 0.1;
  const AnalysisContext& context = facts.context;
  if (context.options.restricts_steps() || facts.broke()) return;  // the end is not that of the run, or says something else
  const StepTotals& steps = facts.steps();
  const std::optional<LossBlock>& lowest = steps.lowest_losses.block();
  const std::vector<double> last = last_losses(steps, kSteps);
  if (!lowest || !steps.first.loss_known || steps.count < 3 * kSteps) return;
  // `longer`: of twice as many, for twenty losses of small batches can all be bad ones.
  const double end = median(last), longer = median(last_losses(steps, 2 * kSteps)), won = steps.first.loss - lowest->median;
  if (!std::isfinite(end) || !(std::min({steps.first.loss, end, longer}) > lowest->second_largest)) return;
  if (!(end - lowest->median > kGivenBack * won)) return;
  const SettingNames& settings = context.settings;
  const std::string rate = in_brackets({settings.only_now(SettingKind::learning_rate)});
  std::string advice = fmt::format("Lower the learning rate{} before that, by a schedule", rate);
  advice += !rounds_to_narrow(facts.selection)
                ? "."
                : fmt::format(". Whether the format has a part in it, `ulpscope compare` with a run in FP32 tells{}.",
                              in_brackets({settings.now(SettingKind::precision)}));
  found.add(Severity::warning,
            fmt::format("The loss came back up: its median was {:.4g} in the {} steps from {} on, and is {:.4g} in the last {}.",
                        lowest->median, kSteps, lowest->first_step, end, kSteps),
            {{key_of_step(context.trace, steps.last.step), {{"median_loss", end}}},
             {key_of_step(context.trace, lowest->first_step), {{"lowest_median_loss", lowest->median}}}},
            std::move(advice));
}

}  // namespace

extern constinit const FindingRule run_loss_rose{
    .code = "run.loss_rose",
    .part = Part::run,
    .raised =
        "The medians of the last 20 and of the last 40 losses are above all but one of the 20 losses of the best part of the run, "
        "and more than a tenth of what the run had won by then is lost again.",
    .meaning =
        "The run ended worse than it was: its steps were too long for where it had come, or something went wrong on the way.",
    .help = "Lower the learning rate with time; compare with a run in FP32.",
    .shown_by = "experiments/failures/loss_comes_back.toml",
    .find = find_rise,
};

}  // namespace ulpscope::findings
