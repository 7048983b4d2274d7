// What the verbs share that answer with an analysis of traces.
#pragma once

#include <functional>

#include "ulpscope/analyzers/analysis.h"
#include "ulpscope/cli/verb.h"

namespace ulpscope::cli {

// TRACE..., and --follow.
std::vector<PositionalSpec> traces_positional();
std::vector<OptionSpec> follow_option();

// Of a trace each time it is asked, which may have grown.
using Analyze = std::function<Report(const Snapshot&)>;

// Prints the report of each trace, or with --follow, of the only one, a line whenever its verdict or a cause changes, until its
// writer ends. `make` gives an analysis that has seen nothing. The exit code: kFindings where --fail-on is met by some report, with
// --follow by the last one.
int run_analysis(const Arguments& arguments, const AnalysisOptions& options, const std::function<Analyze()>& make);

}  // namespace ulpscope::cli
