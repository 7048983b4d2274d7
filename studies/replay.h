// What came of running the steps of a capsule again, as a report. Facts: the steps, whether they are bit-equal, where they part,
// what was not finite first. Tables: steps (loss and loss scale beside the original's); ops (Trial::by_op), the furthest apart
// first.
#pragma once

#include <optional>

#include "ulpscope/analyzers/report/report.h"
#include "ulpscope/analyzers/verbs/trace_difference.h"
#include "ulpscope/studies/trial.h"

namespace ulpscope {

// A trace that the trial's own was compared with.
struct AgainstTrace {
  RunInfo run;  // that wrote it
  TraceDifference difference;
};

// The tables have the last `limit` steps, and the first so many ops; 0: all.
Report report_of(const Trial& trial, const TrialOutcome& outcome, const std::optional<AgainstTrace>& against, size_t limit);

}  // namespace ulpscope
