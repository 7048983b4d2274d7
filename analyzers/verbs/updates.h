// What became of the updates that the optimizers asked for. Facts: how many updates were lost, how much of the weight decay
// arrived, and when learning stalls. Tables: the same of each parameter. Plot: the share that was lost over the steps. Definitions:
// docs/numerics.md. Findings: those of Part::updates, and what they came of (verdict.h).
#pragma once

#include "ulpscope/analyzers/findings/followed_run.h"

namespace ulpscope {

// Of a trace each time it is asked, which may have grown: reads only what is new.
class UpdateAnalysis {
 public:
  explicit UpdateAnalysis(const AnalysisOptions& options) : run_(options, AskedBesides{.update_history = true}) {}
  // As JudgedRun has it; with the history of updates.
  explicit UpdateAnalysis(FollowedRun& run) : run_(run) {}
  UpdateAnalysis(const UpdateAnalysis&) = delete;
  Report report(const Snapshot& trace);

 private:
  JudgedRun run_;
};
Report analyze_updates(const Snapshot& trace, const AnalysisOptions& options = {});

}  // namespace ulpscope
