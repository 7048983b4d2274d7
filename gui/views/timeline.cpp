// All that a run has one number a step of, under one another on the same steps.
#include "ulpscope/gui/plots.h"
#include "ulpscope/gui/views/view.h"

namespace ulpscope::gui {

namespace {

class Timeline : public ViewPanel {
 public:
  void show(const Canvas& canvas, const Results& results) override {
    if (!is_there(results.course, results, "the course of the run")) return;
    if (!has_steps(results)) return;
    const float line = ImGui::GetTextLineHeight();
    for (const Plot& plot : *results.course) {
      show_plot(canvas, plot, {.height = 7.5F * line});
      ImGui::Spacing();
    }
  }
};

}  // namespace

std::unique_ptr<ViewPanel> make_timeline() { return std::make_unique<Timeline>(); }

}  // namespace ulpscope::gui
