#include <map>
#include <set>
#include <string>

#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/totals/compared_runs.h"
#include "ulpscope/base/text.h"

namespace ulpscope::findings {

namespace {

constexpr Template kOtherAlgorithms{"compare.different_algorithms",
                                    "The device's library used different algorithms for {other} of {products} matrix products that "
                                    "both runs have."};
constexpr Template kFirstOtherAlgorithm{"compare.different_algorithms.first",
                                        "First '{product}': '{algorithms_a}' in the first run, '{algorithms_b}' in the second."};
constexpr Template kOrAlgorithms{"product.or_algorithms", "{algorithm} or {others}"};

// Of each product; parts and ranks of a run may have taken several.
std::map<std::string, std::set<std::string>> algorithms_of(const ComparedRun& run) {
  std::map<std::string, std::set<std::string>> algorithms;
  for (const ProductInfo& product : run.trace().products()) algorithms[product.product].insert(product.algorithm);
  return algorithms;
}

// Phrases, where there are several.
Value taken_algorithms(const std::set<std::string>& algorithms) {
  Value taken;
  for (auto each = algorithms.rbegin(); each != algorithms.rend(); ++each) {
    const Name algorithm{NameKind::algorithm, one_line(*each)};
    taken = taken.empty() ? Value(algorithm) : Value(kOrAlgorithms({{"algorithm", algorithm}, {"others", taken}}));
  }
  return taken;
}

// The library's numbers mean something to one version of it, on one GPU.
void find_algorithms(const ComparedRuns& runs, Findings& found) {
  if (runs.a.trace().run().machine != runs.b.trace().run().machine) return;
  const auto of_a = algorithms_of(runs.a), of_b = algorithms_of(runs.b);
  uint64_t common = 0, differ = 0;
  Name told{NameKind::product, ""};
  Value by_a, by_b;
  for (const auto& [product, a] : of_a) {
    const auto b = of_b.find(product);
    if (b == of_b.end()) continue;
    ++common;
    if (a == b->second || differ++ > 0) continue;
    told.text = one_line(product);
    by_a = taken_algorithms(a);
    by_b = taken_algorithms(b->second);
  }
  if (differ == 0) return;
  found.add(Severity::info, {kOtherAlgorithms({{"other", differ}, {"products", common}}),
                             kFirstOtherAlgorithm({{"product", told}, {"algorithms_a", by_a}, {"algorithms_b", by_b}})});
}

}  // namespace

extern constinit const FindingRule compare_different_algorithms{
    .code = "compare.different_algorithms",
    .part = Part::compare,
    .raised = "On equal machines the device's library used different algorithms for the same matrix product in the two runs.",
    .meaning = "Sums of these products may differ in their last bits, whatever else is equal.",
    .is_about_run = false,
    .compare = find_algorithms,
};

}  // namespace ulpscope::findings
