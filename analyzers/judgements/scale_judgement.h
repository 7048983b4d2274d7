// How the loss scale did its work, and which scales would have fitted.
#pragma once

#include <array>
#include <vector>

#include "ulpscope/analyzers/totals/fitting_scale.h"
#include "ulpscope/analyzers/totals/range_facts.h"

namespace ulpscope {

// How the loss of some steps was scaled.
enum class LossScaling : uint8_t { no_steps, none, scaled };

class ScaleJudgement {
 public:
  // All arguments outlive it. `judged`: the steps before the run broke, from which step on.
  ScaleJudgement(const AnalysisContext& context, const StepTotals& steps, const StepTotals& judged, uint64_t broken_from,
                 const RangeFacts& facts, const FittingScales& fitting);
  ScaleJudgement(const ScaleJudgement&) = delete;

  const LossScaling scaling;
  const std::array<ScaleZone, 3> zones;  // StepTotals::kZones, of the steps before the run broke
  const double judged_scale;             // the final one, or the one with which the run broke
  const uint64_t broken_from;

  const RunRanges& ranges() const { return ranges_; }  // of the steps before the run broke
  // A gradient overflowed in them, and the rounding mode kept it at the largest number.
  bool saturated() const { return saturated_; }
  double flushed_share() const { return flushed_share_; }  // of the worst gradient tensor that flushing hurts
  bool flushes() const { return flushes_; }                // more than the options' limit
  // What made a step be skipped, by the steps' changes: names the tensor, where that is known.
  const std::vector<const EventRow*>& blame() const { return blame_; }
  struct Blamed {
    uint32_t tensor;
    uint64_t skipped_steps;
  };
  const std::vector<Blamed>& blamed() const { return blamed_; }  // for most steps first
  // Of the whole trace: the first steps of a search for a scale may all be skipped.
  bool no_step_was_taken() const { return no_step_was_taken_; }
  bool collapsed() const { return collapsed_; }   // it came down to where it stays, and skips all steps
  bool is_at_floor() const { return at_floor_; }  // the same, because it may fall no further
  // Of the steps after the scale was found, more than a tenth were skipped because it had grown.
  bool is_thrashing() const { return is_thrashing_; }
  uint64_t growth_interval() const { return growth_interval_; }
  bool none_fits() const { return none_fits_; }                // one gradient needs a larger scale than another one bears
  bool scale_is_missing() const { return scale_is_missing_; }  // gradients were flushed, and nothing scaled the loss

 private:
  void blame_events(const AnalysisContext& context, const StepTotals& steps);
  void judge_gradients(const Selection& selection);
  bool took_no_step(const AnalysisContext& context, const StepTotals& steps) const;

  RunRanges room_;
  const RunRanges& ranges_;
  double flushed_share_ = 0;
  bool saturated_ = false, flushes_ = false, scale_is_missing_ = false;
  std::vector<const EventRow*> blame_;
  std::vector<Blamed> blamed_;
  bool no_step_was_taken_, at_floor_, collapsed_, is_thrashing_, none_fits_;
  uint64_t growth_interval_;
};

}  // namespace ulpscope
