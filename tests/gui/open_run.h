// How tests open a trace for a view model.
#pragma once

#include <string>

#include "ulpscope/trace/run_set.h"

namespace ulpscope::gui {

inline RunSet open_run(const std::string& path) { return RunSet(path); }

}  // namespace ulpscope::gui
