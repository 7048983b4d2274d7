#include "ulpscope/analyzers/findings/silence.h"

#include "ulpscope/analyzers/range_judgement.h"
#include "ulpscope/analyzers/run_analysis.h"
#include "ulpscope/analyzers/run_facts.h"

namespace ulpscope::findings {

Suspects silent_suspects(const RunFacts& facts, std::span<const uint32_t> tensors) {
  Suspects suspects(facts.selection);
  for (const uint32_t i : tensors) {
    const ZeroTail& zeros = facts.ranges().find(i)->judged.zeros;
    suspects.add(static_cast<double>(zeros.rows), i, {{"rows_of_zeros_to_the_end", count_cell(zeros.rows), Unit::count}},
                 RowPosition{*zeros.since, facts.context.trace.run().rank});
  }
  return suspects;
}

}  // namespace ulpscope::findings
