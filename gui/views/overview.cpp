// The verdict, a strip over all steps, and the findings, which lead to where they were.
#include "ulpscope/gui/plots.h"
#include "ulpscope/gui/reports.h"
#include "ulpscope/gui/views/view.h"

namespace ulpscope::gui {

namespace {

class Overview : public ViewPanel {
 public:
  void show(const Canvas& canvas, const Results& results) override {
    if (is_there(results.report, results, "the report")) show_verdict(canvas, *results.report);
    const float line = ImGui::GetTextLineHeight();
    if (is_there(results.course, results, "the course of the run")) {
      for (const char* name : {"loss", "loss_scale", "skipped_steps", "nonfinite", "gradients"}) {
        const Plot* const plot = find_plot(*results.course, name);
        // What was zero in all steps is said by its absence.
        const bool is_needed = plot && (name == std::string_view("loss") || has_something(*plot));
        if (is_needed) show_plot(canvas, *plot, {.height = (name == std::string_view("loss") ? 8 : 5.2F) * line});
      }
    }
    if (!results.report) return;
    ImGui::Spacing();
    if (!ImGui::BeginTable("overview", 2, ImGuiTableFlags_SizingStretchProp)) return;
    ImGui::TableSetupColumn("findings", ImGuiTableColumnFlags_WidthStretch, 0.68F);
    ImGui::TableSetupColumn("facts", ImGuiTableColumnFlags_WidthStretch, 0.32F);
    ImGui::TableNextColumn();
    show_findings(canvas, *results.report);
    ImGui::TableNextColumn();
    show_facts(canvas, *results.report);
    ImGui::EndTable();
  }

 private:
  static bool has_something(const Plot& plot) {
    if (!plot.marks.empty()) return true;
    for (const Series& series : plot.series)
      for (const double value : series.y)
        if (value != 0 && value == value) return true;
    return false;
  }
};

}  // namespace

std::unique_ptr<ViewPanel> make_overview() { return std::make_unique<Overview>(); }

}  // namespace ulpscope::gui
