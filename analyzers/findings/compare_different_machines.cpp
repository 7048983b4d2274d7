#include <fmt/format.h>

#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/totals/compared_runs.h"

namespace ulpscope::findings {

namespace {

void find_machines(const ComparedRuns& runs, Findings& found) {
  const std::string &a = runs.a.trace().run().machine, &b = runs.b.trace().run().machine;
  if (a == b) return;
  found.add(Severity::info,
            fmt::format(
                "The machines or their threads differ, and with accumulate = fp32 bits of products depend on both: '{}' and '{}'.",
                a, b));
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
