#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <set>
#include <string>

#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/totals/compared_runs.h"
#include "ulpscope/base/text.h"

namespace ulpscope::findings {

namespace {

// Of each product; parts and ranks of a run may have taken several.
std::map<std::string, std::set<std::string>> algorithms_of(const ComparedRun& run) {
  std::map<std::string, std::set<std::string>> algorithms;
  for (const ProductInfo& product : run.trace().products()) algorithms[product.product].insert(product.algorithm);
  return algorithms;
}

// The library's numbers mean something to one version of it, on one GPU.
void find_algorithms(const ComparedRuns& runs, Findings& found) {
  if (runs.a.trace().run().machine != runs.b.trace().run().machine) return;
  const auto of_a = algorithms_of(runs.a), of_b = algorithms_of(runs.b);
  uint64_t common = 0, differ = 0;
  std::string first;
  for (const auto& [product, a] : of_a) {
    const auto b = of_b.find(product);
    if (b == of_b.end()) continue;
    ++common;
    if (a == b->second) continue;
    if (differ++ == 0)
      first = fmt::format("'{}' by '{}' and '{}'", one_line(product), one_line(fmt::format("{}", fmt::join(a, " or "))),
                          one_line(fmt::format("{}", fmt::join(b->second, " or "))));
  }
  if (differ == 0) return;
  found.add(Severity::info,
            fmt::format("The device's library took other algorithms for {} of {} products that both runs have, among them {}.",
                        differ, common, first));
}

}  // namespace

extern constinit const FindingRule compare_different_algorithms{
    .code = "compare.different_algorithms",
    .part = Part::compare,
    .raised =
        "On equal machines the library that multiplies on the device took another algorithm in one run than in the other for the "
        "same "
        "product.",
    .meaning = "Sums of these products may have other bits, whatever else is equal.",
    .is_about_run = false,
    .compare = find_algorithms,
};

}  // namespace ulpscope::findings
