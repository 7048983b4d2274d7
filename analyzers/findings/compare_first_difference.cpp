#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/totals/compared_runs.h"

namespace ulpscope::findings {

namespace {

constexpr Template kLossesDiffer{"compare.first_difference",
                                 "The losses differ in {different} of {common:count common step}, first in step {step}."};

void find_first_difference(const ComparedRuns& runs, Findings& found) {
  const LossComparison& losses = runs.losses;
  if (!losses.first_difference) return;
  const auto& [step, a, b] = *losses.first_difference;
  RowKey key;  // of both runs
  key.step = step;
  found.add(Severity::info,
            kLossesDiffer({{"step", ordinal(step)}, {"different", losses.common - losses.equal}, {"common", losses.common}}),
            {{key, {{"loss_a", a}, {"loss_b", b}, {"b_minus_a", b - a}}}});
}

}  // namespace

extern constinit const FindingRule compare_first_difference{
    .code = "compare.first_difference",
    .part = Part::compare,
    .raised = "Losses of common steps differ in any bit.",
    .is_about_run = false,
    .compare = find_first_difference,
};

}  // namespace ulpscope::findings
