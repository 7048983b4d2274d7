// Tensors against steps, in the tree of their modules: a module is a row of all tensors in it together, which can be folded.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "ulpscope/analyzers/history/plots.h"

namespace ulpscope {

struct ModuleRow {
  std::string module;  // the path of one that has rows below it, or "": the row is a tensor
  std::string label;   // what the rows above do not say
  size_t depth = 0;
  bool is_folded = false;
  std::vector<uint32_t> tensors;  // that it stands for, in their order
};

// A row for each module that has several of the tensors, and for each tensor that lies in no folded one. Modules and tensors stand
// where the first of their tensors does in `tensors`. A module in which there is nothing but another one is one row with it.
std::vector<ModuleRow> module_rows(const AnalysisContext& context, std::span<const uint32_t> tensors,
                                   const std::function<bool(const std::string& module)>& is_folded);

// As tensor_heatmap has them. Cells of a module add up as those of columns do: shares are of all its elements, headroom is the
// least. Its series are named by its path, and their keys have no name.
Plot module_heatmap(const History& history, const AnalysisContext& context, Measured measured, std::span<const ModuleRow> rows);

}  // namespace ulpscope
