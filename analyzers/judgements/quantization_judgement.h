// What one scale a tensor could not keep, in the steps before the run broke. FP8 has its own scales, so that a loss scale is no
// remedy.
#pragma once

#include <cstdint>
#include <vector>

namespace ulpscope {

struct AnalysisContext;
class RangeJudgement;

// Tensors are indices, in their order; "much" is more than the limit of the options.
class QuantizationJudgement {
 public:
  QuantizationJudgement(const AnalysisContext& context, const RangeJudgement& ranges);

  std::vector<uint32_t> unscaled;  // lost much in the first rows of delayed scaling
  // Of which much was flushed: because of a scale that came from other steps than those it was used in, by another rounding that
  // their norm felt, and by others.
  std::vector<uint32_t> stale, flushed, flushed_unfelt;
  std::vector<uint32_t> saturated;
};

}  // namespace ulpscope
