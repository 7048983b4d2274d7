#include <utility>

#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/judgements/loss_judgement.h"
#include "ulpscope/analyzers/totals/compared_runs.h"

namespace ulpscope::findings {

namespace {

constexpr Template kLossesNonfinite{"compare.loss_nonfinite", "The loss was NaN or Inf in {runs}."};
constexpr Template kOfFirstRun{"compare.loss_nonfinite.first_run",
                               "{nonfinite} of {steps:count step} (first: step {first_step}) of the first run"};
constexpr Template kOfSecondRun{"compare.loss_nonfinite.second_run",
                                "{nonfinite} of {steps:count step} (first: step {first_step}) of the second run"};

void find_nonfinite_losses(const ComparedRuns& runs, Findings& found) {
  const uint64_t a = runs.a.steps.nonfinite_losses.size(), b = runs.b.steps.nonfinite_losses.size();
  if (a == 0 && b == 0) return;
  Value::List told;
  for (const auto& [run, form] : {std::pair(&runs.a, &kOfFirstRun), {&runs.b, &kOfSecondRun}}) {
    const StepSet& nonfinite = run->steps.nonfinite_losses;
    if (!nonfinite.empty())
      told.push_back(
          (*form)({{"nonfinite", nonfinite.size()}, {"steps", run->steps.count}, {"first_step", ordinal(nonfinite.first())}}));
  }
  // The second run is what `ulpscope report` says that it is, whatever the first did.
  found.add(b > 0 ? harm_of_nonfinite_losses(runs.b.steps, runs.b.broke) : Severity::info,
            kLossesNonfinite({{"runs", Value::list(std::move(told))}}));
}

}  // namespace

extern constinit const FindingRule compare_loss_nonfinite{
    .code = "compare.loss_nonfinite",
    .part = Part::compare,
    .raised = "The loss of a run was NaN or Inf.",
    .meaning = "Means of losses are not compared.",
    .help = "Read the report of that run.",
    .picture = Picture::nonfinite_flow,
    .compare = find_nonfinite_losses,
};

}  // namespace ulpscope::findings
