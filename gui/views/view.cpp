#include "ulpscope/gui/views/view.h"

#include <utility>

namespace ulpscope::gui {

void say_missing(const Results& results, const char* what) {
  if (results.is_awaited)
    say("The run has not begun: its data are read, or its model is built.");
  else if (results.failure.empty())
    ImGui::TextDisabled("Reading %s ...", what);
  else
    ImGui::TextDisabled("No %s: the trace could not be read that far.", what);
}

bool has_steps(const Results& results) {
  if (!results.course || results.recorded.last > results.recorded.first) return true;
  ImGui::TextDisabled("%s", results.run.writer == WriterState::alive ? "The trace has no step yet." : "The trace has no step.");
  return false;
}

void say(const char* text) {
  ImGui::PushTextWrapPos(0);
  ImGui::TextDisabled("%s", text);
  ImGui::PopTextWrapPos();
}

void go_on_beside(float width, const char* label) {
  const float text = *label ? ImGui::CalcTextSize(label).x + ImGui::GetStyle().ItemInnerSpacing.x : 0;
  ImGui::SameLine();
  if (ImGui::GetContentRegionAvail().x < width + text) ImGui::NewLine();
}

void take_field_keys(const Canvas& canvas) {
  if (canvas.hands && std::exchange(canvas.hands->asks_field, false)) ImGui::SetKeyboardFocusHere();
}

const Plot* find_plot(const std::vector<Plot>& plots, const char* name) {
  for (const Plot& plot : plots)
    if (plot.name == name) return &plot;
  return nullptr;
}

}  // namespace ulpscope::gui
