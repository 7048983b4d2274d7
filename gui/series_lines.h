// How the series of a plot are told apart: by colours and, where there are more, by dashes.
#pragma once

#include <imgui.h>

#include <cstddef>
#include <iterator>

#include "ulpscope/analyzers/report/report.h"
#include "ulpscope/gui/theme.h"

namespace ulpscope::gui {

constexpr size_t kSeriesColors = std::size(Theme{}.series);
constexpr float kDashes[][2] = {{0, 0}, {7, 4}, {2, 3}};  // pixels with the line, and without
// Of more than colours and dashes tell apart the first are drawn.
constexpr size_t kMostSeries = kSeriesColors * std::size(kDashes);

// Parts of the line of a series, whose dashes go on from where the last one ended.
class DashedLine {
 public:
  // `series`: its number, below kMostSeries.
  DashedLine(ImDrawList& list, const Theme& theme, size_t series)
      : list_(list), color_(theme.series[series % kSeriesColors]), dash_(kDashes[series / kSeriesColors]) {}

  void add(ImVec2 from, ImVec2 to, float thickness);

 private:
  ImDrawList& list_;
  const ImU32 color_;
  const float (&dash_)[2];
  float gone_ = 0;  // of the period
};

// What lines stand for, from `at` to the right end as far as there is room, and how many it does not name or are not drawn.
void draw_series_legend(ImDrawList& list, const Theme& theme, const Plot& plot, ImVec2 at, float right);

}  // namespace ulpscope::gui
