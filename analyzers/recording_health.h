// How the recording itself went, and what the run as a whole shows without its ranges: how the trace ended, warnings, levels
// lowered, steps between the traces of a run that none of them has, a loss that became NaN, and updates that changed no weight.
// Findings (codes): recording.dead, recording.ended_early, recording.missing_steps, recording.level_lowered, recording.cut_short,
// recording.memory_changed, recording.warning, recording.note, run.loss_nonfinite, run.stopped, updates.none_applied, updates.lost,
// updates.biased.
#pragma once

#include "ulpscope/analyzers/run_analysis.h"

namespace ulpscope {

void add_recording_findings(const AnalysisContext& context, const StepFacts& steps, Report& report);
// One of them, recording.missing_steps, where traces are read as one run: where one ends before the step that the next begins with.
void add_missing_step_findings(const AnalysisContext& context, const StepFacts& steps, Report& report);
void add_loss_findings(const AnalysisContext& context, const StepFacts& steps, Report& report);

struct UpdateTotals {
  uint64_t rows = 0, nonzero = 0, lost = 0, lost_to_decay = 0;
  void append(const UpdateTotals& later);
  void beside(const UpdateTotals& other) { append(other); }
};

class UpdateFacts {
 public:
  void begin(const AnalysisContext& context) { context_ = &context; }
  void update(const Block& block);
  void merge(UpdateFacts&& other) { updates_.merge(std::move(other.updates_)); }
  TablesRead reads() const { return {.rows = false, .histograms = false, .parameters = true}; }
  const ByRank<PerTensor<UpdateTotals>>& updates() const { return updates_; }

 private:
  const AnalysisContext* context_ = nullptr;
  ByRank<PerTensor<UpdateTotals>> updates_;
};
void add_update_findings(const AnalysisContext& context, const StepFacts& steps, const UpdateFacts& facts, Report& report);

}  // namespace ulpscope
