#include "ulpscope/analyzers/ranges.h"

#include <fmt/format.h>

#include "ulpscope/analyzers/findings/all.h"
#include "ulpscope/analyzers/run_facts.h"
#include "ulpscope/analyzers/verdict.h"

namespace ulpscope {

Report analyze_ranges(const Snapshot& trace, const RangeOptions& options) { return RangeAnalysis(options).report(trace); }

Report RangeAnalysis::report(const Snapshot& trace) {
  Report report;
  report.analysis = "ranges";
  report.title = fmt::format("Ranges by {}", name_of(options_.by));
  report.sources.push_back(source_of(trace));
  report.complete = run_.update(trace);
  const RunFacts& facts = run_.facts();
  find_all(kPartsOnRun, facts, report);
  add_verdict_on(Matter::of(Part::ranges, "ranges", "no range of values was found that costs accuracy."), trace, report);
  RangeTables(facts.context, options_, run_.range_facts(), facts.ranges()).add_to(report);
  return report;
}

}  // namespace ulpscope
