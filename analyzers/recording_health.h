// How the recording itself went, and what the run as a whole shows without its ranges: how the trace ended, warnings, levels
// lowered, steps between the traces of a run that none of them has, and a loss that became NaN.
// Findings (codes): recording.dead, recording.ended_early, recording.missing_steps, recording.level_lowered, recording.cut_short,
// recording.memory_changed, recording.warning, recording.note, run.loss_nonfinite, run.stopped.
#pragma once

#include "ulpscope/analyzers/run_analysis.h"

namespace ulpscope {

void add_recording_findings(const AnalysisContext& context, const StepFacts& steps, Report& report);
// One of them, recording.missing_steps, where traces are read as one run: where one ends before the step that the next begins with.
void add_missing_step_findings(const AnalysisContext& context, const StepFacts& steps, Report& report);
void add_loss_findings(const AnalysisContext& context, const StepFacts& steps, Report& report);

}  // namespace ulpscope
