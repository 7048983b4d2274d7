#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/judgements/range_judgement.h"
#include "ulpscope/analyzers/judgements/run_facts.h"

namespace ulpscope::findings {

namespace {

constexpr Template kNoTensorRow{"range.no_rows", "No tensor was recorded in this selection."};

void find_no_rows(const RunFacts& facts, Findings& found) {
  if (facts.ranges().tensors().empty()) found.add(Severity::info, kNoTensorRow());
}

}  // namespace

extern constinit const FindingRule range_no_rows{
    .code = "range.no_rows",
    .part = Part::ranges,
    .raised = "The selection holds no recorded tensor.",
    .meaning = "Its value ranges are not known.",
    .help = "Select other steps or tensors, or record them.",
    .is_about_run = false,
    .find = find_no_rows,
};

}  // namespace ulpscope::findings
