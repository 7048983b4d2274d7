#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/totals/compared_runs.h"

namespace ulpscope::findings {

namespace {

constexpr Template kLossesEqual{"compare.losses_equal", "The losses of {steps:count common step} are bit-equal."};

void find_equal_losses(const ComparedRuns& runs, Findings& found) {
  const LossComparison& losses = runs.losses;
  if (losses.first_difference || losses.common == 0) return;
  found.add(Severity::info, kLossesEqual({{"steps", losses.common}}));
}

}  // namespace

extern constinit const FindingRule compare_losses_equal{
    .code = "compare.losses_equal",
    .part = Part::compare,
    .raised = "The losses of all common steps are equal, bit for bit.",
    .is_about_run = false,
    .compare = find_equal_losses,
};

}  // namespace ulpscope::findings
