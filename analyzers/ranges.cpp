#include "ulpscope/analyzers/ranges.h"

#include <fmt/format.h>

#include "ulpscope/analyzers/findings/all.h"
#include "ulpscope/analyzers/run_facts.h"
#include "ulpscope/analyzers/verdict.h"

namespace ulpscope {

Report analyze_ranges(const Snapshot& reader, const RangeOptions& options) { return RangeAnalysis(options).report(reader); }

Report RangeAnalysis::report(const Snapshot& reader) {
  Report report;
  report.analysis = "ranges";
  report.title = fmt::format("Ranges by {}", name_of(options_.by));
  report.sources.push_back(source_of(reader));
  report.complete = seen_.update(reader);
  const AnalysisContext& context = seen_.context();
  const FittingScales fitting = seen_.analysis().get<FittingScale>().result();
  const RangeFacts& seen = seen_.analysis().get<RangeFacts>();
  const RunFacts facts(context, seen_.steps(), {.ranges = &seen, .fitting = &fitting});
  find_all({Part::ranges}, facts, report);
  add_verdict(context.trace, report, "no range of values was found that costs accuracy.");
  RangeTables(context, options_, seen, facts.ranges()).add_to(report);
  return report;
}

}  // namespace ulpscope
