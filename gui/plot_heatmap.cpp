// Heatmaps: rows that have names scroll, and may stand in modules that can be folded; rows of exponents share what room there is.
#include <fmt/format.h>

#include <cmath>
#include <optional>
#include <utility>

#include "ulpscope/analyzers/report/heat_cells.h"
#include "ulpscope/analyzers/report/text.h"
#include "ulpscope/analyzers/report/value_scale.h"
#include "ulpscope/base/text.h"
#include "ulpscope/gui/plot_parts.h"

namespace ulpscope::gui {

namespace {

// What a heatmap is drawn of.
struct HeatPicture {
  uint64_t number = 0;
  HeatCells cells;
};

// In at most so many pixels. It is another one only where that joins other columns or rows.
const HeatPicture& heat_picture(const Canvas& canvas, const Plot& plot, const HeatColumns& columns, float width, float height) {
  const auto pixels = [](float length) { return static_cast<size_t>(std::clamp(length, 1.0F, 1e5F)); };
  const size_t most_columns = pixels(width), most_rows = pixels(height);
  const std::string version = fmt::format("{} {}", columns.joined(most_columns), joined_rows(plot, plot.series.size(), most_rows));
  return canvas.kept->get<HeatPicture>("cells of " + plot.name, &plot, version, [&](uint64_t number) {
    return HeatPicture{number, heat_cells(plot, columns, most_columns, most_rows)};
  });
}

// Whether anything was recorded in the column. Of exponents what nobody counted is none where others were counted.
bool is_known(const Plot& plot, const HeatCells& cells, size_t column) {
  if (!plot.has_exponent_rows()) return true;
  for (size_t row = 0; row < cells.rows; ++row)
    if (!std::isnan(cells.at(row, column))) return true;
  return false;
}

// A pixel for each cell of these rows, from the top down as they are drawn.
Image heatmap_image(const Canvas& canvas, const Plot& plot, const HeatCells& cells, RowRange rows) {
  Image image;
  image.width = static_cast<int>(cells.columns);
  image.height = static_cast<int>(rows.last - rows.first);
  image.pixels.reserve(cells.columns * (rows.last - rows.first));
  for (size_t row = rows.first; row < rows.last; ++row) {
    for (size_t column = 0; column < cells.columns; ++column) {
      const double value = cells.at(plot.has_exponent_rows() ? cells.rows - 1 - row : row, column);
      ImU32 pixel = canvas.theme->unknown;
      if (plot.has_exponent_rows() && !(value > 0)) {
        if (is_known(plot, cells, column)) pixel = canvas.theme->plot;
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
  const Swatch swatches[] = {{"not known", theme.unknown, true}, {"none", theme.plot, unit == Unit::share || unit == Unit::count}};
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
  std::string text = one_line(plot.series[first].name);
  if (last > first) text += " to " + one_line(plot.series[last].name);
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
  const std::string shown = !std::isnan(value) ? value_text(value, plot.y.unit)
                            : plot.has_exponent_rows() && is_known(plot, cells, static_cast<size_t>(column)) ? "none"
                                                                                                             : "not known";
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
void take_row_keys(const Canvas& canvas, const Plot& plot, const PlotLook& look, float row_height) {
  std::optional<size_t> selected;
  for (size_t row = 0; row < plot.series.size() && !selected; ++row)
    if (is_selected(*canvas.state, plot.series[row])) selected = row;
  if (!selected) selected = look.row_of_selected;
  const std::vector<ModuleRow>* const tree = look.tree;
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
            fitted_name(one_line(in_tree ? in_tree->label : row.name), width - left));
}

// A heatmap on the screen.
struct HeatRows {
  const Plot& plot;
  const PlotLook& look;
  float row_height;
  Rectangle clip;  // of what the plot lies in
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
  // Of a list that scrolls the rows around those that are seen.
  constexpr size_t kTogether = 64;
  const float window_top = ImGui::GetWindowPos().y, window_end = window_top + ImGui::GetWindowHeight();
  RowRange seen{0, cells.rows};
  if (!rows.plot.has_exponent_rows()) {
    const auto row_at = [&](float y) { return static_cast<size_t>(std::max(0.0F, (y - area.from.y) / rows.row_height)); };
    seen.first = std::min(row_at(window_top) / kTogether * kTogether, cells.rows);
    seen.last = std::min((row_at(window_end) / kTogether + 1) * kTogether, cells.rows);
  }
  if (seen.first >= seen.last) return;
  const ImTextureID texture = canvas.textures->get(
      rows.plot.name, fmt::format("{} {} {} {}", picture.number, canvas.theme->is_light, seen.first, seen.last),
      [&] { return heatmap_image(canvas, rows.plot, cells, seen); });
  // Up to the plot's own right end: a list that scrolls leaves a margin there.
  list.PushClipRect({area.from.x, std::max({area.from.y, window_top, rows.clip.from.y})},
                    {area.to.x, std::min({area.to.y, window_end, rows.clip.to.y})}, false);
  // Of steps without columns nothing is known.
  list.AddRectFilled(area.from, area.to, canvas.theme->unknown);
  const float row_height = rows.row_height * static_cast<float>(cells.joined_rows);
  const float top = area.to.y - row_height * static_cast<float>(cells.rows);
  list.AddImage(texture, {area.x(cells.first), top + row_height * static_cast<float>(seen.first)},
                {area.x(cells.end()), top + row_height * static_cast<float>(seen.last)});
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
      list.AddRectFilled({box.from.x, y}, {area.from.x - 2, y + rows.row_height}, with_alpha(canvas.theme->accent, 70));
    if (row == rows.look.row_of_selected)
      list.AddRect({box.from.x, y}, {area.from.x - 2, y + rows.row_height}, canvas.theme->accent);
    draw_row_label(canvas, list, series, row_of(rows.look.tree, row), {box.from.x + 2, y}, area.from.x - box.from.x - 8);
    canvas.names->add(fmt::format("{} row {}", rows.plot.name, row), {{box.from.x, y}, {area.to.x, y + rows.row_height}});
  }
}

// A click selects a row, and folds a module whose name it is on.
void take_row_click(const Canvas& canvas, const HeatRows& rows) {
  if (!ImGui::IsMouseReleased(0) || std::fabs(ImGui::GetMouseDragDelta(0, 0).x) > 5) return;
  const ImVec2 mouse = ImGui::GetIO().MousePos;
  const size_t row = rows.at(mouse.y);
  select(*canvas.state, rows.plot.series[row]);
  if (mouse.x < rows.area.from.x && is_module(row_of(rows.look.tree, row)))
    toggle_fold(*canvas.state, rows.plot.series[row].key.module);
}

}  // namespace

void show_heatmap(const Canvas& canvas, const Plot& plot, const PlotLook& look) {
  const float line = line_height();
  ImDrawList* list = ImGui::GetWindowDrawList();
  const HeatColumns& columns =
      canvas.kept->get<HeatColumns>("columns of " + plot.name, &plot, "", [&](uint64_t) { return heat_columns(plot); });
  if (columns.count == 0) {
    ImGui::TextDisabled("%s: nothing of it was recorded here.", plot.title.c_str());
    return;
  }
  const auto count = static_cast<float>(plot.series.size());
  const bool is_exponents = plot.has_exponent_rows();
  const float room = ImGui::GetContentRegionAvail().x;
  const float label = look.label_width > 0 ? look.label_width : label_width(canvas, plot, look.tree, room);
  const float wanted = look.height > 0 ? look.height : std::min(count * line + 2 * line, 30 * line);
  // Rows that can be read scroll; exponents share what room there is.
  const float row_height = is_exponents ? std::max(5 * line, wanted - 2 * line - 8) / count : line + 1;
  const ImVec2 head = ImGui::GetCursorScreenPos();
  ImGui::TextUnformatted(fitted(one_line(plot.title), room).c_str());
  if (ImGui::IsItemHovered()) ImGui::SetTooltip("%s", plot.title.c_str());
  const float title_end = ImGui::GetItemRectMax().x;
  ImDrawList& head_list = *list;
  const Rectangle clip{list->GetClipRectMin(), list->GetClipRectMax()};
  const bool scrolls = !is_exponents;
  if (scrolls) {
    ImGui::BeginChild((plot.name + " rows").c_str(), {0, std::max(3 * line, wanted - line)}, false, ImGuiWindowFlags_NoNav);
    list = ImGui::GetWindowDrawList();
  }
  HeatRows rows{plot, look, row_height, clip, {}, {}};
  // The same with and without a bar to scroll with, so that plots under one another have the same steps under one another.
  const float width = room - ImGui::GetStyle().ScrollbarSize;
  const float total = row_height * count + (is_exponents ? line + 4 : 0);
  const bool is_in_box = place(plot.name, {width, total}, rows.box);
  const bool is_active = ImGui::IsItemActive();
  show_plot_menu(plot);
  Area& area = rows.area = area_of_steps(canvas, rows.box);
  area.from.x = std::round(area.from.x + label);
  area.to.x = std::round(area.to.x);
  area.to.y = area.from.y + row_height * count;
  canvas.names->add("plot " + plot.name, {area.from, area.to});
  const HeatPicture& picture =
      heat_picture(canvas, plot, columns, std::round(area.x(columns.end) - area.x(columns.first)), row_height * count);
  const HeatCells& cells = picture.cells;
  draw_legend(canvas, plot, cells, {title_end + line, head.y}, head.x + room, head_list);
  draw_cells(canvas, *list, rows, picture);
  const ImVec2 mouse = ImGui::GetIO().MousePos;
  const bool is_hovered = is_in_box && area.contains(mouse);
  if (is_exponents) {
    draw_exponent_labels(canvas, *list, plot, area, rows.box.from.x, row_height, look.raised_limits);
    draw_step_axis(canvas, *list, area, rows.box.from.x);
  } else {
    draw_row_labels(canvas, *list, rows);
    if (is_in_box) take_row_click(canvas, rows);
    if (canvas.hands) take_row_keys(canvas, plot, look, row_height);
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
    std::string text = row_told(plot, cells, row / cells.joined_rows, row_of(look.tree, row));
    if (row == look.row_of_selected) text += "\nthe selected tensor is one of them";
    if (is_hovered) text += cell_told(plot, cells, row / cells.joined_rows, std::floor(area.value(mouse.x)));
    ImGui::SetTooltip("%s%s", text.c_str(), told.c_str());
  }
  if (scrolls) {
    ImGui::EndChild();
    Area axis;
    place(plot.name + " axis", {width, line + 4 + (plot.series_left_out > 0 ? line : 0)}, axis);
    Area under = area;
    under.to.y = axis.from.y;
    draw_step_axis(canvas, *ImGui::GetWindowDrawList(), under, axis.from.x);
    if (plot.series_left_out > 0)
      draw_text(*ImGui::GetWindowDrawList(), {area.from.x, axis.from.y + line + 2}, canvas.theme->dim,
                fmt::format("and {} more that are not drawn", count_of(plot.series_left_out, "row")));
  }
}

float label_width(const Canvas& canvas, const Plot& plot, const std::vector<ModuleRow>* tree, float room) {
  const float widest = canvas.kept->get<float>("names of " + plot.name, &plot, "", [&](uint64_t) {
    float most = 0;
    for (size_t row = 0; row < plot.series.size(); ++row) {
      const ModuleRow* const in_tree = row_of(tree, row);
      const float width = ImGui::CalcTextSize(in_tree ? in_tree->label.c_str() : plot.series[row].name.c_str()).x;
      most = std::max(most, in_tree ? width + indent_of(*in_tree) : width);
    }
    for (const Limit& limit : plot.limits) most = std::max(most, ImGui::CalcTextSize(limit.name.c_str()).x);
    return most;
  });
  const float most = plot.has_exponent_rows() ? 6 * ImGui::GetFontSize() : std::min(22 * ImGui::GetFontSize(), room * 0.4F);
  return std::round(std::min(widest, most) + 8);
}

}  // namespace ulpscope::gui
