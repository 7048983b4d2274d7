// Question: do the 16-bit products of the run fit tensor cores? Input: the shapes in the tables of tensors and of the graph; no
// rows. Output: a finding that names the layers whose extents are no multiples of 8, and how much more work the padding is.
#pragma once

#include "ulpscope/analyzers/run_analysis.h"

namespace ulpscope {

void add_tensor_core_findings(const AnalysisContext& context, Report& report);

}  // namespace ulpscope
