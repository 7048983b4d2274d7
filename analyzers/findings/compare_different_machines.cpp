#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/totals/compared_runs.h"

namespace ulpscope::findings {

namespace {

constexpr Template kOtherMachines{"compare.different_machines",
                                  "The machines or thread counts differ: '{machine_a}' and '{machine_b}'."};
constexpr Template kSumsDiffer{"compare.different_machines.sums",
                               "Times are not comparable, and sums in FP32 may differ in their last bits."};

void find_machines(const ComparedRuns& runs, Findings& found) {
  const Name a{NameKind::machine, runs.a.trace().run().machine}, b{NameKind::machine, runs.b.trace().run().machine};
  if (a == b) return;
  found.add(Severity::info, {kOtherMachines({{"machine_a", a}, {"machine_b", b}}), kSumsDiffer()});
}

}  // namespace

extern constinit const FindingRule compare_different_machines{
    .code = "compare.different_machines",
    .part = Part::compare,
    .raised = "The runs come from different machines or thread counts.",
    .meaning = "Times are not comparable, and sums in FP32 may differ in their last bits.",
    .is_about_run = false,
    .compare = find_machines,
};

}  // namespace ulpscope::findings
