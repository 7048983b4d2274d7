// Everything that the analyzers of one trace conclude, by severity, in one pass over its rows: `ulpscope report`.
#pragma once

#include <memory>

#include "ulpscope/analyzers/subject/analysis.h"

namespace ulpscope {

class FollowedRun;

// The analyses that a report is made of.
const std::vector<std::string>& report_parts();

struct ReportOptions : AnalysisOptions {
  std::vector<std::string> only;  // some of report_parts(); empty: all
};

// Of a trace each time it is asked, which may have grown: reads only what is new.
class ReportAnalysis {
 public:
  explicit ReportAnalysis(ReportOptions options);
  // Of what others follow too, which outlives it: with kReportParts, and the same options.
  ReportAnalysis(ReportOptions options, FollowedRun& run);
  ~ReportAnalysis();
  Report report(const Snapshot& reader);

 private:
  struct State;
  std::unique_ptr<State> state_;
};
Report analyze_all(const Snapshot& reader, const ReportOptions& options = {});

}  // namespace ulpscope
