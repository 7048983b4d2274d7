#include "ulpscope/gui/heat_cells.h"

#include <algorithm>
#include <cmath>

namespace ulpscope::gui {

namespace {

// Of a picture that nobody could look at.
constexpr double kMostCells = 1 << 14;

struct Extent {
  double first = INFINITY, end = -INFINITY, narrowest = INFINITY;  // column
};

size_t points(const Series& series) { return std::min(series.x.size(), series.y.size()); }

Extent extent_of(const Plot& plot) {
  Extent extent;
  double last = -INFINITY;
  for (const Series& series : plot.series) {
    for (size_t i = 0; i < points(series); ++i) {
      extent.first = std::min(extent.first, series.x[i]);
      last = std::max(last, series.x[i]);
      if (i > 0 && series.x[i] > series.x[i - 1]) extent.narrowest = std::min(extent.narrowest, series.x[i] - series.x[i - 1]);
    }
  }
  if (!std::isfinite(extent.narrowest)) extent.narrowest = plot.x_end > last ? plot.x_end - last : 1;
  extent.end = plot.x_end > last ? plot.x_end : last + extent.narrowest;
  return extent;
}

}  // namespace

HeatCells heat_cells(const Plot& plot, size_t most_columns, size_t most_rows) {
  HeatCells cells;
  cells.adds = plot.y.unit == Unit::count;
  const Extent extent = extent_of(plot);
  if (!(extent.end > extent.first)) return cells;
  const double all = std::ceil((extent.end - extent.first) / extent.narrowest - 1e-9);
  const double most = std::clamp(static_cast<double>(most_columns), 1.0, kMostCells);
  const double joined = std::ceil(all / most);
  cells.joined_columns = static_cast<size_t>(joined);
  cells.first = extent.first;
  cells.width = extent.narrowest * joined;
  cells.columns = static_cast<size_t>(std::ceil(all / joined));
  if (plot.has_exponent_rows())
    cells.joined_rows = (plot.series.size() + std::max<size_t>(1, most_rows) - 1) / std::max<size_t>(1, most_rows);
  cells.rows = (plot.series.size() + cells.joined_rows - 1) / cells.joined_rows;
  cells.values.assign(cells.rows * cells.columns, NAN);
  // Of headroom the least is the worst.
  const bool worse_is_less = plot.y.unit == Unit::bits;
  const auto join = [&](double& into, double value) {
    if (std::isnan(into))
      into = value;
    else
      into = cells.adds ? into + value : worse_is_less ? std::min(into, value) : std::max(into, value);
  };
  for (size_t row = 0; row < plot.series.size(); ++row) {
    const Series& series = plot.series[row];
    double* const of_row = cells.values.data() + row / cells.joined_rows * cells.columns;
    for (size_t i = 0; i < points(series); ++i) {
      if (std::isnan(series.y[i])) continue;
      const auto cell_at = [&](double x) { return (x - cells.first) / cells.width; };
      const auto from = std::min(static_cast<size_t>(cell_at(series.x[i]) + 1e-9), cells.columns - 1);
      join(of_row[from], series.y[i]);
      // What holds until the next x covers cells of its own on the way there.
      const double until = cell_at(i + 1 < points(series) ? series.x[i + 1] : extent.end) + 1e-9;
      for (size_t at = from + 1; at < cells.columns && static_cast<double>(at + 1) <= until; ++at) join(of_row[at], series.y[i]);
    }
  }
  for (const double value : cells.values) {
    if (!std::isfinite(value)) continue;
    cells.lowest = std::min(cells.lowest, value);
    cells.highest = std::max(cells.highest, value);
  }
  return cells;
}

}  // namespace ulpscope::gui
