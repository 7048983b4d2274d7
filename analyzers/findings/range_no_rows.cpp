#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/judgements/range_judgement.h"
#include "ulpscope/analyzers/judgements/run_facts.h"

namespace ulpscope::findings {

namespace {

constexpr Template kNoTensorRow{"range.no_rows", "No tensor row was recorded in what was asked for."};

void find_no_rows(const RunFacts& facts, Findings& found) {
  if (facts.ranges().tensors().empty()) found.add(Severity::info, kNoTensorRow());
}

}  // namespace

extern constinit const FindingRule range_no_rows{
    .code = "range.no_rows",
    .part = Part::ranges,
    .raised = "No tensor row was recorded in what was asked for.",
    .meaning = "Nothing can be said.",
    .is_about_run = false,
    .find = find_no_rows,
};

}  // namespace ulpscope::findings
