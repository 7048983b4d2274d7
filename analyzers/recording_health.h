// How the recording itself went, and what the run as a whole shows without its ranges: how the trace ended, warnings, levels
// lowered, steps between the traces of a run that none of them has, a loss that became NaN, and updates that changed no weight.
// Findings (codes): recording.dead, recording.ended_early, recording.missing_steps, recording.level_lowered, recording.cut_short,
// recording.warning, recording.note, run.loss_nonfinite, run.stopped, updates.none_applied, updates.lost,
// updates.biased.
#pragma once

#include "ulpscope/analyzers/analysis.h"

namespace ulpscope {

void add_recording_findings(const Snapshot& reader, const AnalysisOptions& options, Report& report);
// One of them, recording.missing_steps, where traces are read as one run: where one ends before the step that the next begins with.
void add_missing_step_findings(const Snapshot& reader, const AnalysisOptions& options, Report& report);
void add_loss_findings(const Snapshot& reader, const AnalysisOptions& options, Report& report);
// Reads the update rows.
void add_update_findings(const Snapshot& reader, const Selection& selection, const AnalysisOptions& options, Report& report);

}  // namespace ulpscope
