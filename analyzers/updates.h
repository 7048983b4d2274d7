// What became of the updates that the optimizers asked for. Input: the table `parameters`. Facts: how many updates were lost, how
// much of the weight decay arrived, and when learning stalls. Tables: the same of each parameter. Plot: the share that was lost
// over the steps. Definitions: docs/numerics.md. Findings: those of Part::updates.
#pragma once

#include "ulpscope/analyzers/followed.h"
#include "ulpscope/analyzers/followed_run.h"
#include "ulpscope/analyzers/update_history.h"

namespace ulpscope {

// Of a trace each time it is asked, which may have grown: reads only what is new.
class UpdateAnalysis {
 public:
  explicit UpdateAnalysis(const AnalysisOptions& options)
      : run_(options, kPartsOnRun), history_([] { return UpdateHistory(); }, options) {}
  UpdateAnalysis(const UpdateAnalysis&) = delete;
  Report report(const Snapshot& reader);

 private:
  FollowedRun run_;
  Followed<UpdateHistory> history_;
};
Report analyze_updates(const Snapshot& reader, const AnalysisOptions& options = {});

}  // namespace ulpscope
