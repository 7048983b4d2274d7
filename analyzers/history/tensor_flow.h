// From one tensor to the next along the ops of a trace, and what was measured of tensors beyond their statistics.
#pragma once

#include <vector>

#include "ulpscope/analyzers/subject/run_analysis.h"

namespace ulpscope {

// A row for each tensor that the op of `tensor` read ("made of") and for each that was made by an op that read it ("used by"), each
// once, those of the first graph of the trace first.
Table tensor_flow(const AnalysisContext& context, uint32_t tensor);

// The exponents of the values of each row of step_table, in its order: a series without points where they were not recorded.
Plot step_histograms(const AnalysisContext& context, uint64_t step);

// For each name in the table of measures a heatmap, tensors against steps: the largest value in a column, NaN where there is none.
// Tensors are in order of execution.
std::vector<Plot> measure_plots(const AnalysisContext& context, const StepRange& steps);

}  // namespace ulpscope
