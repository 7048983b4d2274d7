#include <fmt/format.h>

#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/totals/compared_runs.h"

namespace ulpscope::findings {

namespace {

void find_experiments(const ComparedRuns& runs, Findings& found) {
  const std::string &a = runs.a.trace().run().experiment_name, &b = runs.b.trace().run().experiment_name;
  if (a != b) found.add(Severity::warning, fmt::format("The traces are of different experiments: '{}' and '{}'.", a, b));
}

}  // namespace

extern constinit const FindingRule compare_different_experiments{
    .code = "compare.different_experiments",
    .part = Part::compare,
    .raised = "The runs are of different experiments.",
    .meaning = "What differs may come from that.",
    .is_about_run = false,
    .compare = find_experiments,
};

}  // namespace ulpscope::findings
