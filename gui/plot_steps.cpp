// Series over steps as lines.
#include <fmt/format.h>

#include <cmath>
#include <optional>
#include <span>

#include "ulpscope/analyzers/report/value_scale.h"
#include "ulpscope/base/text.h"
#include "ulpscope/gui/plot_parts.h"
#include "ulpscope/gui/series_lines.h"

namespace ulpscope::gui {

namespace {

constexpr float kMarginPixels = 3;  // pixels above the highest and below the lowest value

float y_of(const ValueScale& scale, double value, const Area& area) {
  return area.to.y - kMarginPixels - static_cast<float>(scale.place(value)) * (area.height() - 2 * kMarginPixels);
}

// Numbers at their values, from below upwards as far as there is room between them. `left`: where room for them begins.
void draw_value_axis(const Canvas& canvas, ImDrawList& list, const Plot& plot, const Area& area, const ValueScale& scale,
                     float left) {
  const float line = line_height();
  float free_to = INFINITY;
  for (const double value : scale.ticks) {
    const float y = y_of(scale, value, area), top = y - line / 2;
    list.AddLine({area.from.x, std::floor(y)}, {area.to.x, std::floor(y)}, with_alpha(canvas.theme->grid, 110));
    if (top + line > free_to) continue;
    free_to = top;
    const std::string text = fitted(axis_text(value, plot.y.unit), area.from.x - left - 4);
    const ImVec2 at{area.from.x - ImGui::CalcTextSize(text.c_str()).x - 4, top};
    draw_text(list, at, canvas.theme->dim, text);
    canvas.names->add(fmt::format("{} value {}", plot.name, text), {at, {area.from.x - 4, top + line}});
  }
}

// The value that holds at x, and where.
std::optional<size_t> held_at(const Series& series, double x) {
  const auto after = std::upper_bound(series.x.begin(), series.x.begin() + static_cast<ptrdiff_t>(series.points()), x);
  if (after == series.x.begin()) return std::nullopt;
  return static_cast<size_t>(after - series.x.begin() - 1);
}

// The line of series `s` of the plot; what is NaN or infinite is a bar at the top.
void draw_series(ImDrawList& list, const Theme& theme, const Plot& plot, size_t s, const Area& area, const ValueScale& scale) {
  const Series& series = plot.series[s];
  DashedLine dashed(list, theme, s);
  std::optional<ImVec2> last;
  // What holds far beyond the steps that are shown is as long as they are: dashes are drawn one by one.
  const auto x_of = [&](double x) { return std::clamp(area.x(x), area.from.x - 20, area.to.x + 20); };
  for (size_t i = 0; i < series.points(); ++i) {
    const double end = plot.end_of(series, i);
    if (!(end > area.first && series.x[i] < area.last)) continue;
    const float from = x_of(series.x[i]), to = std::max(x_of(end), from + 1);
    if (!std::isfinite(series.y[i])) {
      list.AddRectFilled({from, area.from.y}, {to, area.from.y + 3}, theme.error);
      last.reset();
      continue;
    }
    const float y = y_of(scale, series.y[i], area);
    if (last) dashed.add(*last, {from, y}, 1.2F);
    dashed.add({from, y}, {to, y}, 1.2F);
    last = ImVec2{to, y};
  }
}

std::span<const Series> drawn(const Plot& plot) { return std::span(plot.series).first(std::min(plot.series.size(), kMostSeries)); }

// The value of each series that is drawn in the step under the pointer, or the last one before.
std::string values_told(const Plot& plot, const Area& area) {
  const double pointed = std::floor(area.value(ImGui::GetIO().MousePos.x));
  // Of which steps a value is, where it is not of one alone.
  const auto steps_of = [&](double first, double end) {
    return end - first > 1 ? fmt::format("{}s {:.0f} to {:.0f}", plot.x.name, first, end - 1)
                           : fmt::format("{} {:.0f}", plot.x.name, first);
  };
  std::string text, head;
  for (const Series& series : drawn(plot)) {
    const auto at = held_at(series, pointed);
    if (!at) continue;
    const std::string steps = steps_of(series.x[*at], plot.end_of(series, *at));
    if (head.empty()) head = steps;
    text +=
        fmt::format("\n{}: {}{}", one_line(series.name), std::isnan(series.y[*at]) ? "NaN" : value_text(series.y[*at], plot.y.unit),
                    steps == head ? "" : fmt::format(" ({})", steps));
  }
  return (head.empty() ? steps_of(pointed, pointed + 1) : head) + text;
}

}  // namespace

void show_steps(const Canvas& canvas, const Plot& plot, const PlotLook& look) {
  const Theme& theme = *canvas.theme;
  const float line = line_height();
  Area box;
  const float wanted = look.height > 0 ? look.height : 9 * line;
  const bool is_in_box = place(plot.name, {ImGui::GetContentRegionAvail().x, wanted}, box);
  const bool is_active = ImGui::IsItemActive();
  show_plot_menu(plot);
  Area area = area_of_steps(canvas, box);
  area.from.y += line + 4;
  area.to.y -= line + 4;
  area.from.x += look.label_width > 0 ? look.label_width : std::min(6 * ImGui::GetFontSize(), 0.3F * box.width());
  area.to.x -= ImGui::GetStyle().ScrollbarSize;  // as heatmaps do
  canvas.names->add("plot " + plot.name, {area.from, area.to});
  if (area.width() < 20 || area.height() < 8) return;
  const auto most_ticks = static_cast<size_t>(std::max(2.0F, area.height() / (2 * line)));
  const ValueScale scale = value_scale(plot, kMostSeries, area.first, area.last, most_ticks);
  ImDrawList& list = *ImGui::GetWindowDrawList();
  list.AddRectFilled(area.from, area.to, theme.plot, 2);
  draw_text(list, {box.from.x, box.from.y}, theme.text, fitted(one_line(plot.title), box.width()));
  float legend = box.from.x + ImGui::CalcTextSize(plot.title.c_str()).x + line;
  const auto draw_word = [&](const char* word, ImU32 color) {
    const float width = ImGui::CalcTextSize(word).x;
    if (legend + width > box.to.x) return;
    draw_text(list, {legend, box.from.y}, color, word);
    legend += width + line;
  };
  if (scale.is_logarithmic) draw_word("logarithmic", theme.dim);
  if (scale.has_nonfinite) draw_word("red at the top: NaN or Inf", theme.error);
  if (plot.series.size() > 1) draw_series_legend(list, theme, plot, {legend, box.from.y}, box.to.x);
  const bool is_hovered = is_in_box && area.contains(ImGui::GetIO().MousePos);
  std::string told;
  if (scale.is_empty)
    draw_text(list, {area.from.x + 6, area.from.y + 4}, theme.dim,
              fitted("NaN, Inf or not known in all these steps", area.width() - 8));
  else
    draw_value_axis(canvas, list, plot, area, scale, box.from.x);
  list.PushClipRect(area.from, area.to, true);
  draw_marks(canvas, list, plot, area, is_hovered, told);
  for (size_t s = drawn(plot).size(); s-- > 0;) draw_series(list, theme, plot, s, area, scale);
  list.PopClipRect();
  draw_step_lines(canvas, list, area, is_hovered);
  draw_drag(list, theme, area, is_active);
  draw_step_axis(canvas, list, area, box.from.x);
  take_steps(canvas, area, is_hovered || (is_active && ImGui::IsMouseReleased(0)));
  if (is_hovered && !ImGui::IsMouseDragging(0, 5)) ImGui::SetTooltip("%s%s", values_told(plot, area).c_str(), told.c_str());
}

}  // namespace ulpscope::gui
