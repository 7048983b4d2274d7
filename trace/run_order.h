// How the traces of a run and of those resumed from its checkpoints follow each other. Internal to trace/.
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

// By step. A resumed run begins with the step it resumed at, and replaces what earlier ones had from there on; traces of which
// nothing is left are not among them. `name` is what messages call all of them. Throws Error (usage) where they are not one run.
std::vector<RunPlace> order_runs(const std::string& name, std::span<const RunTrace> traces);

}  // namespace ulpscope::trace_detail
