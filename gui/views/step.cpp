// All ops of one step in order of execution; of the selected tensor its exponents over the steps.
#include <fmt/format.h>

#include <algorithm>

#include "ulpscope/gui/plots.h"
#include "ulpscope/gui/reports.h"
#include "ulpscope/gui/views/view.h"

namespace ulpscope::gui {

namespace {

class Step : public ViewPanel {
 public:
  void show(const Canvas& canvas, const Results& results) override {
    ViewState& state = *canvas.state;
    const uint64_t first = results.recorded.first, last = std::max(first + 1, results.recorded.last) - 1;
    const uint64_t step = std::clamp(state.step.value_or(first), first, last);
    if (ImGui::Button("<") && step > first) state.step = step - 1;
    canvas.names->add_item("step before");
    ImGui::SameLine();
    uint64_t chosen = step;
    ImGui::SetNextItemWidth(16 * ImGui::GetFontSize());
    if (ImGui::SliderScalar("##step", ImGuiDataType_U64, &chosen, &first, &last, "step %llu"))
      state.step = std::clamp(chosen, first, last);
    canvas.names->add_item("step slider");
    ImGui::SameLine();
    if (ImGui::Button(">") && step < last) state.step = step + 1;
    canvas.names->add_item("step after");
    if (!is_there(results.step, results, "the step")) return;
    const float room = ImGui::GetContentRegionAvail().y;
    show_table(canvas, *results.step, room * (state.tensor.empty() || !results.exponents ? 0.93F : 0.6F));
    if (!state.tensor.empty() && results.exponents) show_plot(canvas, *results.exponents, room * 0.33F);
  }
};

}  // namespace

std::unique_ptr<ViewPanel> make_step() { return std::make_unique<Step>(); }

}  // namespace ulpscope::gui
