#include "ulpscope/gui/views/view.h"

namespace ulpscope::gui {

void say_missing(const Results& results, const char* what) {
  if (results.is_awaited)
    ImGui::TextDisabled("The run has not begun: its data are read, or its model is built.");
  else if (results.failure.empty())
    ImGui::TextDisabled("Reading %s ...", what);
  else
    ImGui::TextDisabled("No %s: the trace could not be read that far.", what);
}

const Plot* find_plot(const std::vector<Plot>& plots, const char* name) {
  for (const Plot& plot : plots)
    if (plot.name == name) return &plot;
  return nullptr;
}

}  // namespace ulpscope::gui
