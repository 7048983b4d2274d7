// Two runs side by side: loss, time, memory, skipped steps, and the ranges of each op's outputs, matched by op id and slot.
// Tables: summary (one metric a row), tensors (the worst differences first). Plot: differences (compared_steps.h). Findings: those
// of Part::compare.
#pragma once

#include "ulpscope/analyzers/subject/analysis.h"

namespace ulpscope {

Report analyze_compare(const Snapshot& a, const Snapshot& b, const AnalysisOptions& options = {});

}  // namespace ulpscope
