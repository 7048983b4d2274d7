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

// Where the columns of a heatmap lie: as far apart as the two nearest ones.
struct HeatColumns {
  double first = 0, width = 1, end = 0;
  double count = 0;  // 0: nothing has a place

  // How many of them each cell has, where there is room for so many cells.
  double joined(size_t most) const;
};
HeatColumns heat_columns(const Plot& plot);

struct HeatCells {
  double first = 0, width = 1;  // of the first column, and of each, along x
  double plot_end = 0;          // where the last column of the plot ends, which may lie inside a cell
  size_t columns = 0, rows = 0;
  size_t first_row = 0;                        // of the plot, that the first row has
  size_t joined_columns = 1, joined_rows = 1;  // of the plot that a cell has
  bool adds = false;                           // else a cell has the worst of those
  bool worse_is_less = false;                  // as of headroom
  bool is_linear = false;                      // in colours; else of square roots from 0 on, so that what is rare is seen too
  std::vector<double> values;                  // row by row, in the order of the plot's series; NaN: nothing
  double lowest = std::numeric_limits<double>::infinity(), highest = -lowest;  // of those that are finite

  double at(size_t row, size_t column) const { return values[row * columns + column]; }
  double end() const { return first + width * static_cast<double>(columns); }
  bool is_empty() const { return lowest > highest; }
  // What is seen where there are both; NaN is nothing.
  double worse(double a, double b) const;
  // From 0 for what is as good as nothing to 1 for the worst of all cells.
  double strength(double value) const;
};

// How many of so many rows of the plot each cell has: 1 where they have names.
size_t joined_rows(const Plot& plot, size_t rows, size_t most_rows);

struct RowRange {
  size_t first = 0, last = SIZE_MAX;  // first <= row < last
};

// At most so many columns between the plot's first x and its end; and of exponents at most so many rows. Other rows, which have
// names, are never joined. `range`: of the plot's rows only these.
HeatCells heat_cells(const Plot& plot, const HeatColumns& columns, size_t most_columns, size_t most_rows, RowRange range = {});
inline HeatCells heat_cells(const Plot& plot, size_t most_columns, size_t most_rows, RowRange range = {}) {
  return heat_cells(plot, heat_columns(plot), most_columns, most_rows, range);
}

}  // namespace ulpscope
