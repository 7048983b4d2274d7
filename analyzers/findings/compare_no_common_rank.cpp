#include <fmt/format.h>

#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/totals/compared_runs.h"

namespace ulpscope::findings {

namespace {

void find_no_common_rank(const ComparedRuns& runs, Findings& found) {
  if (runs.losses.has_common_rank) return;
  found.add(Severity::info,
            fmt::format("The first run has ranks {}, the second {}: none is in both, and no loss was compared with another.",
                        fmt::join(runs.a.trace().ranks(), ", "), fmt::join(runs.b.trace().ranks(), ", ")));
}

}  // namespace

extern constinit const FindingRule compare_no_common_rank{
    .code = "compare.no_common_rank",
    .part = Part::compare,
    .raised = "No rank is in both runs, and one of them has several.",
    .meaning = "Losses are compared step by step for each rank that both have; what tensors add up to is compared all the same.",
    .help = "Name traces of the same ranks, or one of each run.",
    .is_about_run = false,
    .compare = find_no_common_rank,
};

}  // namespace ulpscope::findings
