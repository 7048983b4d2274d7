// The cells of a heatmap as a picture of so many pixels, marks or characters has them: at most one each. Where several columns or
// exponents of the plot fall on one cell, counts add up, and of anything else the cell has the worst, so that one bad value is seen
// however small the picture is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "ulpscope/analyzers/report/report.h"

namespace ulpscope {

struct HeatCells {
  double first = 0, width = 1;  // of the first column, and of each, along x
  double plot_end = 0;          // where the last column of the plot ends, which may lie inside a cell
  size_t columns = 0, rows = 0;
  size_t first_row = 0;                        // of the plot, that the first row has
  size_t joined_columns = 1, joined_rows = 1;  // of the plot that a cell has
  bool adds = false;                           // else a cell has the worst of those
  bool worse_is_less = false;                  // as of headroom
  std::vector<double> values;                  // row by row, in the order of the plot's series; NaN: nothing
  double lowest = std::numeric_limits<double>::infinity(), highest = -lowest;  // of those that are finite

  double at(size_t row, size_t column) const { return values[row * columns + column]; }
  double end() const { return first + width * static_cast<double>(columns); }
  bool is_empty() const { return lowest > highest; }
  // What is seen where there are both; NaN is nothing.
  double worse(double a, double b) const;
};

struct RowRange {
  size_t first = 0, last = SIZE_MAX;  // first <= row < last
};

// At most so many columns between the plot's first x and its end; and of exponents at most so many rows. Other rows, which have
// names, are never joined. `range`: of the plot's rows only these.
HeatCells heat_cells(const Plot& plot, size_t most_columns, size_t most_rows, RowRange range = {});

}  // namespace ulpscope
