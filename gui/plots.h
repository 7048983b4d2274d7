// Plots of reports as pictures that are pointed at: the numbers behind a point are told, the wheel and A, D zoom and move along the
// steps, a drag chooses steps, a double click shows all, and a click chooses a step or a tensor.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ulpscope/analyzers/history/module_rows.h"
#include "ulpscope/analyzers/report/report.h"
#include "ulpscope/gui/canvas.h"

namespace ulpscope::gui {

// `height` in pixels, 0: what suits the plot. Limits are drawn so many binades higher. The plot is a piece of the results that are
// shown.
void show_plot(const Canvas& canvas, const Plot& plot, float height = 0, int raised_limits = 0);
// A heatmap whose rows stand in modules that can be folded.
void show_tree(const Canvas& canvas, const Plot& plot, const std::vector<ModuleRow>& rows, float height);

// "12.5% (0.125)": a value as reports show it.
std::string value_text(double value, Unit unit);

}  // namespace ulpscope::gui
