#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/totals/compared_runs.h"

namespace ulpscope::findings {

namespace {

constexpr Template kOtherExperiments{"compare.different_experiments",
                                     "The experiments differ: '{experiment_a}' and '{experiment_b}'."};

void find_experiments(const ComparedRuns& runs, Findings& found) {
  const Name a{NameKind::experiment, runs.a.trace().run().experiment_name};
  const Name b{NameKind::experiment, runs.b.trace().run().experiment_name};
  if (a == b) return;
  found.add(Severity::warning, kOtherExperiments({{"experiment_a", a}, {"experiment_b", b}}));
}

}  // namespace

extern constinit const FindingRule compare_different_experiments{
    .code = "compare.different_experiments",
    .part = Part::compare,
    .raised = "The runs are of different experiments.",
    .meaning = "Any difference may come from that.",
    .is_about_run = false,
    .compare = find_experiments,
};

}  // namespace ulpscope::findings
