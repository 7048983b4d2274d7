#include "ulpscope/analyzers/updates.h"

#include "ulpscope/analyzers/findings/all.h"
#include "ulpscope/analyzers/run_facts.h"
#include "ulpscope/analyzers/update_judgement.h"
#include "ulpscope/analyzers/update_tables.h"
#include "ulpscope/analyzers/verdict.h"

namespace ulpscope {

Report analyze_updates(const Snapshot& reader, const AnalysisOptions& options) { return UpdateAnalysis(options).report(reader); }

Report UpdateAnalysis::report(const Snapshot& reader) {
  Report report;
  report.analysis = "updates";
  report.title = "Updates";
  report.sources.push_back(source_of(reader));
  report.complete = seen_.update(reader);
  const AnalysisContext& context = seen_.context();
  const RunFacts facts(context, seen_.steps(), {.updates = &seen_.analysis().get<UpdateFacts>()});
  find_all({Part::updates}, facts, report);
  const bool any = !facts.updates().weights().empty();
  add_verdict(
      context.trace, report,
      any ? "no loss of updates or weight decay was found that costs accuracy." : "no update was recorded in what was asked for.");
  UpdateTables(facts, seen_.analysis().get<UpdateHistory>()).add_to(report);
  return report;
}

}  // namespace ulpscope
