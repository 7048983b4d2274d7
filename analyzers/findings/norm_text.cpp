#include "ulpscope/analyzers/findings/norm_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "ulpscope/analyzers/judgements/range_judgement.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/report/text.h"
#include "ulpscope/analyzers/subject/run_analysis.h"

namespace ulpscope::findings {

std::string most_of_norm(const RunFacts& facts, std::span<const uint32_t> tensors) {
  double most = 0;
  for (const uint32_t i : tensors) most = std::max(most, facts.ranges().find(i)->judged.scaled.flush_loss.most_norm);
  return fmt::format("up to {} of the norm", cell_text(most, Unit::share));
}

std::string little_of_norm(const RunFacts& facts, std::span<const uint32_t> tensors) {
  double part = 0;
  bool in_all_rows = true;
  for (const uint32_t i : tensors) {
    part = std::max(part, felt_part(*info(facts.selection.tensor(i).dtype).format));
    in_all_rows = in_all_rows && facts.ranges().find(i)->judged.scaled.flush_loss.felt == 0;
  }
  return fmt::format("{}these were at most {:g}% of the norm", in_all_rows ? "" : "in nine of ten rows or more ", 100 * part);
}

}  // namespace ulpscope::findings
