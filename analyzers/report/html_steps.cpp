// Series over steps: lines that hold until the next step, in one picture with one scale.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "ulpscope/analyzers/report/html_parts.h"
#include "ulpscope/analyzers/report/text.h"
#include "ulpscope/analyzers/report/value_scale.h"
#include "ulpscope/base/text.h"

namespace ulpscope {

namespace {

constexpr size_t kMostSeriesOfSteps = 24, kLineColors = 8;
constexpr size_t kMostPoints = 1200, kStretches = 300;    // a line of more points keeps four of each stretch
constexpr double kAreaWidth = 10000, kAreaHeight = 1000;  // of the area that lines are drawn in, whatever its size on the screen
constexpr double kPadding = 0.06;                         // of the height, above the highest and below the lowest value

// From where to where steps reach, and what the height stands for.
struct StepsFrame {
  double first = INFINITY, end = -INFINITY;
  ValueScale scale;

  double across(double x) const { return (x - first) / (end - first); }
  // From the top, 0 to 1.
  double down(double y) const { return kPadding + (1 - 2 * kPadding) * (1 - scale.place(y)); }
};

std::optional<StepsFrame> steps_frame(const Plot& plot) {
  StepsFrame frame;
  for (const Series& series : plot.series) {
    for (size_t i = 0; i < series.points(); ++i) {
      if (!std::isfinite(series.x[i])) continue;
      frame.first = std::min(frame.first, series.x[i]);
      if (const double end = plot.end_of(series, i); std::isfinite(end)) frame.end = std::max(frame.end, end);
    }
  }
  if (!(frame.end > frame.first)) return std::nullopt;
  frame.scale = value_scale(plot, kMostSeriesOfSteps, -INFINITY, INFINITY, 4);
  return frame;
}

// The points that are drawn, in order: of many, of each stretch the first, the last, the lowest and the highest.
std::vector<size_t> drawn_points(const Series& series) {
  const size_t count = series.points();
  std::vector<size_t> points;
  if (count <= kMostPoints) {
    for (size_t i = 0; i < count; ++i)
      if (std::isfinite(series.x[i])) points.push_back(i);
    return points;
  }
  for (size_t stretch = 0; stretch < kStretches; ++stretch) {
    const size_t begin = count * stretch / kStretches, end = count * (stretch + 1) / kStretches;
    std::set<size_t> kept{begin, end - 1};
    const auto less = [&](size_t a, size_t b) {
      return std::isnan(series.y[b]) ? !std::isnan(series.y[a]) : series.y[a] < series.y[b];
    };
    size_t lowest = begin, highest = begin;
    for (size_t i = begin; i < end; ++i) {
      if (less(i, lowest)) lowest = i;
      if (less(highest, i)) highest = i;
    }
    kept.insert({lowest, highest});
    for (const size_t i : kept)
      if (std::isfinite(series.x[i])) points.push_back(i);
  }
  return points;
}

std::string series_html(const Plot& plot, const Series& series, const StepsFrame& frame, size_t number) {
  std::string line, nonfinite, x, texts;
  const std::vector<size_t> points = drawn_points(series);
  bool is_down = false;
  for (size_t i = 0; i < points.size(); ++i) {
    const double at = series.x[points[i]], value = series.y[points[i]];
    const bool is_last = i + 1 == points.size();
    const double until = std::min(is_last ? plot.end_of(series, points[i]) : series.x[points[i + 1]], frame.end);
    const int from = static_cast<int>(std::lround(kAreaWidth * frame.across(at))),
              to = static_cast<int>(std::lround(kAreaWidth * frame.across(std::max(at, until))));
    if (std::isfinite(value)) {
      const int y = static_cast<int>(std::lround(kAreaHeight * frame.down(value)));
      // What is seen once is seen.
      const int least = is_down ? 0 : 40;
      line += fmt::format("{}{}H{}", is_down ? "V" : fmt::format("M{} ", from), y, std::max(to, from + (is_last ? least : 0)));
      is_down = true;
    } else {
      is_down = false;
      nonfinite += fmt::format("M{} 0H{}", from, std::max(to, from + 30));
    }
    const char* separator = i == 0 ? "" : "|";
    x += fmt::format("{}{}", separator, at);
    texts += separator;
    texts += cell_text(value, plot.y.unit);
  }
  std::string html;
  if (!nonfinite.empty()) html += fmt::format("<path class=\"nonfinite\" d=\"{}\"/>", nonfinite);
  html += fmt::format("<path class=\"s{}{}\" d=\"{}\" data-name=\"{}\" data-x=\"{}\" data-t=\"{}\"/>", number % kLineColors,
                      number >= kLineColors ? " dashed" : "", line.empty() ? "M0 0" : line, html_text(series.name), x,
                      html_text(texts, SIZE_MAX));
  return html;
}

std::string value_axis(const Plot& plot, const StepsFrame& frame, std::string& grid) {
  std::string html = "<svg class=\"values\" aria-hidden=\"true\">";
  for (const double value : frame.scale.ticks) {
    const double y = 100 * frame.down(value);
    html += fmt::format("<text x=\"100%\" y=\"{:.1f}%\" dy=\"4\" text-anchor=\"end\">{}</text>", y,
                        html_text(axis_text(value, plot.y.unit)));
    grid += fmt::format("<line class=\"grid\" x1=\"0\" x2=\"100%\" y1=\"{0:.1f}%\" y2=\"{0:.1f}%\"/>", y);
  }
  return html + "</svg>";
}

std::string legend_html(const Plot& plot, size_t drawn) {
  if (plot.series.size() < 2) return "";
  std::string html = "<ul class=\"legend\">";
  for (size_t i = 0; i < drawn; ++i)
    html += fmt::format("<li><svg class=\"key\" aria-hidden=\"true\"><path class=\"s{}{}\" d=\"M0 6H22\"/></svg>{}</li>",
                        i % kLineColors, i >= kLineColors ? " dashed" : "", html_text(plot.series[i].name));
  return html + "</ul>\n";
}

}  // namespace

std::string steps_html(const Plot& plot) {
  const std::optional<StepsFrame> frame = steps_frame(plot);
  if (!frame) return "";
  const size_t drawn = std::min(plot.series.size(), kMostSeriesOfSteps);
  std::string grid, lines, html;
  const std::string values = value_axis(plot, *frame, grid);
  for (size_t i = drawn; i-- > 0;) lines += series_html(plot, plot.series[i], *frame, i);  // the first above all others
  std::vector<AxisTick> ticks;
  for (const double x : round_numbers(frame->first, frame->end, 5, plot.x.unit == Unit::count || plot.x.name == "step"))
    if (x < frame->end) ticks.push_back({frame->across(x), cell_text(x, plot.x.unit)});
  name_axis(ticks, plot.x);
  html += fmt::format(
      "<div class=\"chart\">{}<svg class=\"area\" role=\"img\" aria-label=\"{}\" data-first=\"{}\" data-end=\"{}\" "
      "data-x=\"{}\">",
      values, html_text(plot.title, kMostSentenceBytes), frame->first, frame->end, html_text(shown_name(plot.x.name)));
  html += grid + fmt::format("<svg viewBox=\"0 0 {} {}\" preserveAspectRatio=\"none\">", kAreaWidth, kAreaHeight) + lines +
          "</svg>" + mark_shapes_html(plot, frame->first, frame->end) + "</svg>" + axis_html(ticks) + "</div>\n";
  html += legend_html(plot, drawn);
  std::string caption = frame->scale.is_logarithmic ? "Logarithmic scale. " : "";
  if (frame->scale.has_nonfinite) caption += "Red at the top: NaN or Inf.";
  if (!caption.empty()) html += fmt::format("<p class=\"caption\">{}</p>\n", caption);
  return html + html_not_drawn(plot.series.size() - drawn, "line");
}

}  // namespace ulpscope
