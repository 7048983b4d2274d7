// Why a run had NaN or infinities: where each kind of them began and what became of it, how the element that was captured came
// about, how near its ancestors were to their limits in the steps before, and the way to the loss and the weights. Facts of the
// beginning that did most harm: cause (NonfiniteCause), step, tensor, op, element and more. Tables: beginnings, operands, headroom,
// alarms, way_to_loss, way_to_weights. Findings: those on NaN and infinities, and what they came of.
#pragma once

#include <memory>

#include "ulpscope/analyzers/analysis.h"

namespace ulpscope {

class FollowedRun;

class NanAnalysis {
 public:
  explicit NanAnalysis(const AnalysisOptions& options);
  // Of what others follow too, which outlives it: with kPartsOnRun at least.
  explicit NanAnalysis(FollowedRun& run);
  ~NanAnalysis();
  NanAnalysis(const NanAnalysis&) = delete;
  Report report(const Snapshot& trace);

 private:
  const std::unique_ptr<FollowedRun> own_;
  FollowedRun& run_;
};
Report analyze_nan(const Snapshot& trace, const AnalysisOptions& options = {});

}  // namespace ulpscope
