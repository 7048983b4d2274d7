// A Report as text for a terminal or a file.
#pragma once

#include <string>
#include <string_view>

#include "ulpscope/analyzers/report/report.h"

namespace ulpscope {

struct TextOptions {
  int width = 120;      // columns that sentences are broken into
  bool color = false;   // ANSI colours
  bool unicode = true;  // false: ASCII only
  bool fit_width =
      false;         // tables and plots keep to the width as well: names are shortened, tables stand in parts; else names are whole
  bool all = false;  // what came of a cause, all notes and all evidence; else they are counted
  size_t most_evidence = 3;  // of a finding, where not all of it is shown
  // Rows of tables, series of histograms and heatmaps, and then all but one line of evidence are left out until the whole has so
  // many lines, as long as a few of each are left; 0: none are.
  size_t most_lines = 0;
};

std::string render_text(const Report& report, const TextOptions& options);
// Of a report with a verdict: "BROKEN: the loss was NaN ...", in one line.
std::string verdict_line(const Report& report);

// One cell as text: "12.5%", "2^-14", "1.5 MiB", "3..5%", "?" where nobody knows, "-" where it does not apply.
std::string cell_text(const Cell& cell, Unit unit);
// The name of a fact, a column or a quantity as it is read: with blanks for its underscores.
std::string shown_name(std::string_view name);
// "features.0 conv2d_backward slot 1, step 7".
std::string key_text(const RowKey& key);

}  // namespace ulpscope
