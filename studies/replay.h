// What came of running the steps of a capsule again, as a report. Facts: the steps, whether they are bit-equal, where they part,
// what was not finite first. Table: steps (loss and loss scale beside the original's).
#pragma once

#include <optional>

#include "ulpscope/analyzers/report/report.h"
#include "ulpscope/analyzers/trace_difference.h"
#include "ulpscope/studies/trial.h"

namespace ulpscope {

// A trace that the trial's own was compared with.
struct AgainstTrace {
  RunInfo run;  // that wrote it
  TraceDifference difference;
};

// The table has the last `limit` steps, 0: all.
Report report_of(const Trial& trial, const TrialOutcome& outcome, const std::optional<AgainstTrace>& against, size_t limit);

}  // namespace ulpscope
