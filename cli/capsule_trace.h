// Traces of capsules, for verbs that answer from a trace.
#pragma once

#include "ulpscope/cli/progress.h"
#include "ulpscope/cli/scratch_folder.h"
#include "ulpscope/trace/snapshot.h"

namespace ulpscope::cli {

// Runs the capsule's steps again, and records them in the folder. Says so where they do not come out as they were.
Snapshot record_capsule(const std::string& capsule, const ScratchFolder& folder, Progress& progress);

}  // namespace ulpscope::cli
