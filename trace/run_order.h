// How the traces of one run belong together: by rank, and for each rank the run and those that were resumed from its checkpoints,
// in time. Internal to trace/.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "ulpscope/trace/snapshot.h"

namespace ulpscope::trace_detail {

struct RunTrace {
  std::string path;
  RunInfo run;
};

struct RunPlace {
  size_t trace = 0;  // index
  StepRange steps;   // those that count of it
};

struct ReplacedPart {
  size_t trace = 0;  // index
  size_t by = 0;     // of the one that takes its place
};

struct RunOrder {
  std::vector<RunPlace> places;        // by rank, then by step
  std::vector<ReplacedPart> replaced;  // those of which nothing is left
};

// A resumed run begins with the step it resumed at, and replaces what earlier ones had from there on. `name` is what messages call
// all of them. Throws Error (usage) where they are not one run, or a rank is missing.
RunOrder order_runs(const std::string& name, std::span<const RunTrace> traces);

}  // namespace ulpscope::trace_detail
