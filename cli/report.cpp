#include "ulpscope/analyzers/all_findings.h"
#include "ulpscope/cli/report_options.h"
#include "ulpscope/cli/trace_path.h"
#include "ulpscope/cli/verbs.h"

namespace ulpscope::cli {

namespace {

int run(const Arguments& arguments) {
  ReportOptions options;
  static_cast<AnalysisOptions&>(options) = analysis_options(arguments);
  options.only = arguments.list("--only");
  const Snapshot reader = open_trace(arguments.positional(0));
  check_asked_for({&reader}, options);
  return finish(analyze_all(reader, options), arguments);
}

}  // namespace

Verb report_verb() {
  return {
      "report",
      "everything that was found, by severity, with evidence and what to do about it",
      "",
      {{"TRACE", "a trace file, or a folder of a run's trace and of those resumed from it"}},
      join({{{"--only", "", "PARTS", "parts of the report", "all", report_parts(), true}}, selection_options(), output_options()}),
      {{"ulpscope report run.h5", "what happened in this run"},
       {"ulpscope report run.h5 --fail-on warn", "for CI: exit code 1 where there is a warning or an error"},
       {"ulpscope report run.h5 --only ranges,scale --format json -o report.json", "two parts, for programs"}},
      run};
}

}  // namespace ulpscope::cli
