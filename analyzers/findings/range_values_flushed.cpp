#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/findings/flushed_values.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"

namespace ulpscope::findings {

namespace {

constexpr Template kValuesFlushed{
    "range.values_flushed",
    "{tensors:count tensor} other than gradients lost more than {limit:%} of the nonzero elements to zero when rounded."};

void find_flushed_values(const RunFacts& facts, Findings& found) {
  const Suspects flushed = flushed_values(facts, false);
  if (flushed.empty()) return;
  found.add_judged(Severity::info,
                   kValuesFlushed({{"tensors", flushed.size()}, {"limit", {facts.context.options.flushed_limit, Unit::share}}}),
                   flushed.worst(), {}, flushed.extent());
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
