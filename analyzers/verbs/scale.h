// The loss scale: its history, what made it back off and grow, whether it does its work, and which scales would have fitted.
// Facts: first, final, lowest and highest scale, skipped steps, the largest and smallest fitting scale over the run. Tables:
// changes and skipped steps with the tensor, op and count that caused them; the fitting scales of each gradient tensor. Plot: scale
// and fitting scales over the steps. Findings: those of Part::scale, and what they came of (verdict.h).
#pragma once

#include "ulpscope/analyzers/findings/followed_run.h"

namespace ulpscope {

struct ScaleOptions : AnalysisOptions {
  // The format that gradients are rounded to; nullptr: the one that they were rounded to, or FP16 where that was FP32.
  const FloatFormat* format = nullptr;
};

// Of a trace each time it is asked, which may have grown: reads only what is new.
class ScaleAnalysis {
 public:
  explicit ScaleAnalysis(const ScaleOptions& options) : options_(options), run_(options_, {.scale_format = options_.format}) {}
  ScaleAnalysis(const ScaleAnalysis&) = delete;
  Report report(const Snapshot& trace);

 private:
  const ScaleOptions options_;
  JudgedRun run_;
};
Report analyze_scale(const Snapshot& trace, const ScaleOptions& options = {});

}  // namespace ulpscope
