#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/judgements/range_judgement.h"
#include "ulpscope/analyzers/judgements/run_facts.h"

namespace ulpscope::findings {

namespace {

constexpr Template kRoundingUnknown{"range.rounding_unknown",
                                    "The backend did not count {unknown} of {roundings} roundings: their underflow and overflow "
                                    "are not known."};

void find_unknown_roundings(const RunFacts& facts, Findings& found) {
  uint64_t unseen = 0, narrow = 0;
  for (const auto& [unused, judged, broken] : facts.ranges().tensors()) {
    unseen += judged.totals.rows_unseen;
    narrow += judged.totals.rows_unseen + judged.totals.rows_seen;
  }
  if (unseen == 0) return;
  found.add_judged(Severity::info, kRoundingUnknown({{"unknown", unseen}, {"roundings", narrow}}));
}

}  // namespace

extern constinit const FindingRule range_rounding_unknown{
    .code = "range.rounding_unknown",
    .part = Part::ranges,
    .raised = "A backend rounded tensors to a narrower format without counting underflow and overflow.",
    .meaning = "These roundings are not checked.",
    .is_about_run = false,
    .find = find_unknown_roundings,
};

}  // namespace ulpscope::findings
