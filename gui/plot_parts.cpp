#include "ulpscope/gui/plot_parts.h"

#include <fmt/format.h>

#include <cmath>

#include "ulpscope/analyzers/report/text.h"
#include "ulpscope/analyzers/report/value_scale.h"
#include "ulpscope/gui/content.h"

namespace ulpscope::gui {

float line_height() { return ImGui::GetTextLineHeight(); }

bool place(const std::string& name, ImVec2 size, Area& area) {
  area.from = ImGui::GetCursorScreenPos();
  area.to = {area.from.x + size.x, area.from.y + size.y};
  ImGui::InvisibleButton(name.c_str(), {std::max(1.0F, size.x), std::max(1.0F, size.y)});
  return ImGui::IsItemHovered();
}

Area area_of_steps(const Canvas& canvas, const Area& box) {
  const StepRange shown = canvas.shown();
  Area area = box;
  area.first = static_cast<double>(shown.first);
  area.last = static_cast<double>(std::max(shown.last, shown.first + 1));
  return area;
}

void take_steps(const Canvas& canvas, const Area& area, bool is_hovered) {
  ImGuiIO& io = ImGui::GetIO();
  const double pointed = area.value(io.MousePos.x);
  if (is_hovered && io.MouseWheel != 0) {
    const double factor = std::pow(0.8, io.MouseWheel);
    const double length = (area.last - area.first) * factor;
    const double first = pointed - (pointed - area.first) * factor;
    canvas.show_steps(first, first + std::max(1.0, length));
  }
  if (is_hovered && ImGui::IsMouseDoubleClicked(0)) {
    canvas.state->steps = {};
  } else if (is_hovered && ImGui::IsMouseReleased(0) && io.MouseClickedLastCount[0] < 2) {
    const ImVec2 dragged = ImGui::GetMouseDragDelta(0, 0);
    if (std::fabs(dragged.x) > 5) {
      const double other = area.value(io.MousePos.x - dragged.x);
      canvas.show_steps(std::floor(std::min(pointed, other)), std::ceil(std::max(pointed, other)));
    } else {
      canvas.state->step = static_cast<uint64_t>(std::clamp(std::floor(pointed), static_cast<double>(canvas.recorded.first),
                                                            static_cast<double>(canvas.recorded.last - 1)));
    }
  }
}

void draw_drag(ImDrawList& list, const Theme& theme, const Area& area, bool is_active) {
  if (!is_active || !ImGui::IsMouseDragging(0, 5)) return;
  const float x = ImGui::GetIO().MousePos.x, other = x - ImGui::GetMouseDragDelta(0, 5).x;
  list.AddRectFilled({std::max(area.from.x, std::min(x, other)), area.from.y}, {std::min(area.to.x, std::max(x, other)), area.to.y},
                     with_alpha(theme.accent, 50));
}

void draw_step_lines(const Canvas& canvas, ImDrawList& list, const Area& area, bool is_hovered) {
  if (canvas.state->step && static_cast<double>(*canvas.state->step) >= area.first &&
      static_cast<double>(*canvas.state->step) < area.last) {
    const float x = std::floor(area.x(static_cast<double>(*canvas.state->step) + 0.5));
    list.AddLine({x, area.from.y}, {x, area.to.y}, canvas.theme->background, 3);
    list.AddLine({x, area.from.y}, {x, area.to.y}, canvas.theme->accent, 1);
  }
  if (is_hovered) {
    const float x = std::floor(ImGui::GetIO().MousePos.x);
    list.AddLine({x, area.from.y}, {x, area.to.y}, with_alpha(canvas.theme->text, 70), 1);
  }
}

void draw_step_axis(const Canvas& canvas, ImDrawList& list, const Area& area, float left) {
  const float name_width = ImGui::CalcTextSize("step").x;
  if (area.from.x - left > name_width + 4)
    draw_text(list, {area.from.x - name_width - 4, area.to.y + 2}, canvas.theme->dim, "step");
  const auto most = static_cast<size_t>(std::max(1.0F, area.width() / (6 * ImGui::GetFontSize())));
  for (const double step : round_numbers(area.first, area.last, most, true)) {
    if (step >= area.last) break;
    const float x = std::floor(area.x(step));
    list.AddLine({x, area.to.y}, {x, area.to.y + 3}, canvas.theme->dim);
    const std::string text = fmt::format("{:.0f}", step);
    if (x + ImGui::CalcTextSize(text.c_str()).x <= area.to.x) draw_text(list, {x + 2, area.to.y + 2}, canvas.theme->dim, text);
  }
}

void draw_marks(const Canvas& canvas, ImDrawList& list, const Plot& plot, const Area& area, bool is_hovered, std::string& told) {
  for (const Mark& mark : plot.marks) {
    if (mark.to + 1 < area.first || mark.from >= area.last) continue;
    const float from = std::max(area.from.x, area.x(mark.from)), to = std::min(area.to.x, std::max(area.x(mark.to + 1), from + 1));
    const ImU32 color = canvas.theme->of(mark.severity);
    list.AddRectFilled({from, area.from.y}, {to, area.to.y}, with_alpha(color, 40));
    list.AddTriangleFilled({from - 3, area.from.y}, {from + 4, area.from.y}, {from + 0.5F, area.from.y + 6}, color);
    const float x = ImGui::GetIO().MousePos.x;
    if (is_hovered && x >= from - 3 && x <= to + 3) told += "\n" + mark.text;
  }
}

void show_plot_menu(const Plot& plot) {
  if (!ImGui::BeginPopupContextItem("plot menu")) return;
  if (ImGui::MenuItem("Copy as CSV")) ImGui::SetClipboardText(csv_of(plot).c_str());
  ImGui::EndPopup();
}

void show_plot(const Canvas& canvas, const Plot& plot, const PlotLook& look) {
  ImGui::PushID(plot.name.c_str());
  switch (plot.kind) {
    case PlotKind::histogram:
      show_histogram(canvas, plot, look);
      break;
    case PlotKind::steps:
      show_steps(canvas, plot, look);
      break;
    case PlotKind::heatmap:
      show_heatmap(canvas, plot, look);
      break;
    case PlotKind::graph:
      show_graph(canvas, plot, look);
      break;
  }
  ImGui::PopID();
}

std::string value_text(double value, Unit unit) {
  if (std::isnan(value)) return "not known";
  const std::string text = cell_text(value, unit), exact = fmt::format("{}", value);
  return text == exact || unit == Unit::count ? text : fmt::format("{} ({})", text, exact);
}

}  // namespace ulpscope::gui
