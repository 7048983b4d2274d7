// All that findings on one run are computed from, in one pass over its rows; it may have grown each time it is looked at.
#pragma once

#include <memory>
#include <vector>

#include "ulpscope/analyzers/analysis.h"
#include "ulpscope/analyzers/findings/finding_rule.h"

namespace ulpscope {

struct AnalysisContext;
class RunFacts;
class StepFacts;

class FollowedRun {
 public:
  // `parts`: those whose findings will be asked for. What only others need is not read.
  FollowedRun(const AnalysisOptions& options, std::vector<Part> parts);
  ~FollowedRun();

  // Takes in the steps that it has not seen: of the same trace each time, grown or not. False: cancelled.
  bool update(const Snapshot& trace);

  // Of the last update.
  const AnalysisContext& context() const;
  const StepFacts& steps() const;
  const RunFacts& facts() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ulpscope
