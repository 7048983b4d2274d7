// Steps in the columns of a heatmap.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "ulpscope/analyzers/report/report.h"

namespace ulpscope {

// Columns of `width` steps, a power of two, each beginning at a multiple of it.
struct StepColumns {
  uint64_t width = 1;
  uint64_t first = 0;  // the number of the first column: step / width
  size_t count = 0;

  // From one step to another, both inside, in at most so many columns.
  static StepColumns over(uint64_t first_step, uint64_t last_step, size_t most) {
    StepColumns columns;
    while (last_step / columns.width - first_step / columns.width >= most) columns.width *= 2;
    columns.first = first_step / columns.width;
    columns.count = static_cast<size_t>(last_step / columns.width - columns.first + 1);
    return columns;
  }

  uint64_t step(size_t column) const { return (first + column) * width; }
  size_t column(uint64_t step) const { return static_cast<size_t>(step / width - first); }
  double end() const { return static_cast<double>((first + count) * width); }

  // Gives the row all columns, of which nothing is known yet.
  void begin(Series& row) const {
    for (size_t each = 0; each < count; ++each) {
      row.x.push_back(static_cast<double>(step(each)));
      row.y.push_back(std::numeric_limits<double>::quiet_NaN());
    }
  }
  // What a row that has begun has of the step: the largest of those in its column that are known.
  void keep_largest(Series& row, uint64_t step, double value) const {
    double& cell = row.y[column(step)];
    if (!(value <= cell) && !std::isnan(value)) cell = value;
  }
};

// How many columns and rows a picture has room for at most.
inline constexpr size_t kMostHeatmapColumns = 256, kMostHeatmapRows = 1000;

}  // namespace ulpscope
