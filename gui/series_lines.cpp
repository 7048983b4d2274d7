#include "ulpscope/gui/series_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "ulpscope/base/text.h"
#include "ulpscope/gui/canvas.h"

namespace ulpscope::gui {

void DashedLine::add(ImVec2 from, ImVec2 to, float thickness) {
  const float length = std::hypot(to.x - from.x, to.y - from.y), period = dash_[0] + dash_[1];
  if (period == 0 || length == 0) {
    list_.AddLine(from, to, color_, thickness);
    return;
  }
  const auto at = [&](float part) {
    return ImVec2{from.x + (to.x - from.x) * part / length, from.y + (to.y - from.y) * part / length};
  };
  for (float begin = -gone_; begin < length; begin += period) {
    const float first = std::max(0.0F, begin), last = std::min(length, begin + dash_[0]);
    if (last > first) list_.AddLine(at(first), at(last), color_, thickness);
  }
  gone_ = std::fmod(gone_ + length, period);
}

void draw_series_legend(ImDrawList& list, const Theme& theme, const Plot& plot, ImVec2 at, float right) {
  const size_t drawn = std::min(plot.series.size(), kMostSeries);
  const float line = ImGui::GetTextLineHeight(), key = 1.6F * line;
  const auto rest_of = [&](size_t named) {
    const size_t hidden = plot.series.size() - drawn;
    if (named == plot.series.size()) return std::string();
    return fmt::format("and {} more{}", plot.series.size() - named, hidden > 0 ? fmt::format(", {} not drawn", hidden) : "");
  };
  for (size_t i = 0; i < drawn; ++i) {
    const std::string name = one_line(plot.series[i].name);
    const float end = at.x + key + ImGui::CalcTextSize(name.c_str()).x + line;
    const std::string rest = rest_of(i + 1);
    const bool rest_fits = rest.empty() || end + ImGui::CalcTextSize(rest.c_str()).x <= right;
    if (end - line > right || (!rest_fits && i > 0)) {
      if (const std::string all = rest_of(i); at.x + ImGui::CalcTextSize(all.c_str()).x <= right)
        draw_text(list, at, theme.dim, all);
      return;
    }
    DashedLine(list, theme, i).add({at.x, at.y + line * 0.52F}, {at.x + key - 0.3F * line, at.y + line * 0.52F}, 3);
    draw_text(list, {at.x + key, at.y}, theme.dim, name);
    if (!rest_fits) return;
    at.x = end;
  }
  draw_text(list, at, theme.dim, rest_of(drawn));
}

}  // namespace ulpscope::gui
