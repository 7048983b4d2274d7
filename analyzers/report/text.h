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
  // The whole has no more lines than that; 0: as many as it comes to. Code below advice is left out first, then rows of tables and
  // series of histograms and heatmaps, but for a few of each, then what is said of other causes than the first, evidence, other
  // findings, other causes, and whole plots and tables; what is left out is counted. The verdict, the facts and one cause are never
  // cut.
  size_t most_lines = 0;
};

std::string render_text(const Report& report, const TextOptions& options);
// Of a report with a verdict: "BROKEN: the loss was NaN ...", in one line.
std::string verdict_line(const Report& report);
const char* verdict_word(Verdict verdict);  // "BROKEN"

// Of a count of 0, which evidence does not tell.
bool is_no_count(const Quantity& quantity);
// One cell as text: "12.5%", "2^-14", "1.5 MiB", "3..5%", "?" where nobody knows, "-" where it does not apply.
std::string cell_text(const Cell& cell, Unit unit);
// With all its digits; NaN, Infinity and -Infinity are these words, which scripts read as such.
std::string exact_text(double value);
// The name of a fact, a column or a quantity as it is read: with blanks for its underscores.
std::string shown_name(std::string_view name);
// "features.0 conv2d_backward slot 1, step 7".
std::string key_text(const RowKey& key);

}  // namespace ulpscope
