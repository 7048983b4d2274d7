#include <fmt/format.h>

#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/findings/flushed_values.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/base/text.h"

namespace ulpscope::findings {

namespace {

void find_flushed_values(const RunFacts& facts, Findings& found) {
  const Suspects flushed = flushed_values(facts, false);
  if (flushed.empty()) return;
  found.add_judged(Severity::info,
                   fmt::format("{} other than gradients lost more than {:g}% of the nonzero elements to zero when rounded.",
                               count_of(flushed.size(), "tensor"), 100 * facts.context.options.flushed_limit),
                   flushed.worst(), "", flushed.extent());
}

}  // namespace

extern constinit const FindingRule range_values_flushed{
    .code = "range.values_flushed",
    .part = Part::ranges,
    .raised = "A value other than a gradient lost a share of its nonzero elements to zero.",
    .meaning = "Small activations and weights are often no loss.",
    .picture = Picture::flushed,
    .shown_by = "experiments/failures/subnormals_flushed.toml",
    .find = find_flushed_values,
};

}  // namespace ulpscope::findings
