// Views of what an analysis says: why a run had NaN, what became of its updates, two runs side by side.
#include "ulpscope/gui/reports.h"

#include <imgui.h>

#include "ulpscope/gui/plots.h"
#include "ulpscope/gui/views/view.h"

namespace ulpscope::gui {

namespace {

class WhyNan : public ViewPanel {
 public:
  void show(const Canvas& canvas, const Results& results) override {
    if (is_there(results.nan, results, "where NaN and Inf began")) show_report(canvas, *results.nan);
  }
};

class Updates : public ViewPanel {
 public:
  void show(const Canvas& canvas, const Results& results) override {
    if (results.errors && results.errors->empty())
      say("No differences of ops were recorded; ulpscope replay CAPSULE --as fp64 -o FILE records them.");
    else if (results.errors)
      for (const Plot& plot : *results.errors) show_plot(canvas, plot);
    if (is_there(results.updates, results, "the updates")) show_report(canvas, *results.updates);
  }
};

class Compare : public ViewPanel {
 public:
  void show(const Canvas& canvas, const Results& results) override {
    if (results.other.empty()) {
      say("One trace is open. Two are compared: ulpscope view A B");
      return;
    }
    if (is_there(results.compare, results, "the comparison")) show_report(canvas, *results.compare);
  }
};

}  // namespace

std::unique_ptr<ViewPanel> make_why_nan() { return std::make_unique<WhyNan>(); }
std::unique_ptr<ViewPanel> make_updates() { return std::make_unique<Updates>(); }
std::unique_ptr<ViewPanel> make_compare() { return std::make_unique<Compare>(); }

}  // namespace ulpscope::gui
