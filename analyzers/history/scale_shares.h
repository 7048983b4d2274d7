// What a format would take of one tensor at each loss scale: what a scale that is dragged looks up.
#pragma once

#include "ulpscope/analyzers/subject/run_analysis.h"

namespace ulpscope {

// The loss scales 2^k that can be asked for.
inline constexpr int kLeastScale = -16, kLargestScale = 40;

// A row for each of them: scale, flushed, subnormal, overflow, as `ulpscope whatif` has them. Without rows, and with a note, for
// a tensor that does not contain the loss scale or of which no values were recorded.
Table scale_shares(const AnalysisContext& context, uint32_t tensor, const FloatFormat& format, const StepRange& steps);

}  // namespace ulpscope
