#include "ulpscope/analyzers/report/text_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "ulpscope/analyzers/report/graph_layout.h"
#include "ulpscope/analyzers/report/heat_cells.h"
#include "ulpscope/analyzers/report/text_layout.h"
#include "ulpscope/analyzers/report/value_scale.h"

namespace ulpscope {

namespace {

constexpr std::array<const char*, 9> kBlocks{" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
constexpr std::array<const char*, 9> kAsciiBlocks{" ", ".", ":", "-", "=", "+", "*", "%", "#"};

// `share` of the tallest column, 0 to 1. Anything above nothing is visible.
const char* block(double share, bool unicode) {
  const int height = share > 0 ? std::clamp(static_cast<int>(std::ceil(share * 8)), 1, 8) : 0;
  return (unicode ? kBlocks : kAsciiBlocks)[height];
}

// The names of a plot's series, in front of their lines.
struct Names {
  std::vector<std::string> texts;
  size_t width = 0;

  Names(const Plot& plot, const TextOptions& options) {
    for (const Series& series : plot.series) texts.push_back(series.name);
    if (options.fit_width) texts = shorten_texts(texts, std::max(16, options.width * 2 / 5), options.unicode);
    for (const std::string& text : texts) width = std::max(width, text_width(text));
  }
  // Columns for the lines.
  size_t room(const TextOptions& options) const {
    const int least = options.fit_width ? 16 : 60;
    return static_cast<size_t>(std::max(least, options.width - static_cast<int>(width) - 4));
  }
};

// Neighbouring exponents share a column where there are more of them than columns, but never across a limit.
struct HistogramAxis {
  std::vector<int> column_starts;  // the first exponent of each column; ascending
  std::vector<bool> limit_before;  // a limit lies at the column's first exponent
  int end = 0;                     // one past the last exponent

  size_t width() const { return column_starts.size() + std::count(limit_before.begin(), limit_before.end(), true); }
};

HistogramAxis layout(int first, int last, const std::vector<Limit>& limits, int exponents_a_column) {
  HistogramAxis axis;
  axis.end = last + 1;
  int in_column = exponents_a_column;
  for (int exponent = first; exponent <= last; ++exponent) {
    const bool at_limit = exponent > first &&
                          std::any_of(limits.begin(), limits.end(), [&](const Limit& limit) { return limit.exponent == exponent; });
    if (at_limit || in_column == exponents_a_column) {
      axis.column_starts.push_back(exponent);
      axis.limit_before.push_back(at_limit);
      in_column = 0;
    }
    ++in_column;
  }
  return axis;
}

// As far as there are any.
bool is_exponent(double x) { return std::fabs(x) <= 1 << 20; }

std::string histogram_line(const Series& series, const HistogramAxis& axis, bool unicode) {
  std::vector<double> columns(axis.column_starts.size(), 0.0);
  for (size_t i = 0; i < series.points(); ++i) {
    if (!is_exponent(series.x[i])) continue;
    const auto after = std::upper_bound(axis.column_starts.begin(), axis.column_starts.end(), static_cast<int>(series.x[i]));
    if (after != axis.column_starts.begin()) columns[after - axis.column_starts.begin() - 1] += series.y[i];
  }
  // Heights are square roots, and never nothing for something: what is rare is seen too, and underflow is about the rare.
  const double tallest = *std::max_element(columns.begin(), columns.end());
  std::string line;
  for (size_t i = 0; i < columns.size(); ++i) {
    if (axis.limit_before[i]) line += unicode ? "│" : "|";
    line += block(tallest > 0 ? std::sqrt(columns[i] / tallest) : 0, unicode);
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

// Limits' names above their bars: right of the bar, or left of it at the end of the line, where there is room.
std::string limit_names(const HistogramAxis& axis, const std::vector<Limit>& limits, size_t room, bool unicode) {
  const char* bar = unicode ? "│" : "|";
  std::string line;
  size_t column = 0;
  for (size_t i = 0; i < axis.column_starts.size(); ++i, ++column) {
    if (!axis.limit_before[i]) continue;
    const auto limit =
        std::find_if(limits.begin(), limits.end(), [&](const Limit& l) { return l.exponent == axis.column_starts[i]; });
    const size_t written = text_width(line), length = text_width(limit->name);
    if (written <= column && column + 1 + length <= room) {
      line += std::string(column - written, ' ') + bar + limit->name;
    } else if (written + 1 + length <= column) {
      line += std::string(column - written - length, ' ') + limit->name + bar;
    }
    ++column;
  }
  return line;
}

std::string histogram_text(const Plot& plot, const TextOptions& options) {
  int first = std::numeric_limits<int>::max(), last = std::numeric_limits<int>::min();
  for (const Series& series : plot.series) {
    for (size_t i = 0; i < series.points(); ++i) {
      if (!(series.y[i] > 0) || !is_exponent(series.x[i])) continue;
      first = std::min(first, static_cast<int>(series.x[i]));
      last = std::max(last, static_cast<int>(series.x[i]));
    }
  }
  if (first > last) return "  no finite nonzero values\n";
  for (const Limit& limit : plot.limits) {  // one column beyond each limit
    first = std::min(first, limit.exponent - 1);
    last = std::max(last, limit.exponent);
  }
  const Names names(plot, options);
  const size_t room = names.room(options);
  int exponents_a_column = 1;
  HistogramAxis axis = layout(first, last, plot.limits, exponents_a_column);
  while (axis.width() > room && exponents_a_column < last - first + 1) {
    axis = layout(first, last, plot.limits, ++exponents_a_column);
  }
  const std::string margin(names.width + 4, ' ');
  std::string text = margin + limit_names(axis, plot.limits, room, options.unicode) + "\n";
  for (size_t i = 0; i < plot.series.size(); ++i) {
    const Series& series = plot.series[i];
    text += "  " + pad_text(names.texts[i], names.width, false) + "  " + histogram_line(series, axis, options.unicode);
    if (series.below > 0) text += fmt::format("  {:.0f} below all bins", series.below);
    if (series.above > 0) text += fmt::format("  {:.0f} above all bins", series.above);
    text += "\n";
  }
  text += fmt::format("  2^{} to 2^{}", first, last + 1);
  for (size_t i = 0; i < plot.limits.size(); ++i)
    text += fmt::format("{} 2^{}", i == 0 ? "; limits at" : ",", plot.limits[i].exponent);
  if (exponents_a_column > 1) text += fmt::format("; {} exponents a column", exponents_a_column);
  return text + "\n";
}

std::string series_line(const Series& series, const ValueScale& scale, double first, double last, size_t width, bool unicode) {
  std::string line;
  size_t next = 0;
  double y = std::numeric_limits<double>::quiet_NaN();
  for (size_t column = 0; column < width; ++column) {
    const double until = first + (last - first) * static_cast<double>(column + 1) / static_cast<double>(width);
    // A column shows the last value in it, or the one that still holds.
    for (; next < series.points() && (series.x[next] < until || column + 1 == width); ++next) y = series.y[next];
    line += std::isfinite(y) ? block(0.125 + 0.875 * scale.place(y), unicode) : " ";
  }
  return line;
}

std::string marks_text(const Plot& plot) {
  std::string text;
  for (const Mark& mark : plot.marks) {
    const std::string from = cell_text(mark.from, plot.x.unit), to = cell_text(mark.to, plot.x.unit);
    text += fmt::format("  {} {}{}: {}\n", plot.x.name, from, mark.to > mark.from ? " to " + to : "", mark.text);
  }
  return text;
}

std::string steps_text(const Plot& plot, const TextOptions& options) {
  double first = INFINITY, last = -INFINITY, lowest = INFINITY, highest = -INFINITY;
  for (const Series& series : plot.series) {
    for (size_t i = 0; i < series.points(); ++i) {
      if (!std::isfinite(series.x[i])) continue;
      first = std::min(first, series.x[i]);
      last = std::max(last, series.x[i]);
      if (!std::isfinite(series.y[i])) continue;
      lowest = std::min(lowest, series.y[i]);
      highest = std::max(highest, series.y[i]);
    }
  }
  if (first > last || lowest > highest) return "  no values\n";
  const ValueScale scale = value_scale(plot, plot.series.size(), -INFINITY, INFINITY, 1);
  const Names names(plot, options);
  const size_t width = std::min<size_t>(names.room(options), 100);
  std::string text;
  for (size_t i = 0; i < plot.series.size(); ++i) {
    text += "  " + pad_text(names.texts[i], names.width, false) + "  " +
            series_line(plot.series[i], scale, first, last, width, options.unicode) + "\n";
  }
  return text + std::string(names.width + 4, ' ') +
         fmt::format("{} {:.0f} to {:.0f}; {} {} to {}{}\n", plot.x.name, first, last, plot.y.name, cell_text(lowest, plot.y.unit),
                     cell_text(highest, plot.y.unit), scale.is_logarithmic ? ", logarithmic" : "") +
         marks_text(plot);
}

// Rows from the top down, as a picture has them: of exponents the highest first.
std::string heatmap_text(const Plot& plot, const TextOptions& options) {
  const Names names(plot, options);
  const size_t width = std::min<size_t>(names.room(options), 100);
  const HeatCells cells = heat_cells(plot, width, plot.series.size());
  if (cells.columns == 0) return "  no values\n";
  std::string text;
  for (size_t i = 0; i < cells.rows; ++i) {
    const size_t row = plot.has_exponent_rows() ? cells.rows - 1 - i : i;
    std::string line;
    for (size_t at = 0; at < width; ++at) {
      const double value = cells.at(row, at * cells.columns / width);
      // Of what has a zero, that is seen as nothing; else what is least is something.
      const double least = std::isnan(value) || !cells.is_linear ? 0 : 0.01;
      line += block(std::max(least, cells.strength(value)), options.unicode);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += "  " + pad_text(names.texts[row], names.width, false) + "  " + line + "\n";
    for (const Limit& limit : plot.limits)
      if (plot.has_exponent_rows() && limit.exponent == plot.first_exponent + static_cast<int>(row))
        text += "  " + pad_text(limit.name, names.width, false) + "  " + std::string(width, '-') + "\n";
  }
  double last = cells.first;
  for (const Series& series : plot.series)
    for (size_t i = 0; i < series.points(); ++i)
      if (std::isfinite(series.x[i])) last = std::max(last, series.x[i]);
  const double worst = cells.is_empty() ? 0 : cells.worse_is_less ? cells.lowest : cells.highest;
  return text + std::string(names.width + 4, ' ') +
         fmt::format("{} {} to {}; {} {} to {}\n", plot.x.name, cell_text(cells.first, plot.x.unit), cell_text(last, plot.x.unit),
                     plot.y.name, cells.worse_is_less ? "down" : "up", cell_text(worst, plot.y.unit)) +
         marks_text(plot);
}

std::string graph_text(const Plot& plot, const TextOptions& options) {
  const std::vector<PlotLink> links = links_between(plot, plot.nodes.size());
  std::string text;
  for (size_t i = 0; i < plot.nodes.size(); ++i) {
    const PlotNode& node = plot.nodes[i];
    text += fmt::format("  {}{}", node.marked ? (options.unicode ? "● " : "* ") : (options.unicode ? "○ " : "o "), node.name);
    if (!node.detail.empty()) text += ": " + node.detail;
    std::string from;
    for (const PlotLink& link : links)
      if (link.to == i) from += (from.empty() ? "" : ", ") + plot.nodes[link.from].name;
    if (!from.empty()) text += fmt::format("  ({} {})", options.unicode ? "←" : "<-", from);
    text += "\n";
  }
  return text;
}

}  // namespace

std::string plot_text(const Plot& plot, const TextOptions& options) {
  if (plot.kind == PlotKind::graph) return plot.nodes.empty() ? "  nothing\n" : graph_text(plot, options);
  if (plot.series.empty()) return "  no values\n";
  if (plot.kind == PlotKind::heatmap) return heatmap_text(plot, options);
  return plot.kind == PlotKind::histogram ? histogram_text(plot, options) : steps_text(plot, options);
}

}  // namespace ulpscope
