// What the rows of a run's tensors come to: the steps before it broke, by which formats and scales are judged, and the others; and
// where its NaN and infinities began, and what became of them.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "ulpscope/analyzers/judgements/nonfinite_flow.h"
#include "ulpscope/analyzers/totals/tensor_ranges.h"

namespace ulpscope {

class RangeFacts;
class StepFacts;

// How NaN and infinities began.
enum class NonfiniteStart : uint8_t {
  none,                 // all that is to be said is that steps were taken with gradients that overflowed
  value_overflowed,     // a value other than a gradient became too large for its format
  gradient_overflowed,  // a gradient did
  other
};

class RangeJudgement {
 public:
  // All arguments outlive it.
  RangeJudgement(const AnalysisContext& context, const StepFacts& steps, const RangeFacts& facts, FollowedBeginnings& followed);
  RangeJudgement(const RangeJudgement&) = delete;

  struct Tensor {
    uint32_t index;
    const TensorRanges& judged;  // of the steps before the run broke
    const TensorRanges* broken;  // of those from there on, where there are some
  };
  const std::vector<Tensor>& tensors() const { return tensors_; }  // of which there were rows, by their indices
  const Tensor* find(uint32_t tensor) const;                       // nullptr: there were none
  uint64_t backward_passes() const { return judged_.backward_passes; }

  // Of all steps, of a tensor of which there were rows.
  NonfiniteRows nonfinite(uint32_t tensor) const;
  uint64_t nan(uint32_t tensor) const { return held(tensor, &RangeTotals::nan); }
  uint64_t infinities(uint32_t tensor) const { return held(tensor, &RangeTotals::infinities); }

  // A mask gives elements no weight in a softmax: its infinities are no fault, and count above as nothing. One that left a softmax
  // nothing, in the step in which it first held them, is none.
  bool is_mask(uint32_t tensor) const { return is_mask_[tensor]; }
  bool has_masks() const { return std::find(is_mask_.begin(), is_mask_.end(), true) != is_mask_.end(); }

  const std::vector<uint32_t>& nonfinite_in_order() const { return nonfinite_in_order_; }  // by when they first held NaN or Inf
  // All beginnings; found when they are first asked for, by a pass over the rows.
  const std::vector<NonfiniteBeginning>& beginnings() const;
  const NonfiniteBeginning* beginning_of(const NonfiniteOrigin& origin) const;  // that it is a row of; nullptr: of none
  // Where the NaN and infinities that did the run's harm began; of those that did none, the first that reached a
  // loss, or else the first of all. Several where some
  // reached a weight or a gradient, others a loss, and others became zeros because an op divided by them.
  const std::vector<NonfiniteOrigin>& origins() const { return origins_; }
  // Of them the one that `ulpscope nan` is about; nullptr: there are none.
  const NonfiniteOrigin* main_origin() const;
  NonfiniteStart start_of(const NonfiniteOrigin& origin) const;
  bool is_origin(uint32_t tensor) const;
  // What became of them: an error where a weight, an optimizer state or a running statistic held one or the run broke, a warning
  // where steps were taken or wasted with them or an op divided by them, a note where ops or the scaler took them away.
  Severity harm() const { return harm_; }
  bool reached_weights() const { return reached_weights_; }
  // The last step ended before an update, with NaN or Inf in a gradient or what may be a loss, and no scaler skipped it.
  bool gave_up_last_step() const { return gave_up_last_step_; }
  // Some tensors were not asked for, or not recorded: what became of the others is not known.
  bool is_filtered() const { return is_filtered_; }

 private:
  uint64_t held(uint32_t tensor, uint64_t RangeTotals::*count) const;
  NonfiniteRows held(uint32_t tensor, NonfiniteRows TensorRanges::*rows) const;
  std::vector<bool> find_masks() const;
  std::vector<uint32_t> find_nonfinite() const;
  bool find_in_weights(const Selection& selection) const;
  Severity judge_harm(const Selection& selection, const StepTotals& steps) const;
  bool find_given_up(const StepTotals& steps) const;
  bool divides_by_nonfinite() const;
  // NaN and infinities that no overflow made, which a smaller loss scale keeps no step from.
  void find_skipped_for_nan(uint64_t steps);
  bool holds_scale(uint32_t tensor) const;  // its values are multiples of the loss scale, or come of such
  NonfiniteHarm harm_done(const StepTotals& steps, uint64_t broken_from) const;
  std::vector<NonfiniteOrigin> find_origins() const;
  // Where infinities that an op filled in became NaN on their way to a loss or a weight; the origin itself of others.
  NonfiniteOrigin where_filled_became_nan(const NonfiniteOrigin& origin) const;

  const AnalysisContext& context_;
  FollowedBeginnings& followed_;
  RunRanges judged_room_, broken_room_;
  const RunRanges &judged_, &broken_;
  std::vector<Tensor> tensors_;
  std::vector<bool> is_mask_;
  std::vector<uint32_t> nonfinite_in_order_;
  bool broke_ = false, reached_weights_, is_filtered_, gave_up_last_step_;
  Severity harm_;
  uint64_t steps_ = 0;                                         // of the run
  bool had_nonfinite_losses_ = false, wastes_losses_ = false;  // some of them were not finite, and many
  NonfiniteHarm harm_done_;
  mutable std::optional<std::vector<NonfiniteBeginning>> beginnings_;
  std::optional<NonfiniteOrigin> skipped_for_nan_;
  std::vector<NonfiniteOrigin> origins_;
};

}  // namespace ulpscope
