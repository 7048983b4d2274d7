#include "ulpscope/analyzers/report/heat_cells.h"

#include <algorithm>
#include <cmath>
#include <span>

namespace ulpscope {

namespace {

// Of a picture that nobody could look at.
constexpr double kMostCells = 1 << 14;

struct Columns {
  double first = INFINITY, end = -INFINITY, narrowest = INFINITY;  // column
};

size_t points(const Series& series) { return std::min(series.x.size(), series.y.size()); }

Columns columns_of(const Plot& plot) {
  Columns columns;
  double last = -INFINITY;
  for (const Series& series : plot.series) {
    double before = NAN;
    for (size_t i = 0; i < points(series); ++i) {
      const double x = series.x[i];
      if (!std::isfinite(x)) continue;
      columns.first = std::min(columns.first, x);
      last = std::max(last, x);
      if (x > before) columns.narrowest = std::min(columns.narrowest, x - before);
      before = x;
    }
  }
  if (!std::isfinite(columns.narrowest)) columns.narrowest = plot.x_end > last ? plot.x_end - last : 1;
  columns.end = plot.x_end > last ? plot.x_end : last + columns.narrowest;
  return columns;
}

}  // namespace

double HeatCells::worse(double a, double b) const {
  if (std::isnan(a)) return b;
  if (std::isnan(b)) return a;
  return worse_is_less ? std::min(a, b) : std::max(a, b);
}

HeatCells heat_cells(const Plot& plot, size_t most_columns, size_t most_rows, RowRange range) {
  HeatCells cells;
  cells.adds = plot.y.unit == Unit::count;
  cells.worse_is_less = plot.y.unit == Unit::bits;
  const Columns columns = columns_of(plot);
  if (!(columns.end > columns.first) || !std::isfinite(columns.end - columns.first)) return cells;
  const double all = std::ceil((columns.end - columns.first) / columns.narrowest - 1e-9);
  const double most = std::clamp(static_cast<double>(most_columns), 1.0, kMostCells);
  const double joined = std::max(1.0, std::ceil(all / most));
  cells.joined_columns = static_cast<size_t>(std::min(joined, 1e18));
  cells.first = columns.first;
  cells.plot_end = columns.end;
  cells.width = columns.narrowest * joined;
  cells.columns = static_cast<size_t>(std::clamp(std::ceil(all / joined), 1.0, most));
  cells.first_row = std::min(range.first, plot.series.size());
  const std::span rows =
      std::span(plot.series).subspan(cells.first_row, std::min(range.last, plot.series.size()) - cells.first_row);
  if (plot.has_exponent_rows())
    cells.joined_rows = std::max<size_t>(1, (rows.size() + std::max<size_t>(1, most_rows) - 1) / std::max<size_t>(1, most_rows));
  cells.rows = (rows.size() + cells.joined_rows - 1) / cells.joined_rows;
  cells.values.assign(cells.rows * cells.columns, NAN);
  const auto join = [&](double& into, double value) {
    into = cells.adds && !std::isnan(into) ? into + value : cells.worse(into, value);
  };
  for (size_t row = 0; row < rows.size(); ++row) {
    const Series& series = rows[row];
    double* const of_row = cells.values.data() + row / cells.joined_rows * cells.columns;
    for (size_t i = 0; i < points(series); ++i) {
      if (std::isnan(series.y[i]) || !std::isfinite(series.x[i])) continue;
      const auto cell_at = [&](double x) { return std::max(0.0, (x - cells.first) / cells.width); };
      const auto from = std::min(static_cast<size_t>(std::min(cell_at(series.x[i]) + 1e-9, kMostCells)), cells.columns - 1);
      join(of_row[from], series.y[i]);
      // What holds until the next x covers cells of its own on the way there.
      const double until = cell_at(i + 1 < points(series) ? series.x[i + 1] : columns.end) + 1e-9;
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

}  // namespace ulpscope
