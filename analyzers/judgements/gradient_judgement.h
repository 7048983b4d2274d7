// What roundings, and ops that read subnormals as zero, did to gradients in the steps before the run broke.
#pragma once

#include <cstdint>
#include <vector>

#include "ulpscope/analyzers/subject/timeline.h"

namespace ulpscope {

struct AnalysisContext;
class RangeJudgement;

// Tensors are indices, in their order; "much" is more than the limit of the options.
class GradientJudgement {
 public:
  GradientJudgement(const AnalysisContext& context, const RangeJudgement& ranges);

  std::vector<uint32_t> vanished;  // made by the first rounding of a backward pass, which flushed all of them
  uint64_t vanished_passes = 0;    // how many times
  // Of which much was flushed: by a rounding that their norm felt, and by others.
  std::vector<uint32_t> flushed, flushed_unfelt;
  std::vector<uint32_t> raised;  // of which much would be zero to nearest, and was made the smallest subnormal
  // That became infinite when they were rounded, in a step that was taken, and only in steps that were skipped.
  std::vector<uint32_t> overflow_kept, overflow_skipped;
  StepSet overflow_kept_steps;
  // The outputs of ops that read much of an input as zero; of one op they share the counts, so the first stands for all.
  std::vector<uint32_t> read_as_zero_in_backward, read_as_zero_elsewhere;
  // In such a step clipping by value read an infinity and handed on none, and no infinity reached a weight.
  bool clipping_hides_infinity = false;

  // Something of the above was lost, or was too large.
  bool lost_something() const {
    return !vanished.empty() || !flushed.empty() || !flushed_unfelt.empty() || !overflow_kept.empty() || !raised.empty() ||
           !read_as_zero_in_backward.empty();
  }
};

}  // namespace ulpscope
