#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/judgements/loss_judgement.h"
#include "ulpscope/analyzers/totals/compared_runs.h"

namespace ulpscope::findings {

namespace {

constexpr Template kLossesNonfinite{"compare.loss_nonfinite",
                                    "The loss was NaN or infinity in {steps_a:count step} of the first run and {steps_b} of the "
                                    "second."};

void find_nonfinite_losses(const ComparedRuns& runs, Findings& found) {
  const uint64_t a = runs.a.steps.nonfinite_losses.size(), b = runs.b.steps.nonfinite_losses.size();
  if (a == 0 && b == 0) return;
  // The second run is what `ulpscope report` says that it is, whatever the first did.
  found.add(b > 0 ? harm_of_nonfinite_losses(runs.b.steps, runs.b.broke) : Severity::info,
            kLossesNonfinite({{"steps_a", a}, {"steps_b", b}}));
}

}  // namespace

extern constinit const FindingRule compare_loss_nonfinite{
    .code = "compare.loss_nonfinite",
    .part = Part::compare,
    .raised = "A run's loss was NaN or infinite.",
    .meaning = "The two cannot be compared from there on.",
    .help = "`ulpscope report` of that trace.",
    .picture = Picture::nonfinite_flow,
    .compare = find_nonfinite_losses,
};

}  // namespace ulpscope::findings
