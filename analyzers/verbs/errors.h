// The errors that ops made by themselves, where they were computed again in a wider type: of each output the error of its op, over
// its norm and over what one rounding costs, the largest first, and the same by op. Findings: those of Part::errors, and what they
// came of (verdict.h).
#pragma once

#include "ulpscope/analyzers/findings/followed_run.h"

namespace ulpscope {

// Reads a trace, which may have grown, each time it is asked.
class ErrorAnalysis {
 public:
  explicit ErrorAnalysis(const AnalysisOptions& options) : run_(options) {}
  explicit ErrorAnalysis(FollowedRun& run) : run_(run) {}
  ErrorAnalysis(const ErrorAnalysis&) = delete;
  Report report(const Snapshot& trace);

 private:
  JudgedRun run_;
};
Report analyze_errors(const Snapshot& trace, const AnalysisOptions& options = {});

}  // namespace ulpscope
