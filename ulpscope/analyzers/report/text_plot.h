// Plots of a Report as lines of text.
#pragma once

#include <string>

#include "ulpscope/analyzers/report/text.h"

namespace ulpscope {

// The number of columns that UTF-8 text takes, at one column a code point.
size_t text_width(std::string_view text);
// The text in exactly `width` columns: filled with blanks, or its beginning replaced by an ellipsis.
std::string fit_text(std::string_view text, size_t width, bool align_right, bool unicode);

// A histogram: one line a series, all on one axis, with a bar where each limit lies. Others: one line a series, from first to last
// x.
std::string plot_text(const Plot& plot, const TextOptions& options);

}  // namespace ulpscope
