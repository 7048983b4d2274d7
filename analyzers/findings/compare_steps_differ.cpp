#include <fmt/format.h>

#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/totals/compared_runs.h"
#include "ulpscope/base/text.h"

namespace ulpscope::findings {

namespace {

void find_other_steps(const ComparedRuns& runs, Findings& found) {
  const uint64_t a = runs.a.steps.count, b = runs.b.steps.count;
  if (a == b) return;
  found.add(Severity::info, fmt::format("The runs have {} and {}; times and losses are of all of each.", a, count_of(b, "step")));
}

}  // namespace

extern constinit const FindingRule compare_steps_differ{
    .code = "compare.steps_differ",
    .part = Part::compare,
    .raised = "The runs have other steps.",
    .meaning = "The steps that both have are compared.",
    .is_about_run = false,
    .compare = find_other_steps,
};

}  // namespace ulpscope::findings
