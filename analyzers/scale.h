// The loss scale: its history, what made it back off and grow, whether it does its work, and which scales would have fitted.
// Input: the step table, the events, and the gradients' rows. Facts: first, final, lowest and highest scale, skipped steps, the
// largest and smallest fitting scale over the run. Tables: changes and skipped steps with the tensor, op and count that caused
// them; the fitting scales of each gradient tensor. Plot: scale and fitting scales over the steps.
// Findings (codes): scale.none, scale.missing, scale.below_100, scale.below_1000, scale.above_100000, scale.no_step_taken,
// scale.collapse, scale.thrashing, scale.under_scaled, scale.over_scaled, scale.stalled, scale.backoffs, scale.no_scale_fits,
// scale.fit_hidden,
// scale.fit_unknown.
#pragma once

#include "ulpscope/analyzers/analysis.h"
#include "ulpscope/analyzers/fitting_scale.h"
#include "ulpscope/analyzers/flush_loss.h"
#include "ulpscope/analyzers/range_totals.h"

namespace ulpscope {

struct ScaleOptions : AnalysisOptions {
  // The format that gradients are rounded to; nullptr: the one that they were rounded to, or FP16 where that was FP32.
  const FloatFormat* format = nullptr;
};

class ScaleAnalysis : public RowConsumer {
 public:
  // Reads the step table at once. All arguments outlive the analysis.
  // `fitting` takes the same rows.
  ScaleAnalysis(const Snapshot& reader, const Selection& selection, const ScaleOptions& options, const StepFacts& steps,
                const FittingScale& fitting);
  void add(const TensorRow& row) override;
  void add_findings(Report& report) const;
  void add_facts_and_tables(Report& report) const;

 private:
  struct Change {  // a step that changed the scale or was skipped
    uint64_t step;
    double before, after;
    bool skipped;
    uint64_t clean_steps;             // before it, since the last change or skipped step
    const EventRow* blame = nullptr;  // names the tensor
  };
  // The steps with a scale on one side of one of the articles' thresholds.
  struct Zone {
    uint64_t steps = 0, skipped = 0;
  };

  void read_steps();
  void blame_events();
  std::optional<Evidence> most_blamed() const;
  void find_thresholds(Report& report, bool flushed) const;
  bool find_no_step_taken(Report& report, const std::vector<Evidence>& blame) const;
  void find_pathologies(Report& report) const;
  void find_fit(Report& report, bool flushed) const;
  void find_hidden(Report& report) const;
  void find_unknown_fit(Report& report) const;
  double flushed_share() const;
  uint64_t growth_interval() const;
  bool none_fits() const;

  const Snapshot& reader_;
  const Selection& selection_;
  const ScaleOptions& options_;
  const StepFacts& step_facts_;
  const FittingScale& fitting_;
  struct Flushed {
    RoundingBounds seen;
    FlushLoss loss;
  };
  uint64_t rows_without_values_ = 0;  // of gradients
  // A gradient overflowed, and the rounding mode kept it at the largest number: at any scale, and at one above 100000.
  bool saturated_ = false, saturated_above_100000_ = false;
  std::vector<Flushed> flushed_;  // of the recorded roundings of each gradient

  std::vector<Change> changes_;
  uint64_t steps_ = 0, skipped_ = 0;
  uint64_t first_step_ = 0, last_step_ = 0;
  uint64_t leading_skips_ = 0, trailing_skips_ = 0, longest_skip_run_ = 0, clean_steps_ = 0;
  bool scaled_ = false;
  double first_scale_ = 1, final_scale_ = 1, lowest_ = 1, highest_ = 1;
  double judged_scale_ = 1;  // the final one, or the one with which the run broke
  Zone below_100_, below_1000_, above_100000_;
};

Report analyze_scale(const Snapshot& reader, const ScaleOptions& options = {});

}  // namespace ulpscope
