// Histograms over exponents: a row of bars for each series.
#include <fmt/format.h>

#include <cmath>

#include "ulpscope/base/text.h"
#include "ulpscope/gui/plot_parts.h"

namespace ulpscope::gui {

namespace {

struct Range {
  double lowest = INFINITY, highest = -INFINITY;
  void add(double value) {
    if (!std::isfinite(value)) return;
    lowest = std::min(lowest, value);
    highest = std::max(highest, value);
  }
  bool is_empty() const { return lowest > highest; }
};

}  // namespace

void show_histogram(const Canvas& canvas, const Plot& plot, const PlotLook& look) {
  const Theme& theme = *canvas.theme;
  const float line = line_height();
  ImGui::TextUnformatted(plot.title.c_str());
  Range exponents;
  for (const Series& series : plot.series)
    for (size_t i = 0; i < series.points(); ++i)
      if (series.y[i] > 0) exponents.add(series.x[i]);
  if (exponents.is_empty()) {
    ImGui::TextDisabled("No finite nonzero values.");
    return;
  }
  for (const Limit& limit : plot.limits) {
    exponents.add(limit.exponent - 1);
    exponents.add(limit.exponent);
  }
  const float row_height = 2 * line, wanted = (row_height + 4) * static_cast<float>(plot.series.size()) + 2 * line;
  ImGui::BeginChild((plot.name + " rows").c_str(), {0, look.height > 0 ? look.height : std::min(wanted, 24 * line)}, false);
  Area box;
  const bool is_in_box = place(plot.name, {ImGui::GetContentRegionAvail().x, wanted}, box);
  show_plot_menu(plot);
  ImDrawList& list = *ImGui::GetWindowDrawList();
  Area area = box;
  area.from.x += std::min(20 * ImGui::GetFontSize(), box.width() * 0.4F);
  area.first = exponents.lowest;
  area.last = exponents.highest + 1;
  area.from.y += line + 2;
  canvas.names->add("plot " + plot.name, {area.from, area.to});
  const float column = area.width() / static_cast<float>(area.last - area.first);
  for (size_t row = 0; row < plot.series.size(); ++row) {
    const Series& series = plot.series[row];
    const float top = area.from.y + (row_height + 4) * static_cast<float>(row), bottom = top + row_height;
    list.AddRectFilled({area.from.x, top}, {area.to.x, bottom}, theme.plot, 2);
    draw_text(list, {box.from.x, top + line / 2}, theme.dim, fitted_name(one_line(series.name), area.from.x - box.from.x - 8));
    const double tallest = series.y.empty() ? 0 : *std::max_element(series.y.begin(), series.y.end());
    // Heights are square roots, as in text: what is rare is seen too.
    for (size_t i = 0; i < series.points(); ++i) {
      if (series.y[i] <= 0) continue;
      const float x = area.x(series.x[i]);
      const auto share = static_cast<float>(std::sqrt(series.y[i] / tallest));
      list.AddRectFilled({x + (column > 3 ? 0.5F : 0), bottom - std::max(1.5F, share * (row_height - 2))},
                         {x + column - (column > 3 ? 0.5F : 0), bottom}, theme.series[0]);
    }
    if (is_in_box && ImGui::GetIO().MousePos.y >= top && ImGui::GetIO().MousePos.y < bottom + 4) {
      const double exponent = std::floor(area.value(ImGui::GetIO().MousePos.x));
      std::string text = series.name;
      for (size_t i = 0; i < series.points(); ++i)
        if (series.x[i] == exponent)
          text += fmt::format("\n2^{:.0f} to 2^{:.0f}: {}", exponent, exponent + 1,
                              count_of(static_cast<uint64_t>(series.y[i]), "element"));
      if (series.below > 0) text += fmt::format("\nbelow all bins: {:.0f}", series.below);
      if (series.above > 0) text += fmt::format("\nabove all bins: {:.0f}", series.above);
      ImGui::SetTooltip("%s", text.c_str());
    }
  }
  const float foot = area.from.y + (row_height + 4) * static_cast<float>(plot.series.size());
  float free_from = -INFINITY;
  for (const Limit& limit : plot.limits) {
    const float x = std::round(area.x(limit.exponent));
    list.AddLine({x, area.from.y}, {x, foot}, theme.warning, 1);
    const float at = std::max(x + 3, free_from);
    draw_text(list, {at, area.from.y - line - 2}, theme.warning, limit.name);
    free_from = at + ImGui::CalcTextSize(limit.name.c_str()).x + line;
    draw_text(list, {x + 3, foot}, theme.dim, fmt::format("2^{}", limit.exponent));
  }
  ImGui::EndChild();
}

}  // namespace ulpscope::gui
