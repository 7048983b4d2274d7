// Plots over the steps of a run: its course, tensors against steps, the exponents of one tensor against steps; and the ops of one
// step as a table. What every picture of a run is made of, in a window, a file or a terminal.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ulpscope/analyzers/history/history.h"
#include "ulpscope/analyzers/report/report.h"

namespace ulpscope {

// Loss, gradient norm, learning rate, loss scale, skipped steps, NaN and infinities, what was flushed of the gradients, time of a
// step and memory, each a plot named so ("loss", "gradient_norm", ...), where it was recorded. Marks: what made the loss scale back
// off, and where training or the recording ended early.
std::vector<Plot> course_plots(const History& history, const AnalysisContext& context);

// In which order tensors stand: that of their execution, or the worst first.
enum class TensorOrder : uint8_t { execution, worst };
// Tensors that have a value there, in that order.
std::vector<uint32_t> ordered_tensors(const History& history, const AnalysisContext& context, Measured measured, TensorOrder order);

// A row for each of the tensors.
Plot tensor_heatmap(const History& history, const AnalysisContext& context, Measured measured, std::span<const uint32_t> tensors);

// How the values of the tensor are distributed over exponents, step by step, against the limits of `formats`. True values are those
// without the loss scale; values without the scale of a quantization in either case. Reads the rows of that tensor only.
struct ExponentPlotOptions {
  StepRange steps = {};
  size_t most_columns = 256;
  bool is_true = false;
  std::vector<const FloatFormat*> formats = {};
};
Plot exponent_heatmap(const Snapshot& trace, uint32_t tensor, const std::string& name, const ExponentPlotOptions& options);

// All rows of a step in order of execution; of several ranks with the rank of each, of several micro-batches with its number.
Table step_table(const AnalysisContext& context, uint64_t step);

}  // namespace ulpscope
