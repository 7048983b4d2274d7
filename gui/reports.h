// Reports as they are everywhere, to be read and pointed at: a row or a cause leads to its tensor and step.
#pragma once

#include <functional>

#include "ulpscope/analyzers/report/report.h"
#include "ulpscope/gui/canvas.h"

namespace ulpscope::gui {

// The verdict in a sentence, coloured; nothing where there is none.
void show_verdict(const Canvas& canvas, const Report& report);
// To the place and the moment of a finding, in the view that shows it.
void show_place_of(ViewState& state, const Finding& finding);
// Causes with what came of them, then other findings, the most severe first.
void show_findings(const Canvas& canvas, const Report& report);
void show_facts(const Canvas& canvas, const Report& report);
// A further column, the second one, which draws what belongs to a row of the table.
struct DrawnColumn {
  const char* name = nullptr;  // none
  std::function<void(size_t row)> draw;
};
// `height` in pixels, 0: as high as its rows, up to a dozen of them.
void show_table(const Canvas& canvas, const Table& table, float height = 0, const DrawnColumn& drawn = {});
// All of it.
void show_report(const Canvas& canvas, const Report& report);

}  // namespace ulpscope::gui
