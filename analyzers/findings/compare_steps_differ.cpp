#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/totals/compared_runs.h"

namespace ulpscope::findings {

namespace {

constexpr Template kOtherSteps{"compare.steps_differ",
                               "The runs have {steps_a} and {steps_b:count step}; losses are compared over common steps."};

void find_other_steps(const ComparedRuns& runs, Findings& found) {
  const uint64_t a = runs.a.steps.count, b = runs.b.steps.count;
  if (a == b) return;
  found.add(Severity::info, kOtherSteps({{"steps_a", a}, {"steps_b", b}}));
}

}  // namespace

extern constinit const FindingRule compare_steps_differ{
    .code = "compare.steps_differ",
    .part = Part::compare,
    .raised = "The runs have different numbers of steps.",
    .meaning = "Losses are compared over common steps; the table side by side is of all steps of each run.",
    .is_about_run = false,
    .compare = find_other_steps,
};

}  // namespace ulpscope::findings
