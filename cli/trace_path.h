// What TRACE can be on a command line.
#pragma once

#include <string>

#include "ulpscope/trace/run_set.h"

namespace ulpscope::cli {

// The trace file that `argument` names: itself, or the only one (NAME.h5) in the folder that it is. Throws Error: unreadable for a
// folder without a trace, usage for one with several.
std::string trace_path(const std::string& argument);

// The trace, or the run, that `argument` names: a file, or a folder of a run's trace and those of runs resumed from it. Throws
// Error: unreadable for a folder without a trace, usage for one with traces of several runs.
Snapshot open_trace(const std::string& argument);
// The same, to be followed.
RunSet open_run(const std::string& argument);

}  // namespace ulpscope::cli
