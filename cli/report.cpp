#include "ulpscope/analyzers/all_findings.h"
#include "ulpscope/cli/analyze.h"
#include "ulpscope/cli/report_options.h"
#include "ulpscope/cli/verbs.h"

namespace ulpscope::cli {

namespace {

int run(const Arguments& arguments) {
  ReportOptions options;
  static_cast<AnalysisOptions&>(options) = analysis_options(arguments);
  options.only = arguments.list("--only");
  return run_analysis<ReportAnalysis>(arguments, options);
}

}  // namespace

Verb report_verb() {
  return {"report",
          "what went wrong in a run, where and when, and what to do about it",
          "One verdict first, then its causes; what came of a cause is folded under it.",
          traces_positional(),
          join({follow_option(),
                {{"--only", "", "PARTS", "parts of the report", "all", report_parts(), true}},
                selection_options(),
                output_options()}),
          {{"ulpscope report run.h5", "what happened in this run"},
           {"ulpscope report run.h5 --follow", "beside a run that goes on: a line whenever that changes"},
           {"ulpscope report run.h5 --fail-on warning", "for CI: exit code 1 where there is a warning or an error"},
           {"ulpscope report run.h5 --only ranges,scale --format json -o report.json", "two parts, for programs"}},
          run};
}

}  // namespace ulpscope::cli
