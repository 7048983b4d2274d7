// What TRACE can be on a command line.
#pragma once

#include <string>

namespace ulpscope::cli {

// The trace file that `argument` names: itself, or the only one (NAME.h5) in the folder that it is. Throws Error: unreadable for a
// folder without a trace, usage for one with several.
std::string trace_path(const std::string& argument);

}  // namespace ulpscope::cli
