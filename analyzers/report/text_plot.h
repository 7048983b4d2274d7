// Plots of a Report as lines of text.
#pragma once

#include <string>

#include "ulpscope/analyzers/report/text.h"

namespace ulpscope {

// A histogram: one line a series, all on one axis, with a bar where each limit lies. Others: one line a series, from first to last
// x.
std::string plot_text(const Plot& plot, const TextOptions& options);

}  // namespace ulpscope
