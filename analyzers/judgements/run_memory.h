// This is kept of a run that grows from one look at it to the next, so that findings read no row twice.
#pragma once

#include <memory>
#include <optional>

#include "ulpscope/analyzers/judgements/data_history.h"
#include "ulpscope/analyzers/judgements/leap.h"
#include "ulpscope/analyzers/judgements/nonfinite_flow.h"
#include "ulpscope/analyzers/judgements/step_history.h"

namespace ulpscope {

struct RunMemory {
  // Forgets what has numbers of tensors, where these are others now. `context`: of the same trace each time, which may have grown.
  void follow(const AnalysisContext& context);

  FollowedBeginnings beginnings;
  DataHistory data;
  StepHistory steps;
  // The first large update stays the first one, and so does what came before it.
  struct FirstLargeUpdate {
    UpdateRatio update;
    std::optional<Leap> leap;
  };
  std::optional<FirstLargeUpdate> first_large;

 private:
  std::shared_ptr<const void> tables_;  // of the contexts
};

}  // namespace ulpscope
