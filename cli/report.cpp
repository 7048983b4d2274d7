#include <algorithm>

#include "ulpscope/analyzers/history/pictures.h"
#include "ulpscope/analyzers/verbs/all_findings.h"
#include "ulpscope/analyzers/verbs/what_if_report.h"
#include "ulpscope/cli/analyze.h"
#include "ulpscope/cli/report_options.h"
#include "ulpscope/cli/verbs.h"

namespace ulpscope::cli {

namespace {

int run_report(const Arguments& arguments) {
  ReportOptions options;
  static_cast<AnalysisOptions&>(options) = analysis_options(arguments);
  options.only = arguments.list("--only");
  const bool has_pictures = output_kind(arguments) == OutputKind::html;
  const auto asks_for = [&](const char* part) {
    return options.only.empty() || std::find(options.only.begin(), options.only.end(), part) != options.only.end();
  };
  const bool asks_for_scales = asks_for("ranges") || asks_for("scale");
  return run_analysis(arguments, options, [&]() -> Analyze {
    return [&options, has_pictures, asks_for_scales, analysis = std::make_shared<ReportAnalysis>(options)](const Snapshot& trace) {
      Report report = analysis->report(trace);
      if (!has_pictures) return report;
      add_pictures(trace, options, report);
      if (asks_for_scales) add_what_if(trace, options, report);
      return report;
    };
  });
}

}  // namespace

Verb report_verb() {
  return {"report",
          "what went wrong in a run, where and when, and what to do about it",
          "One verdict first, then its causes, each with its consequences folded under it. As HTML it is one file that needs no\n"
          "network, with pictures over the steps: the run's course, the tensors that lost most, their exponents, and what\n"
          "each loss scale would have taken of each tensor.",
          traces_positional(),
          join({follow_option(),
                {{"--only", "", "PARTS", "parts of the report", "all", report_parts(), true}},
                selection_options(),
                output_options()}),
          {{"ulpscope report run.h5", "what happened in this run"},
           {"ulpscope report run.h5 --follow", "beside a run that goes on: a line whenever that changes"},
           {"ulpscope report run.h5 --fail-on warning", "for CI: exit code 1 where the verdict is WARNING or BROKEN"},
           {"ulpscope report run.h5 --format html -o report.html", "with pictures, to look at in a browser and to pass on"},
           {"ulpscope report run.h5 --only ranges,scale --format json -o report.json", "two parts, for programs"}},
          run_report};
}

}  // namespace ulpscope::cli
