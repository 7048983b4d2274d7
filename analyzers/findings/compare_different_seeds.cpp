#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/totals/compared_runs.h"

namespace ulpscope::findings {

namespace {

constexpr Template kComparedSeedsDiffer{"compare.different_seeds", "The seeds differ: {seed_a} and {seed_b}."};

// A name, since it may have all of 64 bits.
Name seed(uint64_t number) { return {NameKind::value, std::to_string(number)}; }

void find_seeds(const ComparedRuns& runs, Findings& found) {
  const uint64_t a = runs.a.trace().run().seed, b = runs.b.trace().run().seed;
  if (a != b) found.add(Severity::info, kComparedSeedsDiffer({{"seed_a", seed(a)}, {"seed_b", seed(b)}}));
}

}  // namespace

extern constinit const FindingRule compare_different_seeds{
    .code = "compare.different_seeds",
    .part = Part::compare,
    .raised = "The runs have different seeds.",
    .meaning = "Initial weights and batches differ, so losses are not judged.",
    .is_about_run = false,
    .compare = find_seeds,
};

}  // namespace ulpscope::findings
