#include <fmt/format.h>

#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/totals/compared_runs.h"

namespace ulpscope::findings {

namespace {

void find_seeds(const ComparedRuns& runs, Findings& found) {
  const uint64_t a = runs.a.trace().run().seed, b = runs.b.trace().run().seed;
  if (a != b) found.add(Severity::info, fmt::format("The seeds differ: {} and {}.", a, b));
}

}  // namespace

extern constinit const FindingRule compare_different_seeds{
    .code = "compare.different_seeds",
    .part = Part::compare,
    .raised = "The runs have different seeds.",
    .meaning = "Weights and batches differ.",
    .is_about_run = false,
    .compare = find_seeds,
};

}  // namespace ulpscope::findings
