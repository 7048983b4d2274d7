#include "ulpscope/analyzers/findings/norm_text.h"

#include <algorithm>
#include <utility>

#include "ulpscope/analyzers/judgements/range_judgement.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"

namespace ulpscope::findings {

namespace {

constexpr Template kMostOfNorm{"norm.most", "and up to {norm} of its norm"};
constexpr Template kLittleOfNorm{"norm.little", "but at most {norm:%} of its norm"};
constexpr Template kMostlyLittleOfNorm{"norm.mostly_little", "but at most {norm:%} of its norm in 9 of 10 rows or more"};
constexpr Template kEachLost{"norm.each_lost",
                             "{tensors:either It|Each} lost more than {limit:%} of its nonzero elements, {norm}."};

}  // namespace

Sentence most_of_norm(const RunFacts& facts, std::span<const uint32_t> tensors) {
  double most = 0;
  for (const uint32_t i : tensors) most = std::max(most, facts.ranges().find(i)->judged.scaled.flush_loss.most_norm);
  return kMostOfNorm({{"norm", {most, Unit::share}}});
}

Sentence little_of_norm(const RunFacts& facts, std::span<const uint32_t> tensors) {
  double part = 0;
  bool in_all_rows = true;
  for (const uint32_t i : tensors) {
    part = std::max(part, felt_part(*info(facts.selection.tensor(i).dtype).format));
    in_all_rows = in_all_rows && facts.ranges().find(i)->judged.scaled.flush_loss.felt == 0;
  }
  return (in_all_rows ? kLittleOfNorm : kMostlyLittleOfNorm)({{"norm", {part, Unit::share}}});
}

Sentence each_lost(size_t tensors, double limit, Sentence norm) {
  return kEachLost({{"tensors", tensors}, {"limit", {limit, Unit::share}}, {"norm", std::move(norm)}});
}

}  // namespace ulpscope::findings
