// Plots of reports as pictures that are pointed at: the numbers behind a point are told, the wheel and A, D zoom and move along the
// steps, a drag chooses steps, a double click shows all, and a click chooses a step or a tensor.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ulpscope/analyzers/history/module_rows.h"
#include "ulpscope/analyzers/report/report.h"
#include "ulpscope/gui/canvas.h"

namespace ulpscope::gui {

struct PlotLook {
  float height = 0;                              // in pixels; 0: what suits the plot
  float label_width = 0;                         // left of what is over steps, in pixels; 0: what its labels take
  int raised_limits = 0;                         // limits are drawn so many binades higher
  const std::vector<ModuleRow>* tree = nullptr;  // of a heatmap: the modules that its rows stand in, which can be folded
  std::optional<size_t> row_of_selected = {};    // that of the folded module in which the selected tensor is
};

// The plot is a piece of the results that are shown.
void show_plot(const Canvas& canvas, const Plot& plot, const PlotLook& look = {});
// What the names of a heatmap's rows take in a window so wide, in pixels.
float label_width(const Canvas& canvas, const Plot& plot, const std::vector<ModuleRow>* tree, float room);

// "12.5% (0.125)": a value as reports show it.
std::string value_text(double value, Unit unit);

}  // namespace ulpscope::gui
