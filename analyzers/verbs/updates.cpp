#include "ulpscope/analyzers/verbs/updates.h"

#include "ulpscope/analyzers/findings/all.h"
#include "ulpscope/analyzers/findings/verdict.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/update_judgement.h"
#include "ulpscope/analyzers/tables/update_tables.h"

namespace ulpscope {

namespace {

constexpr Template kNoMatterOfUpdates{"verdict.no_matter_of_updates", "But that is no matter of updates: {healthy}"};
constexpr Template kOfUpdates{"verdict.of_updates", "Of updates: {said}"};
constexpr Template kNoLossOfUpdates{"verdict.no_loss_of_updates",
                                    "no loss of updates or weight decay was found that costs accuracy."};
constexpr Template kNoUpdateBeforeBreak{"verdict.no_update_before_break", "no update was recorded before the run broke."};
constexpr Template kNoUpdateInAsked{"verdict.no_update_in_asked", "no update was recorded in what was asked for."};

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
  const Template& healthy = any ? kNoLossOfUpdates : facts.broke() ? kNoUpdateBeforeBreak : kNoUpdateInAsked;
  add_verdict_on(Matter::of(Part::updates, healthy(), kNoMatterOfUpdates, kOfUpdates), trace, report);
  UpdateTables(facts, run_.asked().update_history()).add_to(report);
  return report;
}

}  // namespace ulpscope
