#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/totals/compared_runs.h"

namespace ulpscope::findings {

namespace {

constexpr Template kOtherMachines{"compare.different_machines",
                                  "The machines or their threads differ, and with accumulate = fp32 bits of products depend on "
                                  "both: '{machine_a}' and '{machine_b}'."};

void find_machines(const ComparedRuns& runs, Findings& found) {
  const Name a{NameKind::machine, runs.a.trace().run().machine}, b{NameKind::machine, runs.b.trace().run().machine};
  if (a == b) return;
  found.add(Severity::info, kOtherMachines({{"machine_a", a}, {"machine_b", b}}));
}

}  // namespace

extern constinit const FindingRule compare_different_machines{
    .code = "compare.different_machines",
    .part = Part::compare,
    .raised = "The runs come from different machines or thread counts.",
    .meaning = "Times are not comparable.",
    .is_about_run = false,
    .compare = find_machines,
};

}  // namespace ulpscope::findings
