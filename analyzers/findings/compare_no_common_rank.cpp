#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/totals/compared_runs.h"

namespace ulpscope::findings {

namespace {

constexpr Template kNoCommonRank{"compare.no_common_rank",
                                 "No loss was compared: no rank is in both runs (first: {ranks_a:commas}; second: "
                                 "{ranks_b:commas})."};

Value list_of_ranks(const ComparedRun& run) {
  Value::List ranks;
  for (const int32_t rank : run.trace().ranks()) ranks.push_back(ordinal(rank));
  return Value::list(std::move(ranks));
}

void find_no_common_rank(const ComparedRuns& runs, Findings& found) {
  if (runs.losses.has_common_rank) return;
  found.add(Severity::info, kNoCommonRank({{"ranks_a", list_of_ranks(runs.a)}, {"ranks_b", list_of_ranks(runs.b)}}));
}

}  // namespace

extern constinit const FindingRule compare_no_common_rank{
    .code = "compare.no_common_rank",
    .part = Part::compare,
    .raised = "No rank is in both runs, and one of them has several.",
    .meaning = "Losses are compared rank by rank, and none was. Totals of tensors are compared all the same.",
    .help = "Compare traces of the same ranks, or one trace of each run.",
    .is_about_run = false,
    .compare = find_no_common_rank,
};

}  // namespace ulpscope::findings
