// The cells of a heatmap as a picture of so many pixels has them: at most one a pixel. Where several columns or exponents of the
// plot fall on one cell, counts add up, and of anything else the cell has the worst, so that one bad value is seen however small
// the picture is.
#pragma once

#include <cstddef>
#include <limits>
#include <vector>

#include "ulpscope/analyzers/report/report.h"

namespace ulpscope::gui {

struct HeatCells {
  double first = 0, width = 1;  // of the first column, and of each, along x
  size_t columns = 0, rows = 0;
  size_t joined_columns = 1, joined_rows = 1;  // of the plot that a cell has
  bool adds = false;                           // else a cell has the worst of those
  std::vector<double> values;                  // row by row, in the order of the plot's series; NaN: nothing
  double lowest = std::numeric_limits<double>::infinity(), highest = -lowest;  // of those that are finite

  double at(size_t row, size_t column) const { return values[row * columns + column]; }
  double end() const { return first + width * static_cast<double>(columns); }
  bool is_empty() const { return lowest > highest; }
};

// At most so many columns between the plot's first x and its end; and of exponents at most so many rows. Other rows, which have
// names, are never joined.
HeatCells heat_cells(const Plot& plot, size_t most_columns, size_t most_rows);

}  // namespace ulpscope::gui
