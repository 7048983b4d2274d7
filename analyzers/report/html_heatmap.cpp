// Heatmaps: what rows hold in columns of x, by colour. Rows of exponents are one picture, the highest on top, with limits between
// them; other rows have names, and are a picture each.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "ulpscope/analyzers/report/html_parts.h"
#include "ulpscope/analyzers/report/text.h"
#include "ulpscope/base/text.h"

namespace ulpscope {

namespace {

// The two hundred worst of something, all of it, and the others together.
constexpr size_t kMostColumns = 256, kMostRows = 202, kShownRows = 40;
constexpr int kLevels = 16;  // of colour; as many classes stand in the style

// The cells of a heatmap on one grid. Where a column of the grid has several values of a row, it has the worst.
struct HeatGrid {
  double first = 0, end = 1;
  size_t columns = 0, joined = 1;  // columns of the plot that one of the grid has
  std::vector<std::vector<double>> rows;
  double lowest = INFINITY, highest = -INFINITY;
  bool is_linear = false;
  bool worse_is_less = false;  // as of headroom: then the least has the strongest colour

  void see(double value) {
    if (!std::isfinite(value)) return;
    lowest = std::min(lowest, value);
    highest = std::max(highest, value);
  }
  double worse(double a, double b) const {
    if (std::isnan(a)) return b;
    if (std::isnan(b)) return a;
    return worse_is_less ? std::min(a, b) : std::max(a, b);
  }
  int level(double value) const { return worse_is_less ? kLevels - 1 - height(value) : height(value); }
  int height(double value) const {
    if (std::isinf(value)) return value > 0 ? kLevels - 1 : 0;
    const double share = !(highest > lowest) ? (highest > 0 ? 1 : 0) : (value - lowest) / (highest - lowest);
    return std::clamp(static_cast<int>(std::ceil((is_linear ? share : std::sqrt(share)) * (kLevels - 1))), 0, kLevels - 1);
  }
};

std::optional<HeatGrid> grid_of(const Plot& plot) {
  std::vector<double> begins;
  const auto points = [](const Series& series) { return std::min(series.x.size(), series.y.size()); };
  for (const Series& series : plot.series)
    for (size_t i = 0; i < points(series); ++i)
      if (std::isfinite(series.x[i])) begins.push_back(series.x[i]);
  if (begins.empty()) return std::nullopt;
  std::sort(begins.begin(), begins.end());
  begins.erase(std::unique(begins.begin(), begins.end()), begins.end());
  HeatGrid grid;
  grid.first = begins.front();
  grid.worse_is_less = plot.y.unit == Unit::bits;
  double narrowest = INFINITY;
  for (size_t i = 1; i < begins.size(); ++i) narrowest = std::min(narrowest, begins[i] - begins[i - 1]);
  if (!std::isfinite(narrowest)) narrowest = std::isnan(plot.x_end) ? 1 : std::max(plot.x_end - grid.first, 1e-300);
  const double end = std::max(std::isnan(plot.x_end) ? begins.back() + narrowest : plot.x_end, begins.back() + narrowest);
  const double all = std::ceil((end - grid.first) / narrowest - 1e-9);
  const double joined = std::max(1.0, std::ceil(all / kMostColumns)), width = narrowest * joined;
  grid.joined = static_cast<size_t>(std::min(joined, 1e15));
  grid.columns = static_cast<size_t>(std::clamp(std::ceil(all / joined), 1.0, static_cast<double>(kMostColumns)));
  grid.end = grid.first + width * static_cast<double>(grid.columns);
  for (const Series& series : plot.series) {
    std::vector<double>& row = grid.rows.emplace_back(grid.columns, NAN);
    for (size_t i = 0; i < points(series); ++i) {
      const double x = series.x[i], value = series.y[i];
      if (!std::isfinite(x) || std::isnan(value)) continue;
      grid.see(value);
      const double until = i + 1 < points(series) ? series.x[i + 1] : std::isnan(plot.x_end) ? x + narrowest : plot.x_end;
      const auto from =
          static_cast<size_t>(std::clamp((x - grid.first) / width + 1e-9, 0.0, static_cast<double>(grid.columns - 1)));
      for (size_t at = from; at < grid.columns && (at == from || grid.first + width * (static_cast<double>(at) + 1e-9) < until);
           ++at)
        row[at] = grid.worse(row[at], value);
    }
  }
  if (grid.lowest > grid.highest) grid.lowest = grid.highest = 0;
  grid.is_linear = grid.lowest < 0 || (plot.y.unit != Unit::share && plot.y.unit != Unit::count);
  if (!grid.is_linear) grid.lowest = 0;
  return grid;
}

// Runs of cells of one colour, in the row at `y`.
void add_runs(const std::vector<double>& row, const HeatGrid& grid, size_t y, std::array<std::string, kLevels>& paths) {
  for (size_t at = 0; at < row.size();) {
    if (std::isnan(row[at])) {
      ++at;
      continue;
    }
    const int level = grid.level(row[at]);
    size_t end = at + 1;
    while (end < row.size() && !std::isnan(row[end]) && grid.level(row[end]) == level) ++end;
    paths[static_cast<size_t>(level)] += fmt::format("M{} {}h{}", at, y, end - at);
    at = end;
  }
}

std::string paths_html(const std::array<std::string, kLevels>& paths) {
  std::string html;
  for (size_t level = 0; level < paths.size(); ++level)
    if (!paths[level].empty()) html += fmt::format("<path class=\"h{}\" d=\"{}\"/>", level, paths[level]);
  return html;
}

// The numbers of all cells for who asks for one: each text once, and rows as runs of their places, "2*10 0 1". What a row has
// nothing in is the empty text.
class CellTexts {
 public:
  explicit CellTexts(Unit unit) : unit_(unit) {}

  std::string add(const std::vector<double>& row) {
    std::string runs;
    size_t last = SIZE_MAX, count = 0;
    const auto flush = [&] {
      if (count > 0)
        runs +=
            fmt::format("{}{}", runs.empty() ? "" : " ", count > 1 ? fmt::format("{}*{}", last, count) : fmt::format("{}", last));
    };
    for (const double value : row) {
      const std::string text = std::isnan(value) ? "" : cell_text(value, unit_);
      const auto [found, is_new] = places_.try_emplace(text, places_.size());
      if (is_new && places_.size() > 1) all_ += '|';
      if (is_new) all_ += text;
      if (found->second != last) {
        flush();
        last = found->second;
        count = 0;
      }
      ++count;
    }
    flush();
    return runs;
  }
  const std::string& all() const { return all_; }

 private:
  Unit unit_;
  std::map<std::string, size_t> places_;
  std::string all_;
};

// Small shares with their digits: "<0.01%" twice would tell nothing.
std::string legend_text(double value, Unit unit) {
  return html_text(unit == Unit::share && value > 0 && value < 1e-3 ? fmt::format("{:.2g}%", 100 * value) : cell_text(value, unit));
}

std::string color_legend(const Plot& plot, const HeatGrid& grid) {
  std::string html = "<p class=\"legend colors\"><span>" +
                     legend_text(grid.worse_is_less ? grid.highest : grid.lowest, plot.y.unit) +
                     "</span><svg class=\"ramp\" viewBox=\"0 0 16 1\" preserveAspectRatio=\"none\" aria-hidden=\"true\">";
  for (int level = 0; level < kLevels; ++level) html += fmt::format("<path class=\"h{}\" d=\"M{} .5h1\"/>", level, level);
  html += "</svg><span>" + legend_text(grid.worse_is_less ? grid.lowest : grid.highest, plot.y.unit) + "</span>";
  if (!grid.is_linear && grid.highest > 0)
    html += fmt::format("<span class=\"soft\">{} in the middle</span>", legend_text(grid.highest / 4, plot.y.unit));
  if (plot.y.unit == Unit::bits) html += "<span class=\"soft\">powers of two</span>";
  return html + "<span class=\"soft\">blank: nothing recorded</span></p>\n";
}

std::string caption_html(const HeatGrid& grid) {
  if (grid.joined == 1) return "";
  return fmt::format("<p class=\"caption\">Each column is the {} of {} that were recorded.</p>\n",
                     grid.worse_is_less ? "least" : "largest", count_of(grid.joined, "column"));
}

// What the pointer needs to know of the columns.
std::string column_data(const Plot& plot, const HeatGrid& grid, const CellTexts& texts) {
  return fmt::format("data-n=\"{}\" data-from=\"{}\" data-width=\"{}\" data-x=\"{}\" data-y=\"{}\" data-texts=\"{}\"", grid.columns,
                     grid.first, (grid.end - grid.first) / static_cast<double>(grid.columns), html_text(shown_name(plot.x.name)),
                     html_text(shown_name(plot.y.name)), html_text(texts.all(), SIZE_MAX));
}

std::string column_axis(const Plot& plot, const HeatGrid& grid) {
  std::vector<AxisTick> ticks;
  for (const double x : round_numbers(grid.first, grid.end, 5, true))
    ticks.push_back({(x - grid.first) / (grid.end - grid.first), cell_text(x, plot.x.unit)});
  name_axis(ticks, plot.x);
  return axis_html(ticks);
}

std::string named_rows_html(const Plot& plot, const HeatGrid& grid) {
  CellTexts texts(plot.y.unit);
  std::vector<std::string> names, lines;
  for (size_t i = 0; i < std::min(grid.rows.size(), kMostRows); ++i) {
    std::array<std::string, kLevels> paths;
    add_runs(grid.rows[i], grid, 0, paths);
    double worst = NAN;
    for (const double value : grid.rows[i]) worst = grid.worse(worst, value);
    const std::string name = html_text(plot.series[i].name);
    const std::string most =
        std::isnan(worst) ? "nothing" : (grid.worse_is_less ? "down to " : "up to ") + cell_text(worst, plot.y.unit);
    names.push_back(plot.series[i].name);
    lines.push_back(
        fmt::format("<svg class=\"cells\" role=\"img\" aria-label=\"{0}: {1}\" viewBox=\"0 -.5 {2} 1\" "
                    "preserveAspectRatio=\"none\" data-v=\"{3}\"><title>{0}: {1}</title>{4}</svg>",
                    name, html_text(most), grid.columns, texts.add(grid.rows[i]), paths_html(paths)));
  }
  std::string html = color_legend(plot, grid) + fmt::format("<div class=\"named heat\" {}>\n", column_data(plot, grid, texts));
  if (!plot.marks.empty())
    html += "<div class=\"line head\"><span></span><svg class=\"strip\">" + mark_shapes_html(plot, grid.first, grid.end) +
            "</svg></div>\n";
  html += named_lines_html(names, lines, kShownRows);
  html += "<div class=\"line foot\"><span></span>" + column_axis(plot, grid) + "</div>\n</div>\n";
  return html + caption_html(grid) + html_not_drawn(grid.rows.size() - lines.size(), "row");
}

// Rows of exponents from the top down. Where there are more than fit, neighbours are joined.
struct ExponentRows {
  int lowest = 0, count = 0, joined = 1;
  std::vector<std::vector<double>> rows;

  // Of the lower edge of an exponent, as a share of the height.
  double down(int exponent) const { return 1 - static_cast<double>(exponent - lowest) / (count * joined); }
};

ExponentRows exponent_rows(const Plot& plot, const HeatGrid& grid) {
  const auto is_seen = [&](size_t row) {
    return std::any_of(grid.rows[row].begin(), grid.rows[row].end(), [](double value) { return !std::isnan(value); });
  };
  // Rows at both ends that hold nothing are not drawn, but for what shows the limits.
  int begin = static_cast<int>(grid.rows.size()), end = 0;
  const auto include = [&](int from, int to) {
    begin = std::min(begin, std::clamp(from, 0, static_cast<int>(grid.rows.size())));
    end = std::max(end, std::clamp(to, 0, static_cast<int>(grid.rows.size())));
  };
  for (size_t row = 0; row < grid.rows.size(); ++row)
    if (is_seen(row)) include(static_cast<int>(row), static_cast<int>(row) + 1);
  for (const Limit& limit : plot.limits)
    include(limit.exponent - plot.first_exponent - 2, limit.exponent - plot.first_exponent + 2);
  if (begin >= end) begin = 0, end = static_cast<int>(grid.rows.size());
  ExponentRows rows;
  rows.joined = std::max(1, (end - begin + static_cast<int>(kMostRows) - 1) / static_cast<int>(kMostRows));
  rows.count = (end - begin + rows.joined - 1) / rows.joined;
  rows.lowest = plot.first_exponent + begin;
  for (int from_top = 0; from_top < rows.count; ++from_top) {
    std::vector<double>& joined = rows.rows.emplace_back(grid.columns, NAN);
    const int lowest = begin + (rows.count - 1 - from_top) * rows.joined;
    for (int row = lowest; row < std::min(end, lowest + rows.joined); ++row)
      for (size_t column = 0; column < grid.columns; ++column)
        joined[column] = grid.worse(joined[column], grid.rows[static_cast<size_t>(row)][column]);
  }
  return rows;
}

std::string exponent_rows_html(const Plot& plot, const HeatGrid& grid) {
  const ExponentRows rows = exponent_rows(plot, grid);
  CellTexts texts(plot.y.unit);
  std::array<std::string, kLevels> paths;
  std::string values, limits, names;
  for (size_t i = 0; i < rows.rows.size(); ++i) {
    add_runs(rows.rows[i], grid, i, paths);
    if (i > 0) values += ';';
    values += texts.add(rows.rows[i]);
  }
  const int height = std::clamp(rows.count * 7, 120, 420);
  double free_from = -1;
  for (auto limit = plot.limits.rbegin(); limit != plot.limits.rend(); ++limit) {  // from the top down
    const double down = rows.down(limit->exponent);
    if (!(down >= 0 && down <= 1)) continue;
    for (const char* of : {"casing", "limit"})
      limits += fmt::format("<line class=\"{0}\" x1=\"0\" x2=\"100%\" y1=\"{1:.2f}%\" y2=\"{1:.2f}%\"/>", of, 100 * down);
    const double at = std::max(down * height, free_from);
    names += fmt::format("<text x=\"6\" y=\"{:.0f}\" dy=\"4\">{}</text>", at, html_text(limit->name));
    free_from = at + 14;
  }
  std::string exponents = "<svg class=\"values\" aria-hidden=\"true\">";
  for (const double exponent : round_numbers(rows.lowest, rows.lowest + rows.count * rows.joined, 6, true))
    exponents += fmt::format("<text x=\"100%\" y=\"{:.2f}%\" dy=\"4\" text-anchor=\"end\">{}</text>",
                             100 * rows.down(static_cast<int>(exponent)), cell_text(exponent, Unit::exponent));
  exponents += "</svg>";
  std::string html = color_legend(plot, grid);
  html += fmt::format(
      "<div class=\"chart heat limited\">{}<svg class=\"area grid-cells\" height=\"{}\" role=\"img\" aria-label=\"{}\" {} "
      "data-v=\"{}\" "
      "data-top=\"{}\" data-joined=\"{}\"><svg viewBox=\"0 -.5 {} {}\" preserveAspectRatio=\"none\">{}</svg>{}{}</svg>"
      "<svg class=\"names\" aria-hidden=\"true\">{}</svg>{}</div>\n",
      exponents, height, html_text(plot.title, kMostSentenceBytes), column_data(plot, grid, texts), values,
      rows.lowest + (rows.count - 1) * rows.joined, rows.joined, grid.columns, rows.count, paths_html(paths), limits,
      mark_shapes_html(plot, grid.first, grid.end), names, column_axis(plot, grid));
  html += caption_html(grid);
  if (rows.joined > 1) html += fmt::format("<p class=\"caption\">{} exponents a row.</p>\n", rows.joined);
  return html;
}

}  // namespace

std::string heatmap_html(const Plot& plot) {
  const std::optional<HeatGrid> grid = grid_of(plot);
  if (!grid) return "";
  return plot.has_exponent_rows() ? exponent_rows_html(plot, *grid) : named_rows_html(plot, *grid);
}

}  // namespace ulpscope
