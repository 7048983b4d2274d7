#include "ulpscope/gui/plots.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "ulpscope/analyzers/report/text.h"
#include "ulpscope/base/text.h"
#include "ulpscope/gui/content.h"
#include "ulpscope/gui/heat_cells.h"
#include "ulpscope/gui/series_lines.h"

namespace ulpscope::gui {

namespace {

// Where a plot lies on the screen, and which x it shows.
struct Area {
  ImVec2 from, to;
  double first = 0, last = 1;

  float width() const { return to.x - from.x; }
  float height() const { return to.y - from.y; }
  float x(double value) const { return from.x + static_cast<float>((value - first) / (last - first)) * width(); }
  double value(float x) const { return first + (last - first) * static_cast<double>((x - from.x) / std::max(1.0F, width())); }
  bool contains(ImVec2 point) const { return point.x >= from.x && point.x < to.x && point.y >= from.y && point.y < to.y; }
};

ImU32 faint(ImU32 color, int alpha) { return (color & ~IM_COL32_A_MASK) | (static_cast<ImU32>(alpha) << IM_COL32_A_SHIFT); }

float line_height() { return ImGui::GetTextLineHeight(); }

// The step under the pointer, wheel, drag and clicks, the same in all plots over steps.
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
  } else if (is_hovered && ImGui::IsMouseReleased(0)) {
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
                     faint(theme.accent, 50));
}

// The chosen step, and the one under the pointer.
void draw_step_lines(const Canvas& canvas, ImDrawList& list, const Area& area, bool is_hovered) {
  if (canvas.state->step && static_cast<double>(*canvas.state->step) >= area.first &&
      static_cast<double>(*canvas.state->step) < area.last) {
    const float x = std::floor(area.x(static_cast<double>(*canvas.state->step) + 0.5));
    list.AddLine({x, area.from.y}, {x, area.to.y}, canvas.theme->background, 3);
    list.AddLine({x, area.from.y}, {x, area.to.y}, canvas.theme->accent, 1);
  }
  if (is_hovered) {
    const float x = std::floor(ImGui::GetIO().MousePos.x);
    list.AddLine({x, area.from.y}, {x, area.to.y}, faint(canvas.theme->text, 70), 1);
  }
}

// Steps that divide an axis into readable parts.
double tick_distance(double length, int most) {
  const double least = std::max(1.0, length / most), power = std::pow(10.0, std::floor(std::log10(least)));
  for (const double factor : {1.0, 2.0, 5.0, 10.0})
    if (factor * power >= least) return factor * power;
  return 10 * power;
}

// `left`: where what stands left of the plot begins, its name among it.
void draw_step_axis(const Canvas& canvas, ImDrawList& list, const Area& area, float left) {
  const float name_width = ImGui::CalcTextSize("step").x;
  if (area.from.x - left > name_width + 4)
    draw_text(list, {area.from.x - name_width - 4, area.to.y + 2}, canvas.theme->dim, "step");
  const int most = std::max(1, static_cast<int>(area.width() / (6 * ImGui::GetFontSize())));
  const double distance = tick_distance(area.last - area.first, most);
  // Of large steps a distance may be too small to be added to one.
  const double begin = std::ceil(area.first / distance);
  for (int i = 0; i <= most && (begin + i) * distance < area.last; ++i) {
    const double step = (begin + i) * distance;
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
    list.AddRectFilled({from, area.from.y}, {to, area.to.y}, faint(color, 40));
    list.AddTriangleFilled({from - 3, area.from.y}, {from + 4, area.from.y}, {from + 0.5F, area.from.y + 6}, color);
    const float x = ImGui::GetIO().MousePos.x;
    if (is_hovered && x >= from - 3 && x <= to + 3) told += "\n" + mark.text;
  }
}

// What stands at an axis: there "<0.01%" would tell nothing.
std::string axis_text(double value, Unit unit) {
  return unit == Unit::share && value > 0 && value < 1e-3 ? fmt::format("{:.2g}%", 100 * value) : cell_text(value, unit);
}

struct Range {
  double lowest = INFINITY, highest = -INFINITY;
  void add(double value) {
    if (!std::isfinite(value)) return;
    lowest = std::min(lowest, value);
    highest = std::max(highest, value);
  }
  bool is_empty() const { return lowest > highest; }
};

// The value that holds at x, and where.
std::optional<size_t> held_at(const Series& series, double x) {
  const auto after = std::upper_bound(series.x.begin(), series.x.end(), x);
  if (after == series.x.begin()) return std::nullopt;
  return static_cast<size_t>(after - series.x.begin() - 1);
}

double end_of(const Plot& plot, const Series& series, size_t i) {
  if (i + 1 < series.x.size()) return series.x[i + 1];
  return std::isnan(plot.x_end) ? series.x[i] + 1 : plot.x_end;
}

// A box for a plot, which takes the pointer.
bool place(const std::string& name, ImVec2 size, Area& area) {
  area.from = ImGui::GetCursorScreenPos();
  area.to = {area.from.x + size.x, area.from.y + size.y};
  ImGui::InvisibleButton(name.c_str(), {std::max(1.0F, size.x), std::max(1.0F, size.y)});
  return ImGui::IsItemHovered();
}

// Of what was drawn last.
void show_plot_menu(const Plot& plot) {
  if (!ImGui::BeginPopupContextItem("plot menu")) return;
  if (ImGui::MenuItem("Copy as CSV")) ImGui::SetClipboardText(csv_of(plot).c_str());
  ImGui::EndPopup();
}

// Over the shown steps.
Area area_of_steps(const Canvas& canvas, const Area& box) {
  const StepRange shown = canvas.shown();
  Area area = box;
  area.first = static_cast<double>(shown.first);
  area.last = static_cast<double>(std::max(shown.last, shown.first + 1));
  return area;
}

// Which values the plot's height stands for.
struct ValueAxis {
  Range range;
  bool is_log = false;

  float y(double value, const Area& area) const {
    const double part = is_log ? std::log(value / range.lowest) / std::log(range.highest / range.lowest)
                               : (value - range.lowest) / (range.highest - range.lowest);
    return area.to.y - 3 - static_cast<float>(part) * (area.height() - 6);
  }
};

// Of those in the shown steps.
ValueAxis value_axis(const Plot& plot, const Area& area) {
  ValueAxis axis;
  Range& range = axis.range;
  for (const Series& series : plot.series)
    for (size_t i = 0; i < series.x.size(); ++i)
      if (end_of(plot, series, i) > area.first && series.x[i] < area.last) range.add(series.y[i]);
  if (range.is_empty()) return axis;
  // Magnitudes over many binades, as losses and norms of a run that fails, are seen on a logarithmic scale only.
  axis.is_log = plot.y.unit == Unit::none && range.lowest > 0 && range.highest > 1000 * range.lowest;
  const bool begins_at_zero =
      plot.y.unit == Unit::count || plot.y.unit == Unit::share || plot.y.unit == Unit::seconds || plot.y.unit == Unit::bytes;
  if (begins_at_zero) range.add(0);
  if (range.lowest == range.highest) {
    const double room = range.lowest == 0 ? 1 : std::fabs(range.lowest) * 0.5;
    range.lowest -= range.lowest > 0 || range.lowest < 0 ? room : 0;
    range.highest += room;
  }
  return axis;
}

// `left`: where there is room for them begins.
void draw_value_axis(ImDrawList& list, const Theme& theme, const Plot& plot, const Area& area, const ValueAxis& axis, float left) {
  for (const double value : {axis.range.lowest, axis.range.highest}) {
    const std::string text = fitted(axis_text(value, plot.y.unit), area.from.x - left - 4);
    const float width = ImGui::CalcTextSize(text.c_str()).x;
    draw_text(list, {area.from.x - width - 4, axis.y(value, area) - (value == axis.range.lowest ? line_height() : 0)}, theme.dim,
              text);
  }
}

// The line of series `s` of the plot: what is NaN is a bar at the foot, what is infinite one at the top.
void draw_series(ImDrawList& list, const Theme& theme, const Plot& plot, size_t s, const Area& area, const ValueAxis& axis) {
  const Series& series = plot.series[s];
  DashedLine dashed(list, theme, s);
  std::optional<ImVec2> last;
  for (size_t i = 0; i < series.x.size(); ++i) {
    const double end = end_of(plot, series, i);
    if (end <= area.first || series.x[i] >= area.last) continue;
    const float from = area.x(series.x[i]), to = std::max(area.x(end), from + 1);
    if (!std::isfinite(series.y[i])) {
      const float top = std::isnan(series.y[i]) ? area.to.y - 3 : area.from.y;
      list.AddRectFilled({from, top}, {to, top + 3}, theme.error);
      last.reset();
      continue;
    }
    const float y = axis.y(series.y[i], area);
    if (last) dashed.add(*last, {from, y}, 1.2F);
    dashed.add({from, y}, {to, y}, 1.2F);
    last = ImVec2{to, y};
  }
}

// Each series' value in the step under the pointer.
std::string values_told(const Plot& plot, const Area& area) {
  const double pointed = std::floor(area.value(ImGui::GetIO().MousePos.x));
  std::string text = fmt::format("{} {:.0f}", plot.x.name, pointed);
  for (const Series& series : plot.series)
    if (const auto at = held_at(series, pointed))
      text += fmt::format("\n{}: {}", series.name, std::isnan(series.y[*at]) ? "NaN" : value_text(series.y[*at], plot.y.unit));
  return text;
}

void show_steps(const Canvas& canvas, const Plot& plot, float height) {
  const Theme& theme = *canvas.theme;
  const float line = line_height();
  Area box;
  const float wanted = height > 0 ? height : 9 * line;
  const bool is_in_box = place(plot.name, {ImGui::GetContentRegionAvail().x, wanted}, box);
  const bool is_active = ImGui::IsItemActive();
  show_plot_menu(plot);
  Area area = area_of_steps(canvas, box);
  area.from.y += line + 4;
  area.to.y -= line + 4;
  area.from.x += std::min(6 * ImGui::GetFontSize(), 0.3F * box.width());
  area.to.x -= 4;
  canvas.names->add("plot " + plot.name, {area.from, area.to});
  if (area.width() < 20 || area.height() < 8) return;
  const ValueAxis axis = value_axis(plot, area);
  ImDrawList& list = *ImGui::GetWindowDrawList();
  list.AddRectFilled(area.from, area.to, theme.plot, 2);
  draw_text(list, {box.from.x, box.from.y}, theme.text, plot.title);
  float legend = box.from.x + ImGui::CalcTextSize(plot.title.c_str()).x + line;
  if (axis.is_log) {
    draw_text(list, {legend, box.from.y}, theme.dim, "logarithmic");
    legend += ImGui::CalcTextSize("logarithmic").x + line;
  }
  if (plot.series.size() > 1) draw_series_legend(list, theme, plot, {legend, box.from.y}, box.to.x);
  const bool is_hovered = is_in_box && area.contains(ImGui::GetIO().MousePos);
  std::string told;
  if (axis.range.is_empty()) {
    draw_text(list, {area.from.x + 6, area.from.y + 4}, theme.dim, "NaN or infinite, or not known, in all these steps");
  } else {
    draw_value_axis(list, theme, plot, area, axis, box.from.x);
    list.PushClipRect(area.from, area.to, true);
    draw_marks(canvas, list, plot, area, is_hovered, told);
    for (size_t s = std::min(plot.series.size(), kMostSeries); s-- > 0;) draw_series(list, theme, plot, s, area, axis);
    list.PopClipRect();
  }
  draw_step_lines(canvas, list, area, is_hovered);
  draw_drag(list, theme, area, is_active);
  draw_step_axis(canvas, list, area, box.from.x);
  take_steps(canvas, area, is_hovered || (is_active && ImGui::IsMouseReleased(0)));
  if (is_hovered && !ImGui::IsMouseDragging(0, 5)) ImGui::SetTooltip("%s%s", values_told(plot, area).c_str(), told.c_str());
}

// What a heatmap is drawn of.
struct HeatPicture {
  uint64_t number = 0;
  HeatCells cells;
};

// In at most so many pixels.
const HeatPicture& heat_picture(const Canvas& canvas, const Plot& plot, float width, float height) {
  const auto pixels = [](float length) { return static_cast<size_t>(std::clamp(length, 1.0F, 1e5F)); };
  const size_t most_columns = pixels(width), most_rows = pixels(height);
  return canvas.kept->get<HeatPicture>("cells of " + plot.name, &plot, fmt::format("{} {}", most_columns, most_rows),
                                       [&](uint64_t number) {
                                         return HeatPicture{number, heat_cells(plot, most_columns, most_rows)};
                                       });
}

// A pixel for each cell, rows from the top down as they are drawn.
Image heatmap_image(const Canvas& canvas, const Plot& plot, const HeatCells& cells) {
  Image image;
  image.width = static_cast<int>(cells.columns);
  image.height = static_cast<int>(cells.rows);
  image.pixels.reserve(cells.values.size());
  for (size_t row = 0; row < cells.rows; ++row) {
    for (size_t column = 0; column < cells.columns; ++column) {
      const double value = cells.at(plot.has_exponent_rows() ? cells.rows - 1 - row : row, column);
      ImU32 pixel = canvas.theme->unknown;
      if (plot.has_exponent_rows() && !(value > 0)) {
        pixel = canvas.theme->plot;
      } else if (!std::isnan(value)) {
        const double place = place_on_map(value, plot.y.unit, cells.lowest, cells.highest);
        pixel = place < 0 ? canvas.theme->plot : map_color(place, canvas.theme->is_light);
      }
      image.pixels.push_back(pixel);
    }
  }
  return image;
}

// What colours stand for, at the right end of the line that the title is on.
void draw_legend(const Canvas& canvas, const Plot& plot, const HeatCells& cells, ImVec2 at, float right, ImDrawList& list) {
  if (cells.is_empty()) return;
  const Theme& theme = *canvas.theme;
  const Unit unit = plot.y.unit;
  double least = cells.lowest, most = cells.highest;
  if (unit == Unit::share) {
    least = 1e-6;
    most = 1;
  } else if (unit == Unit::bits) {
    least = 16;
    most = 0;
  } else if (unit == Unit::count) {
    least = 1;
  }
  struct Swatch {
    const char* text;
    ImU32 color;
    bool is_needed;
  };
  const Swatch swatches[] = {{"not known", theme.unknown, !plot.has_exponent_rows()},
                             {"none", theme.plot, unit == Unit::share || unit == Unit::count}};
  const auto width_of = [](const std::string& text) { return ImGui::CalcTextSize(text.c_str()).x; };
  const char* const bits = unit == Unit::bits ? " bits" : "";
  const std::string low = axis_text(least, unit) + bits, high = axis_text(most, unit) + bits;
  const float line = line_height(), width = 8 * line;
  float needed = width_of(low) + width + width_of(high) + line;
  for (const Swatch& swatch : swatches)
    if (swatch.is_needed) needed += width_of(swatch.text) + 2 * line;
  float x = right - needed;
  if (x < at.x) return;
  for (const Swatch& swatch : swatches) {
    if (!swatch.is_needed) continue;
    list.AddRectFilled({x, at.y + 3}, {x + 0.8F * line, at.y + line - 3}, swatch.color);
    list.AddRect({x, at.y + 3}, {x + 0.8F * line, at.y + line - 3}, theme.grid);
    draw_text(list, {x + line, at.y}, theme.dim, swatch.text);
    x += width_of(swatch.text) + 2 * line;
  }
  draw_text(list, {x, at.y}, theme.dim, low);
  x += width_of(low) + 0.5F * line;
  constexpr int kSteps = 32;
  for (int i = 0; i < kSteps; ++i)
    list.AddRectFilled({x + width * static_cast<float>(i) / kSteps, at.y + 3},
                       {x + width * static_cast<float>(i + 1) / kSteps, at.y + line - 3},
                       map_color(static_cast<double>(i) / (kSteps - 1), theme.is_light));
  draw_text(list, {x + width + 0.5F * line, at.y}, theme.dim, high);
}

const ModuleRow* row_of(const std::vector<ModuleRow>* tree, size_t row) {
  return tree && row < tree->size() ? &(*tree)[row] : nullptr;
}

bool is_module(const ModuleRow* row) { return row && !row->module.empty(); }

float indent_of(const ModuleRow& row) { return (0.9F + 0.8F * static_cast<float>(row.depth)) * line_height(); }

float widest_name(const Canvas& canvas, const Plot& plot, const std::vector<ModuleRow>* tree) {
  return canvas.kept->get<float>("names of " + plot.name, &plot, "", [&](uint64_t) {
    float widest = 0;
    for (size_t row = 0; row < plot.series.size(); ++row) {
      const ModuleRow* const in_tree = row_of(tree, row);
      const float width = ImGui::CalcTextSize(in_tree ? in_tree->label.c_str() : plot.series[row].name.c_str()).x;
      widest = std::max(widest, in_tree ? width + indent_of(*in_tree) : width);
    }
    for (const Limit& limit : plot.limits) widest = std::max(widest, ImGui::CalcTextSize(limit.name.c_str()).x);
    return widest;
  });
}

// Names of the limits, from below upwards, each where it has room, and of exponents between them.
void draw_exponent_labels(const Canvas& canvas, ImDrawList& list, const Plot& plot, const Area& area, float left, float row_height,
                          int raised_limits) {
  const float line = line_height(), width = area.from.x - left - 8;
  std::vector<float> taken;  // middles of lines of text
  const auto is_free = [&](float y) {
    return std::all_of(taken.begin(), taken.end(), [&](float other) { return std::fabs(y - other) >= line; });
  };
  const auto y_of = [&](int exponent) { return area.to.y - static_cast<float>(exponent - plot.first_exponent) * row_height; };
  for (const Limit& limit : plot.limits) {
    const float y = std::round(y_of(limit.exponent + raised_limits));
    if (y < area.from.y || y > area.to.y) continue;
    // Lines on a map of bright and dark colours are dark with a bright core.
    list.AddLine({area.from.x, y}, {area.to.x, y}, IM_COL32(0, 0, 0, 255), 3);
    list.AddLine({area.from.x, y}, {area.to.x, y}, IM_COL32(255, 255, 255, 255), 1);
    const float middle = std::max(y, area.from.y + line / 2);  // below what stands over the plot
    if (!is_free(middle)) continue;
    draw_text(list, {left, middle - line / 2}, canvas.theme->text, fitted(limit.name, width));
    taken.push_back(middle);
  }
  const auto every = std::max<size_t>(1, static_cast<size_t>(std::ceil(line * 1.4F / row_height)));
  for (size_t row = 0; row < plot.series.size(); row += every) {
    const float y = y_of(plot.first_exponent + static_cast<int>(row)) - row_height / 2;
    if (y - line / 2 < area.from.y - 2 || !is_free(y)) continue;
    draw_text(list, {left, y - line / 2}, canvas.theme->dim, fitted(plot.series[row].name, width));
    taken.push_back(y);
  }
}

// The rows of the plot that a row of cells has.
std::string row_told(const Plot& plot, const HeatCells& cells, size_t row, const ModuleRow* in_tree) {
  const size_t first = row * cells.joined_rows, last = std::min(plot.series.size(), first + cells.joined_rows) - 1;
  std::string text = plot.series[first].name;
  if (last > first) text += " to " + plot.series[last].name;
  if (is_module(in_tree)) text += fmt::format(": {} together", count_of(in_tree->tensors.size(), "tensor"));
  return text;
}

// What a cell holds, and of what steps.
std::string cell_told(const Plot& plot, const HeatCells& cells, size_t row, double pointed) {
  std::string text;
  const double column = std::floor((pointed - cells.first) / cells.width);
  if (!(column >= 0) || column >= static_cast<double>(cells.columns)) return fmt::format("\n{} {:.0f}", plot.x.name, pointed);
  const double from = cells.first + column * cells.width, to = from + cells.width;
  text += cells.width > 1 ? fmt::format("\n{}s {:.0f} to {:.0f}", plot.x.name, from, to - 1)
                          : fmt::format("\n{} {:.0f}", plot.x.name, pointed);
  const double value = cells.at(row, static_cast<size_t>(column));
  const char* const joined = cells.joined_columns == 1 ? "" : cells.adds ? ", all together" : ", the worst of these";
  const std::string shown = !std::isnan(value) ? value_text(value, plot.y.unit) : plot.has_exponent_rows() ? "none" : "not known";
  return text + fmt::format("\n{}{}: {}", plot.y.name, joined, shown);
}

bool is_selected(const ViewState& state, const Series& row) {
  if (row.key.name.empty() && !row.key.module.empty()) return row.key.module == state.module;
  return state.module.empty() && (row.key.name.empty() ? row.name : row.key.name) == state.tensor;
}

void select(ViewState& state, const Series& row) {
  if (row.key.name.empty() && !row.key.module.empty())
    state.module = row.key.module;
  else
    select_tensor(state, row.key.name.empty() ? row.name : row.key.name);
}

// Keys that go from row to row, and fold.
void take_row_keys(const Canvas& canvas, const Plot& plot, const std::vector<ModuleRow>* tree, float row_height) {
  std::optional<size_t> selected;
  for (size_t row = 0; row < plot.series.size() && !selected; ++row)
    if (is_selected(*canvas.state, plot.series[row])) selected = row;
  if (const size_t row = canvas.hands->take_row(plot.series.size(), selected); row != SIZE_MAX) {
    select(*canvas.state, plot.series[row]);
    selected = row;
  } else if (selected && is_module(row_of(tree, *selected))) {
    const ModuleRow& module = (*tree)[*selected];
    const int aside = std::exchange(canvas.hands->aside, 0);
    if (std::exchange(canvas.hands->enters, false) || (module.is_folded ? aside > 0 : aside < 0))
      toggle_fold(*canvas.state, module.module);
  }
  // What was selected, here or elsewhere, is brought into view once.
  const int selection = selected ? static_cast<int>(ImGui::GetID(plot.series[*selected].name.c_str())) : 0;
  int& seen = *ImGui::GetStateStorage()->GetIntRef(ImGui::GetID("seen"));
  if (seen == selection) return;
  seen = selection;
  if (!selected) return;
  const float top = row_height * static_cast<float>(*selected), from = ImGui::GetScrollY(), room = ImGui::GetWindowHeight();
  if (top < from || top + row_height > from + room) ImGui::SetScrollY(std::max(0.0F, top - room / 2));
}

void draw_row_label(const Canvas& canvas, ImDrawList& list, const Series& row, const ModuleRow* in_tree, ImVec2 at, float width) {
  const float line = line_height();
  float left = 0;
  if (in_tree) {
    left = static_cast<float>(in_tree->depth) * 0.8F * line;
    if (is_module(in_tree)) {
      const float x = at.x + left + 0.15F * line, y = at.y + 0.3F * line, side = 0.45F * line;
      if (in_tree->is_folded)
        list.AddTriangleFilled({x, y}, {x + side, y + side / 2}, {x, y + side}, canvas.theme->dim);
      else
        list.AddTriangleFilled({x, y}, {x + side, y}, {x + side / 2, y + side}, canvas.theme->dim);
    }
    left = indent_of(*in_tree);
  }
  const bool stands_out = is_selected(*canvas.state, row) || is_module(in_tree);
  draw_text(list, {at.x + left, at.y}, stands_out ? canvas.theme->text : canvas.theme->dim,
            fitted(in_tree ? in_tree->label : row.name, width - left));
}

// A heatmap on the screen. `tree`: the module or tensor that each row is of, where modules can be folded.
struct HeatRows {
  const Plot& plot;
  const std::vector<ModuleRow>* tree;
  float row_height;
  Area box, area;  // with the names of rows, and the cells alone

  size_t count() const { return plot.series.size(); }
  // Rows of exponents go upwards.
  size_t at(float y) const {
    const float from_top = std::clamp((y - area.from.y) / row_height, 0.0F, static_cast<float>(count() - 1));
    return plot.has_exponent_rows() ? count() - 1 - static_cast<size_t>(from_top) : static_cast<size_t>(from_top);
  }
};

void draw_cells(const Canvas& canvas, ImDrawList& list, const HeatRows& rows, const HeatPicture& picture) {
  const Area& area = rows.area;
  if (area.width() <= 4) return;
  const HeatCells& cells = picture.cells;
  const ImTextureID texture = canvas.textures->get(rows.plot.name, fmt::format("{} {}", picture.number, canvas.theme->is_light),
                                                   [&] { return heatmap_image(canvas, rows.plot, cells); });
  list.AddRectFilled(area.from, area.to, canvas.theme->plot);
  list.PushClipRect(area.from, area.to, true);
  const float top = area.to.y - rows.row_height * static_cast<float>(cells.rows * cells.joined_rows);
  list.AddImage(texture, {area.x(cells.first), top}, {area.x(cells.end()), area.to.y});
  list.PopClipRect();
}

// Those that the window shows.
void draw_row_labels(const Canvas& canvas, ImDrawList& list, const HeatRows& rows) {
  const Area &box = rows.box, &area = rows.area;
  const float top = ImGui::GetWindowPos().y, bottom = top + ImGui::GetWindowHeight();
  for (size_t row = top > area.from.y ? rows.at(top) : 0; row < rows.count(); ++row) {
    const float y = area.from.y + rows.row_height * static_cast<float>(row);
    if (y > bottom) break;
    const Series& series = rows.plot.series[row];
    if (is_selected(*canvas.state, series))
      list.AddRectFilled({box.from.x, y}, {area.from.x - 2, y + rows.row_height}, faint(canvas.theme->accent, 70));
    draw_row_label(canvas, list, series, row_of(rows.tree, row), {box.from.x + 2, y}, area.from.x - box.from.x - 8);
    canvas.names->add(fmt::format("{} row {}", rows.plot.name, row), {{box.from.x, y}, {area.to.x, y + rows.row_height}});
  }
}

// A click selects a row, and folds a module whose name it is on.
void take_row_click(const Canvas& canvas, const HeatRows& rows) {
  if (!ImGui::IsMouseReleased(0) || std::fabs(ImGui::GetMouseDragDelta(0, 0).x) > 5) return;
  const ImVec2 mouse = ImGui::GetIO().MousePos;
  const size_t row = rows.at(mouse.y);
  select(*canvas.state, rows.plot.series[row]);
  if (mouse.x < rows.area.from.x && is_module(row_of(rows.tree, row))) toggle_fold(*canvas.state, rows.plot.series[row].key.module);
}

void show_heatmap(const Canvas& canvas, const Plot& plot, float height, int raised_limits, const std::vector<ModuleRow>* tree) {
  const float line = line_height();
  ImDrawList* list = ImGui::GetWindowDrawList();
  if (plot.series.empty() || plot.series.front().x.empty()) {
    ImGui::TextDisabled("%s: nothing of it was recorded here.", plot.title.c_str());
    return;
  }
  const auto count = static_cast<float>(plot.series.size());
  const bool is_exponents = plot.has_exponent_rows();
  const float room = ImGui::GetContentRegionAvail().x;
  const float most_label = is_exponents ? 6 * ImGui::GetFontSize() : std::min(22 * ImGui::GetFontSize(), room * 0.4F);
  const float label = std::round(std::min(widest_name(canvas, plot, tree), most_label) + 8);
  const float wanted = height > 0 ? height : std::min(count * line + 2 * line, 30 * line);
  // Rows that can be read scroll; exponents share what room there is.
  const float row_height = is_exponents ? std::max(5 * line, wanted - 2 * line - 8) / count : line + 1;
  const ImVec2 head = ImGui::GetCursorScreenPos();
  ImGui::TextUnformatted(fitted(plot.title, room).c_str());
  if (ImGui::IsItemHovered()) ImGui::SetTooltip("%s", plot.title.c_str());
  const float title_end = ImGui::GetItemRectMax().x;
  ImDrawList& head_list = *list;
  const bool scrolls = !is_exponents;
  if (scrolls) {
    ImGui::BeginChild((plot.name + " rows").c_str(), {0, std::max(3 * line, wanted - line)}, false, ImGuiWindowFlags_NoNav);
    list = ImGui::GetWindowDrawList();
  }
  HeatRows rows{plot, tree, row_height, {}, {}};
  const float total = row_height * count + (is_exponents ? line + 4 : 0);
  const bool is_in_box = place(plot.name, {ImGui::GetContentRegionAvail().x, total}, rows.box);
  const bool is_active = ImGui::IsItemActive();
  show_plot_menu(plot);
  Area& area = rows.area = area_of_steps(canvas, rows.box);
  area.from.x = std::round(area.from.x + label);
  area.to.x = std::round(area.to.x);
  area.to.y = area.from.y + row_height * count;
  canvas.names->add("plot " + plot.name, {area.from, area.to});
  const Series& columns = plot.series.front();
  const double end = std::isnan(plot.x_end) ? columns.x.back() + 1 : plot.x_end;
  const HeatPicture& picture = heat_picture(canvas, plot, std::round(area.x(end) - area.x(columns.x.front())), row_height * count);
  const HeatCells& cells = picture.cells;
  draw_legend(canvas, plot, cells, {title_end + line, head.y}, head.x + room, head_list);
  draw_cells(canvas, *list, rows, picture);
  const ImVec2 mouse = ImGui::GetIO().MousePos;
  const bool is_hovered = is_in_box && area.contains(mouse);
  if (is_exponents) {
    draw_exponent_labels(canvas, *list, plot, area, rows.box.from.x, row_height, raised_limits);
    draw_step_axis(canvas, *list, area, rows.box.from.x);
  } else {
    draw_row_labels(canvas, *list, rows);
    if (is_in_box) take_row_click(canvas, rows);
    if (canvas.hands) take_row_keys(canvas, plot, tree, row_height);
  }
  std::string told;
  draw_marks(canvas, *list, plot, area, is_hovered, told);
  draw_step_lines(canvas, *list, area, is_hovered);
  draw_drag(*list, *canvas.theme, area, is_active);
  // In a list that scrolls the wheel scrolls; with Ctrl it zooms.
  if (is_exponents || ImGui::GetIO().KeyCtrl || ImGui::GetIO().MouseWheel == 0)
    take_steps(canvas, area, is_hovered || (is_active && ImGui::IsMouseReleased(0)));
  if (is_in_box && !ImGui::IsMouseDragging(0, 5)) {
    const size_t row = rows.at(mouse.y);
    std::string text = row_told(plot, cells, row / cells.joined_rows, row_of(tree, row));
    if (is_hovered) text += cell_told(plot, cells, row / cells.joined_rows, std::floor(area.value(mouse.x)));
    ImGui::SetTooltip("%s%s", text.c_str(), told.c_str());
  }
  if (scrolls) {
    ImGui::EndChild();
    Area axis;
    place(plot.name + " axis", {ImGui::GetContentRegionAvail().x, line + 4}, axis);
    Area under = area;
    under.to.y = axis.from.y;
    draw_step_axis(canvas, *ImGui::GetWindowDrawList(), under, axis.from.x);
  }
}

void show_histogram(const Canvas& canvas, const Plot& plot, float height) {
  const Theme& theme = *canvas.theme;
  const float line = line_height();
  ImGui::TextUnformatted(plot.title.c_str());
  Range exponents;
  for (const Series& series : plot.series)
    for (size_t i = 0; i < series.x.size(); ++i)
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
  ImGui::BeginChild((plot.name + " rows").c_str(), {0, height > 0 ? height : std::min(wanted, 24 * line)}, false);
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
    draw_text(list, {box.from.x, top + line / 2}, theme.dim, fitted(series.name, area.from.x - box.from.x - 8));
    const double tallest = series.y.empty() ? 0 : *std::max_element(series.y.begin(), series.y.end());
    // Heights are square roots, as in text: what is rare is seen too.
    for (size_t i = 0; i < series.x.size(); ++i) {
      if (series.y[i] <= 0) continue;
      const float x = area.x(series.x[i]);
      const auto share = static_cast<float>(std::sqrt(series.y[i] / tallest));
      list.AddRectFilled({x + (column > 3 ? 0.5F : 0), bottom - std::max(1.5F, share * (row_height - 2))},
                         {x + column - (column > 3 ? 0.5F : 0), bottom}, theme.series[0]);
    }
    if (is_in_box && ImGui::GetIO().MousePos.y >= top && ImGui::GetIO().MousePos.y < bottom + 4) {
      const double exponent = std::floor(area.value(ImGui::GetIO().MousePos.x));
      std::string text = series.name;
      for (size_t i = 0; i < series.x.size(); ++i)
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

// Layers of what leads on: a node lies one below the lowest of those that it comes of.
void show_graph(const Canvas& canvas, const Plot& plot) {
  const Theme& theme = *canvas.theme;
  const float line = line_height();
  ImGui::TextUnformatted(plot.title.c_str());
  if (plot.nodes.empty()) return;
  std::vector<size_t> layer(plot.nodes.size(), 0);
  for (size_t round = 0; round < plot.nodes.size(); ++round) {
    bool changed = false;
    for (const PlotLink& link : plot.links) {
      if (link.from >= link.to || layer[link.to] > layer[link.from]) continue;
      layer[link.to] = layer[link.from] + 1;
      changed = true;
    }
    if (!changed) break;
  }
  const size_t layers = *std::max_element(layer.begin(), layer.end()) + 1;
  std::vector<size_t> in_layer(layers, 0), place_in(plot.nodes.size());
  for (size_t i = 0; i < plot.nodes.size(); ++i) place_in[i] = in_layer[layer[i]]++;
  const float box_height = 2.6F * line, distance = 4.2F * line;
  Area box;
  place(plot.name, {ImGui::GetContentRegionAvail().x, distance * static_cast<float>(layers)}, box);
  ImDrawList& list = *ImGui::GetWindowDrawList();
  const auto rectangle = [&](size_t i) {
    const float width = std::min((box.width() - 8) / static_cast<float>(in_layer[layer[i]]), 34 * line);
    const float left =
        box.from.x + (box.width() - width * static_cast<float>(in_layer[layer[i]])) / 2 + width * static_cast<float>(place_in[i]);
    const float top = box.from.y + distance * static_cast<float>(layer[i]);
    return Rectangle{{left + 4, top}, {left + width - 4, top + box_height}};
  };
  for (const PlotLink& link : plot.links) {
    const Rectangle from = rectangle(link.from), to = rectangle(link.to);
    const ImU32 color = link.marked ? theme.error : theme.dim;
    const ImVec2 start{from.middle().x, from.to.y}, end{to.middle().x, to.from.y};
    list.AddBezierCubic(start, {start.x, start.y + line}, {end.x, end.y - line}, end, color, link.marked ? 2.2F : 1.2F);
    list.AddTriangleFilled({end.x - 4, end.y - 6}, {end.x + 4, end.y - 6}, end, color);
  }
  const auto is_selected_node = [&](const PlotNode& node) {
    return !node.key.name.empty() && node.key.name == canvas.state->tensor &&
           (!node.key.step || node.key.step == canvas.state->step);
  };
  // Keys go along the way, from what comes first to what came of it.
  if (canvas.hands && canvas.hands->down != 0) {
    std::optional<size_t> selected;
    for (size_t i = 0; i < plot.nodes.size() && !(selected && canvas.hands->down < 0); ++i)
      if (is_selected_node(plot.nodes[i])) selected = i;
    const size_t node = canvas.hands->take_row(plot.nodes.size(), selected);
    select_place(*canvas.state, plot.nodes[node].key);
    ImGui::SetScrollFromPosY(rectangle(node).middle().y - ImGui::GetWindowPos().y);
  }
  for (size_t i = 0; i < plot.nodes.size(); ++i) {
    const PlotNode& node = plot.nodes[i];
    const Rectangle at = rectangle(i);
    list.AddRectFilled(at.from, at.to, theme.panel, 4);
    list.AddRect(at.from, at.to, node.marked ? theme.error : theme.grid, 4, 0, node.marked ? 1.8F : 1.0F);
    if (is_selected_node(node)) list.AddRect({at.from.x - 3, at.from.y - 3}, {at.to.x + 3, at.to.y + 3}, theme.accent, 4, 0, 2);
    const float width = at.to.x - at.from.x - 12;
    draw_text(list, {at.from.x + 6, at.from.y + 0.2F * line}, theme.text, fitted(node.name, width));
    draw_text(list, {at.from.x + 6, at.from.y + 1.3F * line}, theme.dim, fitted(node.detail, width));
    canvas.names->add(fmt::format("{} node {}", plot.name, i), at);
    const ImVec2 mouse = ImGui::GetIO().MousePos;
    if (ImGui::IsItemHovered() && mouse.x >= at.from.x && mouse.x < at.to.x && mouse.y >= at.from.y && mouse.y < at.to.y) {
      ImGui::SetTooltip("%s\n%s", node.name.c_str(), node.detail.c_str());
      if (ImGui::IsMouseReleased(0)) select_place(*canvas.state, node.key);
    }
  }
}

}  // namespace

std::string value_text(double value, Unit unit) {
  if (std::isnan(value)) return "not known";
  const std::string text = cell_text(value, unit), exact = fmt::format("{}", value);
  return text == exact || unit == Unit::count ? text : fmt::format("{} ({})", text, exact);
}

void show_tree(const Canvas& canvas, const Plot& plot, const std::vector<ModuleRow>& rows, float height) {
  ImGui::PushID(plot.name.c_str());
  show_heatmap(canvas, plot, height, 0, &rows);
  ImGui::PopID();
}

void show_plot(const Canvas& canvas, const Plot& plot, float height, int raised_limits) {
  ImGui::PushID(plot.name.c_str());
  switch (plot.kind) {
    case PlotKind::histogram:
      show_histogram(canvas, plot, height);
      break;
    case PlotKind::steps:
      show_steps(canvas, plot, height);
      break;
    case PlotKind::heatmap:
      show_heatmap(canvas, plot, height, raised_limits, nullptr);
      break;
    case PlotKind::graph:
      show_graph(canvas, plot);
      break;
  }
  ImGui::PopID();
}

}  // namespace ulpscope::gui
