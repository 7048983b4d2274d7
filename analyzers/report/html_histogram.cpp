// Histograms of exponents: a line of bars for each series, all on one axis, against the limits of a format.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "ulpscope/analyzers/report/html_parts.h"
#include "ulpscope/analyzers/report/text.h"
#include "ulpscope/analyzers/report/value_scale.h"
#include "ulpscope/base/text.h"

namespace ulpscope {

namespace {

constexpr size_t kShownSeries = 12, kMostSeries = 200;
constexpr int kMostExponents = 1200;  // more than FP64 has between its limits: about 2100 are cut at their low end
constexpr int kBarHeight = 100;       // of the tallest bar, whatever its size on the screen

struct HistogramFrame {
  int first = std::numeric_limits<int>::max(), last = std::numeric_limits<int>::min();

  int width() const { return last - first + 1; }
  double place(int exponent) const { return static_cast<double>(exponent - first) / width(); }
};

std::optional<HistogramFrame> histogram_frame(const Plot& plot) {
  HistogramFrame frame;
  for (const Series& series : plot.series) {
    for (size_t i = 0; i < series.points(); ++i) {
      if (!(series.y[i] > 0) || !(std::fabs(series.x[i]) < 1e5)) continue;
      frame.first = std::min(frame.first, static_cast<int>(series.x[i]));
      frame.last = std::max(frame.last, static_cast<int>(series.x[i]));
    }
  }
  if (frame.first > frame.last) return std::nullopt;
  for (const Limit& limit : plot.limits) {  // two exponents beyond each limit, where its name stands
    frame.first = std::min(frame.first, limit.exponent - 2);
    frame.last = std::max(frame.last, limit.exponent + 1);
  }
  frame.first = std::max(frame.first, frame.last - kMostExponents + 1);
  return frame;
}

// What becomes of values of this exponent, by the name of the limit that they lie above.
const char* zone(const Plot& plot, int exponent) {
  const Limit* below = nullptr;
  for (const Limit& limit : plot.limits)
    if (limit.exponent <= exponent) below = &limit;
  const auto says = [](const Limit& limit, const char* what) { return limit.name.find(what) != std::string::npos; };
  if (!below) return !plot.limits.empty() && says(plot.limits.front(), "subnormal") ? "lost" : "fits";
  return says(*below, "overflow") ? "over" : says(*below, "subnormal") ? "coarse" : "fits";
}

std::string bars_html(const Plot& plot, const Series& series, const HistogramFrame& frame) {
  std::vector<double> counts(static_cast<size_t>(frame.width()), 0.0);
  for (size_t i = 0; i < series.points(); ++i) {
    if (!(series.y[i] > 0) || !(series.x[i] >= frame.first) || series.x[i] > frame.last) continue;
    counts[static_cast<size_t>(static_cast<int>(series.x[i]) - frame.first)] += series.y[i];
  }
  // As in text: heights are square roots, and never nothing for something, since underflow is about the rare.
  const double tallest = *std::max_element(counts.begin(), counts.end());
  std::vector<std::pair<const char*, std::string>> paths;
  std::string values;
  for (size_t i = 0; i < counts.size(); ++i) {
    values += fmt::format("{}{:.0f}", i == 0 ? "" : " ", counts[i]);
    if (!(counts[i] > 0)) continue;
    const int height = std::clamp(static_cast<int>(std::lround(kBarHeight * std::sqrt(counts[i] / tallest))), 4, kBarHeight);
    const char* const of = zone(plot, frame.first + static_cast<int>(i));
    if (paths.empty() || paths.back().first != of) paths.emplace_back(of, "");
    paths.back().second += fmt::format("M{} {}v-{}h1v{}z", i, kBarHeight, height, height);
  }
  std::string limits;
  for (const Limit& limit : plot.limits)
    if (limit.exponent > frame.first) limits += fmt::format("M{} 0V{}", limit.exponent - frame.first, kBarHeight);
  std::string html = fmt::format(
      "<svg class=\"bars\" role=\"img\" aria-label=\"{}\" viewBox=\"0 0 {} {}\" preserveAspectRatio=\"none\" "
      "data-v=\"{}\"><title>{}: at most {} in one exponent</title>",
      html_text(series.name), frame.width(), kBarHeight, values, html_text(series.name),
      html_text(cell_text(tallest, plot.y.unit)));
  if (!limits.empty()) html += fmt::format("<path class=\"limit\" d=\"{}\"/>", limits);
  for (const auto& [of, path] : paths) html += fmt::format("<path class=\"{}\" d=\"{}\"/>", of, path);
  html += "</svg>";
  std::string beyond;
  if (series.below > 0) beyond += fmt::format("{} below all exponents", html_text(cell_text(series.below, plot.y.unit)));
  if (series.above > 0)
    beyond += fmt::format("{}{} above all exponents", beyond.empty() ? "" : ", ", html_text(cell_text(series.above, plot.y.unit)));
  return beyond.empty() ? html : html + fmt::format("<span class=\"beyond\">{}</span>", beyond);
}

std::string zone_legend(const Plot& plot) {
  static constexpr std::pair<const char*, const char*> kZones[] = {
      {"lost", "below: becomes zero"}, {"coarse", "subnormal: fewer bits"}, {"fits", "normal"}, {"over", "overflows"}};
  const bool is_of_a_format = std::any_of(plot.limits.begin(), plot.limits.end(),
                                          [](const Limit& limit) { return limit.name.find("subnormal") != std::string::npos; });
  if (!is_of_a_format) return "";
  std::string html = "<ul class=\"legend\">";
  for (const auto& [zone, text] : kZones)
    html += fmt::format("<li><svg class=\"key\" aria-hidden=\"true\"><rect class=\"{}\" width=\"12\" height=\"12\"/></svg>{}</li>",
                        zone, text);
  return html + "</ul>\n";
}

}  // namespace

std::string histogram_html(const Plot& plot) {
  const std::optional<HistogramFrame> frame = histogram_frame(plot);
  if (!frame) return "";
  std::vector<AxisTick> limits, exponents;
  for (const Limit& limit : plot.limits) limits.push_back({frame->place(limit.exponent), limit.name});
  for (const double exponent : round_numbers(frame->first, frame->last, 6, true))
    exponents.push_back({frame->place(static_cast<int>(exponent)), cell_text(exponent, plot.x.unit)});
  std::vector<std::string> names, lines;
  for (const Series& series : std::span(plot.series).first(std::min(plot.series.size(), kMostSeries))) {
    names.push_back(series.name);
    lines.push_back(bars_html(plot, series, *frame));
  }
  std::string html = zone_legend(plot);
  html += fmt::format("<div class=\"named\" data-first=\"{}\" data-y=\"{}\">\n<div class=\"line head\"><span></span>{}</div>\n",
                      frame->first, html_text(shown_name(plot.y.name)), axis_html(limits, true));
  html += named_lines_html(names, lines, kShownSeries);
  html += fmt::format("<div class=\"line foot\"><span></span>{}</div>\n</div>\n", axis_html(exponents));
  html += fmt::format(
      "<p class=\"caption\">{} by {}. Heights are square roots, each line by its own tallest bar, so that what is rare "
      "is seen too.",
      html_text(shown_name(plot.y.name)), html_text(shown_name(plot.x.name)));
  for (size_t i = 0; i < plot.limits.size(); ++i)
    html += fmt::format("{}{} from {} on", i == 0 ? " Limits: " : ", ", html_text(plot.limits[i].name),
                        cell_text(static_cast<int64_t>(plot.limits[i].exponent), Unit::exponent));
  html += plot.limits.empty() ? "</p>\n" : ".</p>\n";
  return html + html_not_drawn(plot.series.size() - lines.size(), "line");
}

}  // namespace ulpscope
