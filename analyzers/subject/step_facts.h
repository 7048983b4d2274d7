// What the step table says: losses, the loss scale, skipped steps, time and memory, and from where on the run was broken. The one
// place that sums it; every analysis reads it here.
#pragma once

#include <cmath>
#include <optional>

#include "ulpscope/analyzers/subject/analysis.h"
#include "ulpscope/analyzers/subject/lowest_losses.h"
#include "ulpscope/analyzers/subject/timeline.h"

namespace ulpscope {

// A step that changed the loss scale, or was skipped.
struct ScaleChange {
  uint64_t step;
  double before, after;
  bool skipped;
  uint64_t clean_steps;  // before it, since the last change
};

// Steps in which the loss scale stood on one side of a threshold.
struct ScaleZone {
  uint64_t steps = 0, skipped = 0;
};

// What clipping to a norm did, over the steps that were taken and of which both norms are known and finite.
struct Clipping {
  uint64_t steps = 0;
  double least = INFINITY;                         // the norm before over that after
  double least_norm = INFINITY, largest_norm = 0;  // before
  bool by_scale = true;                            // the ratio is the loss scale, in each step

  void add(const StepRow& row);
  void add(const Clipping& other);
  bool clips_much() const { return steps > 0 && least > 100; }
  // A program that shrinks gradients by just the loss scale divides by it.
  bool divides_by_scale() const { return steps > 0 && least > 1 && by_scale; }
};

// The largest finite loss, and the first step that had it.
struct LossPeak {
  double loss;
  uint64_t step;
};

// Of consecutive steps. Of ranks side by side the scale and the losses are the first one's: the scaler decides for all.
struct StepTotals {
  static constexpr size_t kFirstLosses = 10, kLastLosses = 50;
  static constexpr uint64_t kStuck = 10;
  static constexpr std::array<double, 3> kZones{100, 1000, 100000};  // below, below, above

  StepSet steps, skipped, nonfinite_losses;
  StepSet fitted;                                 // AnalysisContext::is_fitted
  StepRow first, last;                            // where there are steps
  std::vector<double> first_losses, last_losses;  // known ones, in order, kFirstLosses and kLastLosses at most
  uint64_t peak_memory = 0;
  int64_t nanoseconds = 0;  // whole ones add exactly in any order
  double lowest_scale = INFINITY, highest_scale = -INFINITY;
  double lowest_scale_after = kUnknown;
  bool scaled = false;  // some scale was not 1
  std::vector<ScaleChange> changes;
  uint64_t count = 0;     // of one rank's steps
  uint64_t with_ops = 0;  // of them, those whose ops were recorded, in more than their row and events
  uint64_t leading_skips = 0, trailing_skips = 0, longest_skip_run = 0, clean_steps = 0;
  std::array<ScaleZone, 3> zones;  // of steps with a loss scale
  Clipping clipping;
  std::optional<LossPeak> peak;
  LowestLosses lowest_losses;
  bool rate_was_zero = true;  // the learning rate, in every step; not known is no zero

  // `adapts_scale`: the run of the step does.
  void add(const StepRow& row, bool adapts_scale);
  void append(const StepTotals& later);
  void beside(const StepTotals& other);
  // No step was taken to the end, and too many for a scale that comes down to one that fits: ten backoffs by 2 are a factor of
  // 1024.
  bool is_stuck() const { return trailing_skips >= kStuck && !takes_growth_back(); }
  // The last steps were skipped right after the scale had grown, and it has not come down yet to what it was before.
  bool takes_growth_back() const;
  // The loss scale with which that step began, and the highest of it and those before.
  struct ScaleThen {
    double scale, highest;
  };
  ScaleThen scale_at(uint64_t step) const;
  double seconds() const { return 1e-9 * static_cast<double>(nanoseconds); }
  // Of the last `n` losses, 1 to last_losses.size().
  double mean_loss(size_t n) const;
};

// Whether so many steps of all are no chance: `fewest` at least, and more than one in 50.
bool recurs(uint64_t some, uint64_t steps, uint64_t fewest);
// Whether these are more than the price of a growing loss scale: PyTorch's scaler pays 1 step in 2000.
bool wastes_many(uint64_t wasted, uint64_t steps);
// Whether losses were NaN or infinite in many steps, or in one that was not skipped: no scaler finds its level by that.
bool harms_losses(const StepTotals& steps);

class StepFacts {
 public:
  // `range`: the steps that are asked for.
  explicit StepFacts(StepRange range = {}) : range_(range) {}

  // Takes all steps of the trace, each rank's in order. `is_fitted`: of the trace's AnalysisContext.
  void add(const TracePart& part, const StepRow& row, bool is_fitted);
  void merge(StepFacts&& other);

  // Of the steps that are asked for: all, and those before the run broke.
  StepTotals whole() const { return totals_.whole(); }
  StepTotals judged() const;
  // From this step on, to the end, every loss of a rank was NaN or infinite; UINT64_MAX: the run did not break. What the rank's
  // rows hold from its own on says what became of the run, and nothing about which format or scale would have suited it.
  uint64_t broken_from() const { return totals_.broken_from().value_or(UINT64_MAX); }
  std::vector<int> broken_ranks() const { return totals_.broken_ranks(); }

  // Of all steps of the trace.
  bool scales_loss() const { return scales_loss_; }
  StepSet steps_of(const TracePart& part) const;

 private:
  StepRange range_;
  ByRank<StepTotals> totals_;
  bool scales_loss_ = false;
  std::map<std::string, StepSet> steps_of_;  // by the path of the part
};

}  // namespace ulpscope
