// Everything that the analyzers of one trace conclude, by severity, in one pass over its rows: `ulpscope report`.
#pragma once

#include "ulpscope/analyzers/analysis.h"

namespace ulpscope {

// The analyses that a report is made of.
const std::vector<std::string>& report_parts();

struct ReportOptions : AnalysisOptions {
  std::vector<std::string> only;  // some of report_parts(); empty: all
};

Report analyze_all(const Snapshot& reader, const ReportOptions& options = {});

}  // namespace ulpscope
