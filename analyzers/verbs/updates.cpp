#include "ulpscope/analyzers/verbs/updates.h"

#include "ulpscope/analyzers/findings/all.h"
#include "ulpscope/analyzers/findings/verdict.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/update_judgement.h"
#include "ulpscope/analyzers/tables/update_tables.h"

namespace ulpscope {

namespace {

constexpr Template kNoLossOfUpdates{"verdict.no_loss_of_updates", "No harmful loss of updates or weight decay was found."};
constexpr Template kNoUpdateBeforeBreak{"verdict.no_update_before_break", "No update was recorded before the run broke."};
constexpr Template kNoUpdateInAsked{"verdict.no_update_in_asked", "No update was recorded in the selection."};

}  // namespace

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
  const Template& nothing_found = any ? kNoLossOfUpdates : facts.broke() ? kNoUpdateBeforeBreak : kNoUpdateInAsked;
  add_verdict_on(Matter::of(Part::updates, nothing_found()), trace, report);
  UpdateTables(facts, run_.asked().update_history()).add_to(report);
  return report;
}

}  // namespace ulpscope
