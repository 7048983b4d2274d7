// The loss scale: its history, what made it back off and grow, whether it does its work, and which scales would have fitted.
// Input: the step table, the events, and the gradients' rows. Facts: first, final, lowest and highest scale, skipped steps, the
// largest and smallest fitting scale over the run. Tables: changes and skipped steps with the tensor, op and count that caused
// them; the fitting scales of each gradient tensor. Plot: scale and fitting scales over the steps.
// Findings (codes): scale.none, scale.missing, scale.below_100, scale.below_1000, scale.above_100000, scale.no_step_taken,
// scale.collapse, scale.thrashing, scale.under_scaled, scale.over_scaled, scale.stalled, scale.backoffs, scale.no_scale_fits,
// scale.fit_hidden,
// scale.fit_unknown.
#pragma once

#include "ulpscope/analyzers/fitting_scale.h"
#include "ulpscope/analyzers/flush_loss.h"
#include "ulpscope/analyzers/run_analysis.h"

namespace ulpscope {

struct ScaleOptions : AnalysisOptions {
  // The format that gradients are rounded to; nullptr: the one that they were rounded to, or FP16 where that was FP32.
  const FloatFormat* format = nullptr;
};

// What the rows of gradients say of the loss scale, besides which one fits them.
struct GradientLosses {
  struct Flushed {
    RoundingBounds seen;
    FlushLoss loss;
    void append(const Flushed& later) {
      seen += later.seen;
      loss.add(later.loss);
    }
    void beside(const Flushed& other) { append(other); }
  };
  PerTensor<Flushed> flushed;        // of the recorded roundings of each gradient
  uint64_t rows_without_values = 0;  // of gradients
  // A gradient overflowed, and the rounding mode kept it at the largest number: at any scale, and at one above 100000.
  bool saturated = false, saturated_above_100000 = false;

  void append(const GradientLosses& later);
  void beside(const GradientLosses& other) { append(other); }
};

class ScaleFacts {
 public:
  void begin(const AnalysisContext& context) { context_ = &context; }
  void update(const Block& block);
  void merge(ScaleFacts&& other) { losses_.merge(std::move(other.losses_)); }
  TablesRead reads() const { return {}; }
  const ByRank<GradientLosses>& losses() const { return losses_; }

 private:
  const AnalysisContext* context_ = nullptr;
  ByRank<GradientLosses> losses_;
};

// What the analyses of a trace say of its loss scale.
class ScaleReport {
 public:
  // All arguments outlive the report.
  ScaleReport(const AnalysisContext& context, const StepFacts& steps, const ScaleFacts& facts, const FittingScales& fitting);
  void add_findings(Report& report) const;
  void add_facts_and_tables(Report& report) const;

 private:
  void blame_events();
  std::optional<Evidence> most_blamed() const;
  Table changes_table() const;
  Table fits_table() const;
  Plot history_plot() const;
  void find_thresholds(Report& report, bool flushed) const;
  bool find_no_step_taken(Report& report, const std::vector<Evidence>& blame) const;
  void find_pathologies(Report& report) const;
  void find_fit(Report& report, bool flushed) const;
  void find_hidden(Report& report) const;
  void find_unknown_fit(Report& report) const;
  double flushed_share() const;
  uint64_t growth_interval() const;
  bool is_thrashing() const;
  bool none_fits() const;

  const AnalysisContext& context_;
  const Selection& selection_;
  const StepFacts& step_facts_;
  const FittingScales& fitting_;
  const StepTotals steps_;
  const std::array<ScaleZone, 3> zones_;  // StepTotals::kZones, of the steps before the run broke
  const double judged_scale_;             // the final one, or the one with which the run broke
  const uint64_t broken_from_;
  GradientLosses room_;
  const GradientLosses& losses_;
  std::vector<const EventRow*> blame_;  // by change: names the tensor
};

// Of a trace each time it is asked, which may have grown: reads only what is new.
class ScaleAnalysis {
 public:
  explicit ScaleAnalysis(const ScaleOptions& options)
      : options_(options),
        seen_([this] { return Together(FittingScale(options_.flushed_limit, options_.format), ScaleFacts()); }, options_) {}
  ScaleAnalysis(const ScaleAnalysis&) = delete;
  Report report(const Snapshot& reader);

 private:
  const ScaleOptions options_;
  Followed<Together<FittingScale, ScaleFacts>> seen_;
};
Report analyze_scale(const Snapshot& reader, const ScaleOptions& options = {});

}  // namespace ulpscope
