#include "ulpscope/analyzers/scale.h"

#include "ulpscope/analyzers/findings/all.h"
#include "ulpscope/analyzers/run_facts.h"
#include "ulpscope/analyzers/scale_tables.h"
#include "ulpscope/analyzers/verdict.h"

namespace ulpscope {

Report analyze_scale(const Snapshot& reader, const ScaleOptions& options) { return ScaleAnalysis(options).report(reader); }

Report ScaleAnalysis::report(const Snapshot& reader) {
  Report report;
  report.analysis = "scale";
  report.title = "Loss scale";
  report.sources.push_back(source_of(reader));
  report.complete = seen_.update(reader);
  const AnalysisContext& context = seen_.context();
  const FittingScales fitting = seen_.analysis().get<FittingScale>().result();
  const RunFacts facts(context, seen_.steps(), {.fitting = &fitting, .scale = &seen_.analysis().get<ScaleFacts>()});
  find_all({Part::scale}, facts, report);
  add_verdict(context.trace, report, "the loss scale was found to cost neither accuracy nor steps.");
  ScaleTables(context, facts.steps(), facts.scale(), fitting).add_to(report);
  return report;
}

}  // namespace ulpscope
