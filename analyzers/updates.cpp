#include "ulpscope/analyzers/updates.h"

#include "ulpscope/analyzers/findings/all.h"
#include "ulpscope/analyzers/run_facts.h"
#include "ulpscope/analyzers/update_judgement.h"
#include "ulpscope/analyzers/update_tables.h"
#include "ulpscope/analyzers/verdict.h"

namespace ulpscope {

Report analyze_updates(const Snapshot& trace, const AnalysisOptions& options) { return UpdateAnalysis(options).report(trace); }

Report UpdateAnalysis::report(const Snapshot& trace) {
  Report report;
  report.analysis = "updates";
  report.title = "Updates";
  report.sources.push_back(source_of(trace));
  report.complete = run_.update(trace);
  find_all(kPartsOnRun, run_.whole().facts(), report);
  const RunFacts& facts = run_.asked().facts();
  const bool any = !facts.updates().weights().empty();
  add_verdict_on(Matter::of(Part::updates, "updates",
                            any             ? "no loss of updates or weight decay was found that costs accuracy."
                            : facts.broke() ? "no update was recorded before the run broke."
                                            : "no update was recorded in what was asked for."),
                 trace, report);
  UpdateTables(facts, run_.asked().update_history()).add_to(report);
  return report;
}

}  // namespace ulpscope
