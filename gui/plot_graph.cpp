// Graphs: boxes in rows from the top down, and links between them.
#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "ulpscope/analyzers/report/graph_layout.h"
#include "ulpscope/base/text.h"
#include "ulpscope/gui/plot_parts.h"

namespace ulpscope::gui {

namespace {

constexpr float kMarginLines = 2;  // lines of text, left of all nodes: links that pass over rows

// A link between neighbouring rows goes from the middle of one box to that of the other; one that passes over rows goes around
// them at the left.
void draw_link(ImDrawList& list, const Theme& theme, const Rectangle& from, const Rectangle& to, bool is_marked, bool goes_around) {
  const float line = line_height(), thickness = is_marked ? 2.2F : 1.2F;
  const ImU32 color = is_marked ? theme.error : theme.dim;
  if (goes_around) {
    const ImVec2 start{from.from.x, from.middle().y}, end{to.from.x, to.middle().y};
    const float out = start.x - kMarginLines * line;
    list.AddBezierCubic(start, {out, start.y + line}, {out, end.y - line}, end, color, thickness);
    list.AddTriangleFilled({end.x - 6, end.y - 4}, {end.x - 6, end.y + 4}, end, color);
    return;
  }
  const ImVec2 start{from.middle().x, from.to.y}, end{to.middle().x, to.from.y};
  list.AddBezierCubic(start, {start.x, start.y + line}, {end.x, end.y - line}, end, color, thickness);
  list.AddTriangleFilled({end.x - 4, end.y - 6}, {end.x + 4, end.y - 6}, end, color);
}

}  // namespace

void show_graph(const Canvas& canvas, const Plot& plot, const PlotLook&) {
  const Theme& theme = *canvas.theme;
  const float line = line_height();
  ImGui::TextUnformatted(plot.title.c_str());
  if (plot.nodes.empty()) return;
  const float room = ImGui::GetContentRegionAvail().x - kMarginLines * line;
  const auto most_columns = static_cast<size_t>(std::max(1.0F, room / (20 * line)));
  struct Graph {
    std::vector<PlotLink> links;
    GraphLayout layout;
  };
  const auto& [links, layout] =
      canvas.kept->get<Graph>("layout of " + plot.name, &plot, fmt::format("{}", most_columns), [&](uint64_t) {
        std::vector<PlotLink> all = links_between(plot, plot.nodes.size());
        GraphLayout made = graph_layout(plot, plot.nodes.size(), all, most_columns);
        return Graph{std::move(all), std::move(made)};
      });
  const float box_height = 2.6F * line, distance = 4.2F * line;
  const float width = std::min(room / static_cast<float>(layout.columns), 34 * line);
  Area box;
  place(plot.name, {ImGui::GetContentRegionAvail().x, distance * static_cast<float>(layout.rows())}, box);
  ImDrawList& list = *ImGui::GetWindowDrawList();
  const auto rectangle = [&, &layout = layout](size_t i) {
    const float left = box.from.x + kMarginLines * line + width * static_cast<float>(layout.column[i]);
    const float top = box.from.y + distance * static_cast<float>(layout.row[i]);
    return Rectangle{{left, top}, {left + width - 8, top + box_height}};
  };
  for (const PlotLink& link : links)
    draw_link(list, theme, rectangle(link.from), rectangle(link.to), link.marked, layout.goes_around(link));
  const auto is_selected_node = [&](const PlotNode& node) {
    return !node.key.name.empty() && node.key.name == canvas.state->tensor &&
           (!node.key.step || node.key.step == canvas.state->step);
  };
  // Keys go along the way, from what comes first to what came of it, past what is no tensor.
  if (canvas.hands && canvas.hands->down != 0) {
    std::vector<size_t> tensors;
    for (size_t i = 0; i < plot.nodes.size(); ++i)
      if (!plot.nodes[i].key.name.empty()) tensors.push_back(i);
    std::optional<size_t> selected;
    for (size_t i = 0; i < tensors.size() && !(selected && canvas.hands->down < 0); ++i)
      if (is_selected_node(plot.nodes[tensors[i]])) selected = i;
    if (const size_t next = canvas.hands->take_row(tensors.size(), selected); next != SIZE_MAX) {
      select_place(*canvas.state, plot.nodes[tensors[next]].key);
      ImGui::SetScrollFromPosY(rectangle(tensors[next]).middle().y - ImGui::GetWindowPos().y);
    }
  }
  for (size_t i = 0; i < plot.nodes.size(); ++i) {
    const PlotNode& node = plot.nodes[i];
    const Rectangle at = rectangle(i);
    list.AddRectFilled(at.from, at.to, theme.panel, 4);
    list.AddRect(at.from, at.to, node.marked ? theme.error : theme.grid, 4, 0, node.marked ? 1.8F : 1.0F);
    if (is_selected_node(node)) list.AddRect({at.from.x - 3, at.from.y - 3}, {at.to.x + 3, at.to.y + 3}, theme.accent, 4, 0, 2);
    const float text_width = at.to.x - at.from.x - 12;
    draw_text(list, {at.from.x + 6, at.from.y + 0.2F * line}, theme.text, fitted_name(one_line(node.name), text_width));
    draw_text(list, {at.from.x + 6, at.from.y + 1.3F * line}, theme.dim, fitted(one_line(node.detail), text_width));
    canvas.names->add(fmt::format("{} node {}", plot.name, i), at);
    const ImVec2 mouse = ImGui::GetIO().MousePos;
    if (ImGui::IsItemHovered() && mouse.x >= at.from.x && mouse.x < at.to.x && mouse.y >= at.from.y && mouse.y < at.to.y) {
      ImGui::SetTooltip("%s\n%s", node.name.c_str(), node.detail.c_str());
      if (ImGui::IsMouseReleased(0)) select_place(*canvas.state, node.key);
    }
  }
}

}  // namespace ulpscope::gui
