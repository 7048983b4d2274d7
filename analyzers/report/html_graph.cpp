// Graphs as pictures of boxes and links, and the same in words.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ulpscope/analyzers/report/graph_layout.h"
#include "ulpscope/analyzers/report/html_parts.h"
#include "ulpscope/analyzers/report/text.h"
#include "ulpscope/analyzers/report/text_layout.h"
#include "ulpscope/base/text.h"

namespace ulpscope {

namespace {

constexpr size_t kMostNodes = 200, kMostLinks = 1000, kMostNodeColumns = 3;  // three are as wide as the page
constexpr int kNodeWidth = 372, kNodeHeight = 56, kAcross = 32, kDown = 36;  // of a node, and between two
constexpr int kMargin = 48;                                                  // left of all nodes: links that pass over layers
constexpr size_t kNameColumns = 46, kDetailColumns = 60;                     // of text that fits a node

struct Places {
  GraphLayout layout;

  int left(size_t node) const { return kMargin + static_cast<int>(layout.column[node]) * (kNodeWidth + kAcross); }
  int top(size_t node) const { return 2 + static_cast<int>(layout.row[node]) * (kNodeHeight + kDown); }
  int width() const { return kMargin + static_cast<int>(layout.columns) * (kNodeWidth + kAcross) - kAcross + 2; }
  int height() const { return static_cast<int>(layout.rows()) * (kNodeHeight + kDown) - kDown + 4; }
};

std::string link_html(const Places& places, const PlotLink& link, size_t number) {
  const char* marked = link.marked ? " marked" : "";
  if (places.layout.goes_around(link)) {
    const int left = kMargin, from = places.top(link.from) + kNodeHeight / 2 + 6, to = places.top(link.to) + kNodeHeight / 2 - 6;
    const int out = left - 14 - static_cast<int>(number % 4) * 8;
    return fmt::format("<path class=\"link{}\" d=\"M{} {}C{} {} {} {} {} {}\"/><path class=\"head{}\" d=\"M{} {}l-8 -4v8z\"/>\n",
                       marked, left, from, out, from, out, to, left - 7, to, marked, left, to);
  }
  const int x1 = places.left(link.from) + kNodeWidth / 2, y1 = places.top(link.from) + kNodeHeight;
  const int x2 = places.left(link.to) + kNodeWidth / 2, y2 = places.top(link.to);
  const int bend = std::max(kDown / 2, (y2 - y1) / 3);
  return fmt::format("<path class=\"link{}\" d=\"M{} {}C{} {} {} {} {} {}\"/><path class=\"head{}\" d=\"M{} {}l-4 -8h8z\"/>\n",
                     marked, x1, y1, x1, y1 + bend, x2, y2 - bend, x2, y2 - 7, marked, x2, y2);
}

std::string node_html(const Places& places, const PlotNode& node, size_t i) {
  const auto shortened = [](const std::string& text, size_t columns) {
    return html_text(shorten_texts({one_line(valid_utf8(text.substr(0, kMostSentenceBytes)))}, columns, true).front());
  };
  const int x = places.left(i), y = places.top(i);
  const bool has_detail = !node.detail.empty();
  std::string html =
      fmt::format("<g class=\"node{}\"><title>{}{}{}</title><rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"8\"/>",
                  node.marked ? " marked" : "", html_text(node.name), has_detail ? ": " : "",
                  html_text(node.detail, kMostSentenceBytes), x, y, kNodeWidth, kNodeHeight);
  html += fmt::format("<text x=\"{}\" y=\"{}\">{}</text>", x + 14, y + (has_detail ? 24 : 33), shortened(node.name, kNameColumns));
  if (has_detail)
    html +=
        fmt::format("<text class=\"detail\" x=\"{}\" y=\"{}\">{}</text>", x + 14, y + 43, shortened(node.detail, kDetailColumns));
  return html + "</g>\n";
}

// The same in words, whole.
std::string node_list_html(const Plot& plot, size_t count, const std::vector<PlotLink>& links) {
  std::string html = "<details><summary>The same in words</summary>\n<ol class=\"nodes\">\n";
  for (size_t i = 0; i < count; ++i) {
    const PlotNode& node = plot.nodes[i];
    html += fmt::format("<li{}><strong>{}</strong>", node.marked ? " class=\"marked\"" : "", html_text(node.name));
    if (!node.detail.empty()) html += ": " + html_text(node.detail, kMostSentenceBytes);
    std::string from;
    for (const PlotLink& link : links)
      if (link.to == i) from += (from.empty() ? "" : ", ") + html_text(plot.nodes[link.from].name);
    if (!from.empty()) html += fmt::format(" <span class=\"soft\">from {}</span>", from);
    html += "</li>\n";
  }
  return html + "</ol>\n</details>\n";
}

}  // namespace

std::string graph_html(const Plot& plot, size_t number) {
  const size_t count = std::min(plot.nodes.size(), kMostNodes);
  const std::vector<PlotLink> links = links_between(plot, count, kMostLinks);
  const Places places{graph_layout(plot, count, links, kMostNodeColumns)};
  std::string html = fmt::format(
      "<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"{0}\">\n"
      "<svg class=\"graph\" id=\"graph-{1}\" width=\"{2}\" height=\"{3}\" viewBox=\"0 0 {2} {3}\" role=\"img\" "
      "aria-label=\"{0}\">\n",
      html_text(plot.title, kMostSentenceBytes), number, places.width(), places.height());
  for (const bool marked : {false, true})  // what is marked lies above
    for (size_t i = 0; i < links.size(); ++i)
      if (links[i].marked == marked) html += link_html(places, links[i], i);
  for (size_t i = 0; i < count; ++i) html += node_html(places, plot.nodes[i], i);
  html += "</svg>\n</div>\n";
  return html + html_not_drawn(plot.nodes.size() - count, "node") + node_list_html(plot, count, links);
}

}  // namespace ulpscope
