#include "ulpscope/analyzers/report/heat_cells.h"

#include <algorithm>
#include <cmath>
#include <span>

namespace ulpscope {

namespace {

// Of a picture that nobody could look at.
constexpr double kMostCells = 1 << 14;

constexpr double kMostPlaces = 1e15;  // of a plot; places nearer to each other are taken for one

// Whether the row has a value in each column, and nowhere else.
bool has_all(const Series& row, const HeatColumns& columns) {
  if (static_cast<double>(row.points()) != columns.count) return false;
  for (size_t i = 0; i < row.points(); ++i)
    if (row.x[i] != columns.first + columns.width * static_cast<double>(i)) return false;
  return true;
}

}  // namespace

HeatColumns heat_columns(const Plot& plot) {
  double first = INFINITY, last = -INFINITY, narrowest = INFINITY;
  for (const Series& series : plot.series) {
    double before = NAN;
    for (size_t i = 0; i < series.points(); ++i) {
      const double x = series.x[i];
      if (!std::isfinite(x)) continue;
      first = std::min(first, x);
      last = std::max(last, x);
      if (x > before) narrowest = std::min(narrowest, x - before);
      before = x;
    }
  }
  HeatColumns columns;
  if (first > last || !std::isfinite(last - first)) return columns;
  if (!std::isfinite(narrowest)) narrowest = plot.x_end > last ? plot.x_end - last : 1;
  columns.first = first;
  columns.end = plot.x_end > last ? plot.x_end : last + narrowest;
  columns.width = std::max(narrowest, (columns.end - first) / kMostPlaces);
  if (!(columns.end > first) || !std::isfinite(columns.end)) return columns;
  columns.count = std::ceil((columns.end - first) / columns.width - 1e-9);
  return columns;
}

double HeatColumns::joined(size_t most) const {
  return std::max(1.0, std::ceil(count / std::clamp(static_cast<double>(most), 1.0, kMostCells)));
}

double HeatCells::worse(double a, double b) const {
  if (std::isnan(a)) return b;
  if (std::isnan(b)) return a;
  return worse_is_less ? std::min(a, b) : std::max(a, b);
}

double HeatCells::strength(double value) const {
  if (std::isnan(value) || is_empty()) return 0;
  const double from = is_linear ? lowest : 0;
  const double share = std::isinf(value) ? (value > 0 ? 1 : 0)
                       : highest > from  ? std::clamp((value - from) / (highest - from), 0.0, 1.0)
                       : highest > 0     ? 1
                                         : 0;
  const double height = is_linear ? share : std::sqrt(share);
  return worse_is_less ? 1 - height : height;
}

size_t joined_rows(const Plot& plot, size_t rows, size_t most_rows) {
  if (!plot.has_exponent_rows()) return 1;
  const size_t most = std::max<size_t>(1, most_rows);
  return std::max<size_t>(1, (rows + most - 1) / most);
}

HeatCells heat_cells(const Plot& plot, const HeatColumns& columns, size_t most_columns, size_t most_rows, RowRange range) {
  HeatCells cells;
  cells.adds = plot.y.unit == Unit::count;
  cells.worse_is_less = plot.y.unit == Unit::bits;
  if (columns.count == 0) return cells;
  const double joined = columns.joined(most_columns);
  cells.joined_columns = static_cast<size_t>(joined);
  cells.first = columns.first;
  cells.plot_end = columns.end;
  cells.width = columns.width * joined;
  cells.columns = static_cast<size_t>(std::clamp(std::ceil(columns.count / joined), 1.0, kMostCells));
  cells.first_row = std::min(range.first, plot.series.size());
  const std::span rows =
      std::span(plot.series).subspan(cells.first_row, std::min(range.last, plot.series.size()) - cells.first_row);
  cells.joined_rows = joined_rows(plot, rows.size(), most_rows);
  cells.rows = (rows.size() + cells.joined_rows - 1) / cells.joined_rows;
  cells.values.assign(cells.rows * cells.columns, NAN);
  const auto join = [&](double& into, double value) {
    into = cells.adds && !std::isnan(into) ? into + value : cells.worse(into, value);
  };
  for (size_t row = 0; row < rows.size(); ++row) {
    const Series& series = rows[row];
    double* const of_row = cells.values.data() + row / cells.joined_rows * cells.columns;
    if (joined == 1 && cells.joined_rows == 1 && has_all(series, columns)) {
      std::copy_n(series.y.begin(), cells.columns, of_row);
      continue;
    }
    for (size_t i = 0; i < series.points(); ++i) {
      if (std::isnan(series.y[i]) || !std::isfinite(series.x[i])) continue;
      const auto cell_at = [&](double x) { return std::max(0.0, (x - cells.first) / cells.width); };
      const auto from = std::min(static_cast<size_t>(std::min(cell_at(series.x[i]) + 1e-9, kMostCells)), cells.columns - 1);
      join(of_row[from], series.y[i]);
      // What holds until the next x covers cells of its own on the way there. What is counted does not.
      if (cells.adds) continue;
      const double until = cell_at(i + 1 < series.points() ? series.x[i + 1] : columns.end) + 1e-9;
      for (size_t at = from + 1; at < cells.columns && static_cast<double>(at + 1) <= until; ++at) join(of_row[at], series.y[i]);
    }
  }
  for (const double value : cells.values) {
    if (!std::isfinite(value)) continue;
    cells.lowest = std::min(cells.lowest, value);
    cells.highest = std::max(cells.highest, value);
  }
  cells.is_linear = cells.lowest < 0 || (plot.y.unit != Unit::share && plot.y.unit != Unit::count);
  return cells;
}

}  // namespace ulpscope
