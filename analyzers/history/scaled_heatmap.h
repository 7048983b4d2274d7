// Tensors against steps at every loss scale that can be asked for: what a scale that is dragged looks up.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "ulpscope/analyzers/history/history.h"
#include "ulpscope/analyzers/report/report.h"

namespace ulpscope {

// Shares of elements that another loss scale would change: flushed, subnormal and overflowed.
bool depends_on_scale(Measured measured);

class ScaledHeatmap {
 public:
  // As tensor_heatmap and module_heatmap have them, had the loss scale been 2^exponent; kLeastScale to kLargestScale.
  Plot at(int exponent) const;
  Measured measured() const { return measured_; }

 private:
  friend ScaledHeatmap scaled_heatmap(const Snapshot&, const Plot&, std::span<const std::vector<uint32_t>>, Measured,
                                      std::string_view, const AnalysisOptions&);
  Plot plot_;  // without its values
  Measured measured_ = Measured::flushed;
  // By column, empty where it has no row: the elements of each row, then for each exponent those of them that are counted.
  std::vector<std::vector<double>> counted_;
};

// Of `recorded`, a heatmap of that quantity in the steps of `options`, each of whose rows stands for the tensors `rows` has there.
// `format`: the name of the one that is asked about, or "": that of each tensor. A tensor without a loss scale in its values has
// the same at each. Shares are what `ulpscope whatif` bounds from above: of rows whose own scale is asked about, and whose rounding
// was counted, what was counted. Columns are joined until there are no more than 64k cells.
ScaledHeatmap scaled_heatmap(const Snapshot& trace, const Plot& recorded, std::span<const std::vector<uint32_t>> rows,
                             Measured measured, std::string_view format, const AnalysisOptions& options = {});

}  // namespace ulpscope
