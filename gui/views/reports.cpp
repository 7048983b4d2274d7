// Views of what an analysis says: why a run had NaN, what became of its updates, two runs side by side, a number in all formats.
#include "ulpscope/gui/reports.h"

#include <imgui.h>
#include <imgui_stdlib.h>

#include "ulpscope/gui/views/view.h"

namespace ulpscope::gui {

namespace {

class WhyNan : public ViewPanel {
 public:
  void show(const Canvas& canvas, const Results& results) override {
    if (is_there(results.nan, results, "where NaN and infinities began")) show_report(canvas, *results.nan);
  }
};

class Updates : public ViewPanel {
 public:
  void show(const Canvas& canvas, const Results& results) override {
    if (is_there(results.updates, results, "the updates")) show_report(canvas, *results.updates);
  }
};

class Compare : public ViewPanel {
 public:
  void show(const Canvas& canvas, const Results& results) override {
    if (results.other.empty()) {
      ImGui::TextDisabled("One trace is open. Two are compared: ulpscope view A B");
      return;
    }
    if (is_there(results.compare, results, "the comparison")) show_report(canvas, *results.compare);
  }
};

class Number : public ViewPanel {
 public:
  void show(const Canvas& canvas, const Results& results) override {
    ImGui::SetNextItemWidth(20 * ImGui::GetFontSize());
    ImGui::InputTextWithHint("##number", "0.1, 65504, 0x1.8p-3, 0x3C00", &canvas.state->number);
    canvas.names->add_item("number");
    ImGui::SameLine();
    ImGui::TextDisabled("a number, which is rounded to each format, or an encoding, which is read in each");
    if (is_there(results.number, results, "the number")) show_report(canvas, *results.number);
  }
};

}  // namespace

std::unique_ptr<ViewPanel> make_why_nan() { return std::make_unique<WhyNan>(); }
std::unique_ptr<ViewPanel> make_updates() { return std::make_unique<Updates>(); }
std::unique_ptr<ViewPanel> make_compare() { return std::make_unique<Compare>(); }
std::unique_ptr<ViewPanel> make_number() { return std::make_unique<Number>(); }

}  // namespace ulpscope::gui
