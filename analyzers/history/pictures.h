// The pictures of a run that a report is shown with where there is room for pictures.
#pragma once

#include "ulpscope/analyzers/report/report.h"
#include "ulpscope/analyzers/subject/analysis.h"

namespace ulpscope {

// Adds to a report of the trace: the course of the run; the tensors that lost most against the steps, `options.limit` of them for
// each way to lose; and the exponents of those that the findings are about, or else of the worst, against the limits of their type.
void add_pictures(const Snapshot& trace, const AnalysisOptions& options, Report& report);

}  // namespace ulpscope
