#include "ulpscope/analyzers/verbs/scale.h"

#include "ulpscope/analyzers/findings/all.h"
#include "ulpscope/analyzers/findings/verdict.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/tables/scale_tables.h"

namespace ulpscope {

namespace {

constexpr Template kScaleCostsNothing{"verdict.scale_costs_nothing", "No problem with the loss scale was found."};

}  // namespace

Report analyze_scale(const Snapshot& trace, const ScaleOptions& options) { return ScaleAnalysis(options).report(trace); }

Report ScaleAnalysis::report(const Snapshot& trace) {
  Report report;
  report.analysis = "scale";
  report.title = "Loss scale";
  report.sources.push_back(source_of(trace));
  report.complete = run_.update(trace);
  find_all(kPartsOnRun, run_.whole().facts(), report);
  add_verdict_on(Matter::of(Part::scale, kScaleCostsNothing()), trace, report);
  const RunFacts& facts = run_.asked().facts();
  ScaleTables(facts.context, facts.steps(), facts.scale(), run_.asked().fitting()).add_to(report);
  return report;
}

}  // namespace ulpscope
