// Heatmaps: what rows hold in columns of x, by colour. Rows of exponents are one picture, the highest on top, with limits between
// them; other rows have names, and are a picture each.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <span>

#include "ulpscope/analyzers/report/heat_cells.h"
#include "ulpscope/analyzers/report/html_parts.h"
#include "ulpscope/analyzers/report/text.h"
#include "ulpscope/analyzers/report/value_scale.h"
#include "ulpscope/base/text.h"

namespace ulpscope {

namespace {

// The two hundred worst of something, all of it, and the others together.
constexpr size_t kMostColumns = 256, kMostRows = 202, kShownRows = 40;
constexpr int kLevels = 16;  // of colour; as many classes stand in the style

// Which of the colours a cell has.
int level_of(const HeatCells& cells, double value) {
  return static_cast<int>(std::ceil(cells.strength(value) * (kLevels - 1) - 1e-9));
}

std::span<const double> row_of(const HeatCells& cells, size_t row) {
  return std::span(cells.values).subspan(row * cells.columns, cells.columns);
}

// Runs of cells of one colour, in the row at `y`.
void add_runs(std::span<const double> row, const HeatCells& cells, size_t y, std::array<std::string, kLevels>& paths) {
  for (size_t at = 0; at < row.size();) {
    if (std::isnan(row[at])) {
      ++at;
      continue;
    }
    const int level = level_of(cells, row[at]);
    size_t end = at + 1;
    while (end < row.size() && !std::isnan(row[end]) && level_of(cells, row[end]) == level) ++end;
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

  std::string add(std::span<const double> row) {
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

std::string color_legend(const Plot& plot, const HeatCells& cells) {
  const double least = cells.is_empty() || !cells.is_linear ? 0 : cells.lowest, most = cells.is_empty() ? 0 : cells.highest;
  const auto text = [&](double value) { return html_text(axis_text(value, plot.y.unit)); };
  std::string html = "<p class=\"legend colors\"><span>" + text(cells.worse_is_less ? most : least) +
                     "</span><svg class=\"ramp\" viewBox=\"0 0 16 1\" preserveAspectRatio=\"none\" aria-hidden=\"true\">";
  for (int level = 0; level < kLevels; ++level) html += fmt::format("<path class=\"h{}\" d=\"M{} .5h1\"/>", level, level);
  html += "</svg><span>" + text(cells.worse_is_less ? least : most) + "</span>";
  if (!cells.is_linear && most > 0) html += fmt::format("<span class=\"soft\">{} in the middle</span>", text(most / 4));
  if (plot.y.unit == Unit::bits) html += "<span class=\"soft\">powers of two</span>";
  const char* const blank = plot.has_exponent_rows() ? "blank: none, or not recorded" : "blank: not known";
  return html + fmt::format("<span class=\"soft\">{}</span></p>\n", blank);
}

std::string caption_html(const HeatCells& cells) {
  std::string caption;
  if (cells.joined_columns > 1)
    caption = fmt::format("Each column is the {} of {} that were recorded. ",
                          cells.adds            ? "sum"
                          : cells.worse_is_less ? "least"
                                                : "largest",
                          count_of(cells.joined_columns, "column"));
  if (cells.joined_rows > 1) caption += fmt::format("{} exponents a row.", cells.joined_rows);
  return caption.empty() ? "" : fmt::format("<p class=\"caption\">{}</p>\n", caption);
}

// What the pointer needs to know of the columns.
std::string column_data(const Plot& plot, const HeatCells& cells, const CellTexts& texts) {
  return fmt::format("data-n=\"{}\" data-from=\"{}\" data-width=\"{}\" data-x=\"{}\" data-y=\"{}\" data-texts=\"{}\"",
                     cells.columns, cells.first, cells.width, html_text(shown_name(plot.x.name)),
                     html_text(shown_name(plot.y.name)), html_text(texts.all(), SIZE_MAX));
}

std::string column_axis(const Plot& plot, const HeatCells& cells) {
  std::vector<AxisTick> ticks;
  for (const double x : round_numbers(cells.first, cells.plot_end, 5, true))
    if (x < cells.plot_end) ticks.push_back({(x - cells.first) / (cells.end() - cells.first), cell_text(x, plot.x.unit)});
  name_axis(ticks, plot.x);
  return axis_html(ticks);
}

std::string named_rows_html(const Plot& plot) {
  const HeatCells cells = heat_cells(plot, kMostColumns, plot.series.size(), {0, kMostRows});
  CellTexts texts(plot.y.unit);
  std::vector<std::string> names, lines;
  for (size_t i = 0; i < cells.rows; ++i) {
    const std::span<const double> row = row_of(cells, i);
    std::array<std::string, kLevels> paths;
    add_runs(row, cells, 0, paths);
    double worst = NAN;
    for (const double value : row) worst = cells.worse(worst, value);
    const std::string name = html_text(plot.series[i].name);
    const std::string most =
        std::isnan(worst) ? "nothing" : (cells.worse_is_less ? "down to " : "up to ") + cell_text(worst, plot.y.unit);
    names.push_back(plot.series[i].name);
    lines.push_back(
        fmt::format("<svg class=\"cells\" role=\"img\" aria-label=\"{0}: {1}\" viewBox=\"0 -.5 {2} 1\" "
                    "preserveAspectRatio=\"none\" data-v=\"{3}\"><title>{0}: {1}</title>{4}</svg>",
                    name, html_text(most), cells.columns, texts.add(row), paths_html(paths)));
  }
  std::string html = color_legend(plot, cells) + fmt::format("<div class=\"named heat\" {}>\n", column_data(plot, cells, texts));
  if (!plot.marks.empty())
    html += "<div class=\"line head\"><span></span><svg class=\"strip\">" + mark_shapes_html(plot, cells.first, cells.end()) +
            "</svg></div>\n";
  html += named_lines_html(names, lines, kShownRows);
  html += "<div class=\"line foot\"><span></span>" + column_axis(plot, cells) + "</div>\n</div>\n";
  return html + caption_html(cells) + html_not_drawn(plot.series.size() - cells.rows, "row");
}

// Rows at both ends that hold nothing are not drawn, but for what shows the limits.
RowRange drawn_exponents(const Plot& plot) {
  const auto is_seen = [](const Series& row) {
    return std::any_of(row.y.begin(), row.y.end(), [](double value) { return !std::isnan(value); });
  };
  const auto count = static_cast<int64_t>(plot.series.size());
  int64_t begin = count, end = 0;
  const auto include = [&](int64_t from, int64_t to) {
    begin = std::min(begin, std::clamp<int64_t>(from, 0, count));
    end = std::max(end, std::clamp<int64_t>(to, 0, count));
  };
  for (int64_t row = 0; row < count; ++row)
    if (is_seen(plot.series[static_cast<size_t>(row)])) include(row, row + 1);
  for (const Limit& limit : plot.limits) {
    const int64_t row = int64_t{limit.exponent} - plot.first_exponent;
    include(row - 2, row + 2);
  }
  if (begin >= end) return {};
  return {static_cast<size_t>(begin), static_cast<size_t>(end)};
}

// Rows of exponents from the top down.
std::string exponent_rows_html(const Plot& plot) {
  const HeatCells cells = heat_cells(plot, kMostColumns, kMostRows, drawn_exponents(plot));
  const int lowest = plot.first_exponent + static_cast<int>(cells.first_row), rows = static_cast<int>(cells.rows),
            joined = static_cast<int>(cells.joined_rows);
  // Of the lower edge of an exponent, as a share of the height.
  const auto down = [&](double exponent) { return 1 - (exponent - lowest) / (rows * joined); };
  CellTexts texts(plot.y.unit);
  std::array<std::string, kLevels> paths;
  std::string values, limits, names;
  for (size_t i = 0; i < cells.rows; ++i) {
    const std::span<const double> row = row_of(cells, cells.rows - 1 - i);
    add_runs(row, cells, i, paths);
    if (i > 0) values += ';';
    values += texts.add(row);
  }
  const int height = std::clamp(rows * 7, 120, 420);
  double free_from = -1;
  for (auto limit = plot.limits.rbegin(); limit != plot.limits.rend(); ++limit) {  // from the top down
    const double place = down(limit->exponent);
    if (!(place >= 0 && place <= 1)) continue;
    for (const char* of : {"casing", "limit"})
      limits += fmt::format("<line class=\"{0}\" x1=\"0\" x2=\"100%\" y1=\"{1:.2f}%\" y2=\"{1:.2f}%\"/>", of, 100 * place);
    const double at = std::max(place * height, free_from);
    names += fmt::format("<text x=\"6\" y=\"{:.0f}\" dy=\"4\">{}</text>", at, html_text(limit->name));
    free_from = at + 14;
  }
  std::string exponents = "<svg class=\"values\" aria-hidden=\"true\">";
  for (const double exponent : round_numbers(lowest, lowest + rows * joined, 6, true))
    exponents += fmt::format("<text x=\"100%\" y=\"{:.2f}%\" dy=\"4\" text-anchor=\"end\">{}</text>", 100 * down(exponent),
                             cell_text(exponent, Unit::exponent));
  exponents += "</svg>";
  std::string html = color_legend(plot, cells);
  html += fmt::format(
      "<div class=\"chart heat limited\">{}<svg class=\"area grid-cells\" height=\"{}\" role=\"img\" aria-label=\"{}\" {} "
      "data-v=\"{}\" "
      "data-top=\"{}\" data-joined=\"{}\"><svg viewBox=\"0 -.5 {} {}\" preserveAspectRatio=\"none\">{}</svg>{}{}</svg>"
      "<svg class=\"names\" aria-hidden=\"true\">{}</svg>{}</div>\n",
      exponents, height, html_text(plot.title, kMostSentenceBytes), column_data(plot, cells, texts), values,
      lowest + (rows - 1) * joined, joined, cells.columns, rows, paths_html(paths), limits,
      mark_shapes_html(plot, cells.first, cells.end()), names, column_axis(plot, cells));
  return html + caption_html(cells);
}

}  // namespace

std::string heatmap_html(const Plot& plot) {
  if (heat_columns(plot).count == 0) return "";
  return plot.has_exponent_rows() ? exponent_rows_html(plot) : named_rows_html(plot);
}

}  // namespace ulpscope
