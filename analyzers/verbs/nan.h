// Why a run had NaN or infinities: where each kind of them began and what became of it, how the element that was captured came
// about, how near its ancestors were to their limits in the steps before, and the way to the loss and the weights. Facts of the
// beginning that did most harm: cause (NonfiniteCause), step, tensor, op, element and more. Tables: beginnings, operands, headroom,
// alarms, way_to_loss, way_to_weights. Findings: those on NaN and infinities, and what they came of.
#pragma once

#include "ulpscope/analyzers/findings/followed_run.h"

namespace ulpscope {

class NanAnalysis {
 public:
  explicit NanAnalysis(const AnalysisOptions& options) : run_(options) {}
  // As JudgedRun has it.
  explicit NanAnalysis(FollowedRun& run) : run_(run) {}
  NanAnalysis(const NanAnalysis&) = delete;
  Report report(const Snapshot& trace);

 private:
  JudgedRun run_;
};
Report analyze_nan(const Snapshot& trace, const AnalysisOptions& options = {});

}  // namespace ulpscope
