// What the verbs share that answer with an analysis of traces.
#pragma once

#include <functional>
#include <memory>

#include "ulpscope/analyzers/subject/analysis.h"
#include "ulpscope/cli/verb.h"

namespace ulpscope::cli {

// TRACE..., and --follow.
std::vector<PositionalSpec> traces_positional();
std::vector<OptionSpec> follow_option();

// Of a trace each time it is asked, which may have grown.
using Analyze = std::function<Report(const Snapshot&)>;

// Prints the report of each trace, or with --follow, of the only one, a line whenever its verdict or a cause changes, until its
// writer ends; of what gives no verdict, the whole report then. `make` gives an analysis that has seen nothing. The exit code:
// kFindings where --fail-on is met by some report, with
// --follow by the last one.
int run_analysis(const Arguments& arguments, const AnalysisOptions& options, const std::function<Analyze()>& make);

// By the class of an analysis: ReportAnalysis, RangeAnalysis, ScaleAnalysis, UpdateAnalysis.
template <typename Analysis, typename Options>
int run_analysis(const Arguments& arguments, const Options& options) {
  return run_analysis(arguments, options, [&]() -> Analyze {
    return [analysis = std::make_shared<Analysis>(options)](const Snapshot& trace) { return analysis->report(trace); };
  });
}

}  // namespace ulpscope::cli
