#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ulpscope/analyzers/report/html_parts.h"
#include "ulpscope/analyzers/report/text.h"
#include "ulpscope/base/text.h"

namespace ulpscope {

namespace {

constexpr size_t kMostMarks = 200, kListedMarks = 40, kLongMarks = 8;

std::string mark_line(const Plot& plot, const Mark& mark) {
  const std::string from = cell_text(mark.from, plot.x.unit), to = cell_text(mark.to, plot.x.unit);
  return fmt::format("{} {}{}: {}", plot.x.name, from, mark.to > mark.from ? " to " + to : "", mark.text);
}

bool is_empty(const Plot& plot) { return plot.kind == PlotKind::graph ? plot.nodes.empty() : plot.series.empty(); }

std::string content_html(const Plot& plot, size_t number) {
  std::string html;
  if (!is_empty(plot)) {
    switch (plot.kind) {
      case PlotKind::histogram:
        html = histogram_html(plot);
        break;
      case PlotKind::steps:
        html = steps_html(plot);
        break;
      case PlotKind::heatmap:
        html = heatmap_html(plot);
        break;
      case PlotKind::graph:
        html = graph_html(plot, number);
        break;
    }
  }
  return html.empty() ? "<p class=\"soft\">no values</p>\n" : html + mark_list_html(plot);
}

}  // namespace

void name_axis(std::span<AxisTick> ticks, const Axis& axis) {
  if (!ticks.empty()) ticks.front().text = shown_name(axis.name) + " " + ticks.front().text;
}

std::string axis_html(std::span<const AxisTick> ticks, bool is_staggered) {
  std::string html = fmt::format("<svg class=\"axis{}\" aria-hidden=\"true\">", is_staggered ? " two" : "");
  size_t line = 0;
  for (const AxisTick& tick : ticks) {
    if (!(tick.place >= 0 && tick.place <= 1)) continue;
    const char* anchor = tick.place < 0.05 ? "start" : tick.place > 0.91 ? "end" : "middle";
    html += fmt::format("<text x=\"{:.2f}%\" y=\"{}\" text-anchor=\"{}\">{}</text>", 100 * tick.place,
                        is_staggered && line++ % 2 == 1 ? 28 : 13, anchor, html_text(tick.text));
  }
  return html + "</svg>";
}

std::string mark_shapes_html(const Plot& plot, double first, double end) {
  std::string html;
  const size_t drawn = std::min(plot.marks.size(), kMostMarks);
  const char* length = plot.marks.size() > kLongMarks ? "8%" : "100%";  // many would hide what they mark
  for (const Mark& mark : std::span(plot.marks).first(drawn)) {
    const auto place = [&](double x) { return 100 * std::clamp((x - first) / (end - first), 0.0, 1.0); };
    if (!std::isfinite(mark.from) || !std::isfinite(mark.to)) continue;
    const std::string title = fmt::format("<title>{}</title>", html_text(mark_line(plot, mark)));
    if (mark.to > mark.from) {
      html += fmt::format("<rect class=\"band {}\" x=\"{:.3f}%\" width=\"{:.3f}%\" y=\"0\" height=\"100%\">{}</rect>",
                          name_of(mark.severity), place(mark.from), place(mark.to) - place(mark.from), title);
    } else {
      html += fmt::format("<line class=\"mark {0}\" x1=\"{1:.3f}%\" x2=\"{1:.3f}%\" y1=\"0\" y2=\"{2}\">{3}</line>",
                          name_of(mark.severity), place(mark.from), length, title);
    }
  }
  return html;
}

std::string mark_list_html(const Plot& plot) {
  if (plot.marks.empty()) return "";
  std::string html =
      fmt::format("<details class=\"marks\"><summary>{} in this picture</summary>\n<ul>\n", count_of(plot.marks.size(), "mark"));
  const size_t listed = std::min(plot.marks.size(), kListedMarks);
  for (const Mark& mark : std::span(plot.marks).first(listed))
    html += fmt::format("<li class=\"{}\">{}</li>\n", name_of(mark.severity), html_text(mark_line(plot, mark), kMostSentenceBytes));
  return html + "</ul>\n" + html_not_drawn(plot.marks.size() - listed, "mark") + "</details>\n";
}

std::string named_lines_html(std::span<const std::string> names, std::span<const std::string> lines, size_t shown) {
  std::string html = "<div class=\"lines\">\n";
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i == shown) html += fmt::format("<details class=\"more\"><summary>{} more</summary>\n", lines.size() - shown);
    html += fmt::format("<div class=\"line\"><span class=\"name\">{}</span>{}</div>\n", html_text(names[i]), lines[i]);
  }
  return html + (lines.size() > shown ? "</details>\n" : "") + "</div>\n";
}

std::string plot_html(const Plot& plot, size_t number, HtmlRoom& room) {
  const std::string head = fmt::format("<section class=\"card plot {0}\" id=\"plot-{1}\">\n<h3>{2}</h3>\n", name_of(plot.kind),
                                       number, html_text(plot.title, kMostSentenceBytes));
  std::string content = content_html(plot, number);
  if (!room.take(head.size() + content.size() + 20)) content = "<p class=\"left-out\">There is no room for this picture.</p>\n";
  return head + content + html_left_out(plot.series_left_out, "line") + "</section>\n";
}

}  // namespace ulpscope
