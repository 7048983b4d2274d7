// Colours, colour maps and fonts. Colour maps are ordered by lightness, so that they are read without seeing hues.
#pragma once

#include <imgui.h>

#include <cstdint>

#include "ulpscope/analyzers/report/report.h"

namespace ulpscope::gui {

struct Theme {
  bool is_light = false;
  ImU32 background, panel, text, dim, grid, accent, good, warning, error, unknown, plot;
  ImU32 series[6];

  ImU32 of(Severity severity) const { return severity == Severity::error ? error : severity == Severity::warning ? warning : dim; }
  ImU32 of(Verdict verdict) const {
    switch (verdict) {
      case Verdict::ok:
        return good;
      case Verdict::warning:
        return warning;
      case Verdict::broken:
        break;
    }
    return error;
  }
};
const Theme& theme(bool is_light);
// 0: nothing is seen, 255: nothing behind it is.
ImU32 with_alpha(ImU32 color, int alpha);
// Makes ImGui's own widgets look so.
void apply(const Theme& theme, float scale);

// 0 to 1 from what is as good as nothing to what is most.
ImU32 map_color(double share, bool is_light);
// Where a value stands between nothing and the most that there can be: shares on a logarithmic scale from a millionth on, headroom
// from 16 binades down to none, others between `lowest` and `highest`. Negative: it is nothing at all.
double place_on_map(double value, Unit unit, double lowest, double highest);

// Loads a proportional font with the characters that reports use from one of the usual places of the system. Where there is none,
// or `own`, ImGui's own is used.
void load_font(ImFontAtlas& atlas, bool own, float pixels);

}  // namespace ulpscope::gui
