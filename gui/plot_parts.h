// What the pictures of plots share: where a plot lies on the screen, which steps it shows, and what the pointer does to them.
#pragma once

#include <imgui.h>

#include <algorithm>
#include <string>

#include "ulpscope/analyzers/report/report.h"
#include "ulpscope/gui/canvas.h"
#include "ulpscope/gui/plots.h"

namespace ulpscope::gui {

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

float line_height();

// A box for a plot, which takes the pointer. True iff that is over it.
bool place(const std::string& name, ImVec2 size, Area& area);
// The box, over the shown steps.
Area area_of_steps(const Canvas& canvas, const Area& box);

// The step under the pointer, wheel, drag and clicks, the same in all plots over steps.
void take_steps(const Canvas& canvas, const Area& area, bool is_hovered);
void draw_drag(ImDrawList& list, const Theme& theme, const Area& area, bool is_active);
// The chosen step, and the one under the pointer.
void draw_step_lines(const Canvas& canvas, ImDrawList& list, const Area& area, bool is_hovered);
// `left`: where what stands left of the plot begins, its name among it.
void draw_step_axis(const Canvas& canvas, ImDrawList& list, const Area& area, float left);
// What the marks under the pointer say is added to `told`.
void draw_marks(const Canvas& canvas, ImDrawList& list, const Plot& plot, const Area& area, bool is_hovered, std::string& told);

// Of what was drawn last.
void show_plot_menu(const Plot& plot);

// Pictures of each kind.
void show_steps(const Canvas& canvas, const Plot& plot, const PlotLook& look);
void show_heatmap(const Canvas& canvas, const Plot& plot, const PlotLook& look);
void show_histogram(const Canvas& canvas, const Plot& plot, const PlotLook& look);
void show_graph(const Canvas& canvas, const Plot& plot, const PlotLook& look);

}  // namespace ulpscope::gui
