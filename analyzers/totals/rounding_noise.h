// Which gradients of biases hold nothing but what the terms of their sums were rounded by. Definition: docs/numerics.md, "Flushing
// that matters".
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ulpscope/analyzers/subject/run_analysis.h"

namespace ulpscope {

class RoundingNoise {
 public:
  // Of the context, which outlives this.
  explicit RoundingNoise(const AnalysisContext& context);
  // Before the rows of a step.
  void begin_step() { ++step_number_; }
  // Takes all rows of a step, in the trace's order.
  void see(const TensorRow& row);
  // Whether no element of a row that was seen is larger than the rounding errors of its sum may be: of k terms t, each known to
  // half an ulp of its type, added in FP32, at most (u + gamma_k) * sum |t|, and sum |t| <= sqrt(k * sum t^2).
  bool fills(const TensorRow& row) const;

 private:
  // Of a tensor that others sum over: what its last row of the step tells.
  struct Terms {
    bool wanted = false;
    uint64_t step_number = 0;
    double count = 0, squares = kUnknown;
  };

  const AnalysisContext* context_;
  std::vector<std::optional<uint32_t>> terms_of_;  // of a tensor that is a sum over another's elements: that one
  std::vector<Terms> terms_;
  uint64_t step_number_ = 0;  // counts them
};

}  // namespace ulpscope
