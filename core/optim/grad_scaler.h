// The dynamic loss scale of FP16 training. Per step: scale the loss, run backward, unscale each optimizer's gradients, skip the
// step of an optimizer whose gradients are not finite, update the scale once.
#pragma once

#include <map>

#include "ulpscope/core/optim/optimizer.h"
#include "ulpscope/emulation/loss_scale.h"

namespace ulpscope {

class GradScaler {
 public:
  explicit GradScaler(const LossScaleRule& rule);

  double scale() const { return state_.scale; }
  // The loss times the scale, in phase scaling.
  Tensor scale_loss(const Tensor& loss) const;
  // Divides the optimizer's gradients by the scale, in place and in their own type, and returns the scalar that is 1 if any of them
  // was not finite. Once per optimizer and step. Throws Error (usage) where a gradient is FP16, as PyTorch does.
  Tensor unscale(Optimizer& optimizer);
  // Steps the optimizer unless its gradients were not finite: `found_nonfinite` is the value of the scalar that unscale returned.
  // True iff the step was taken.
  bool step(Optimizer& optimizer, bool found_nonfinite);
  // Changes the scale once, after all optimizers.
  LossScaleChange update();

  const LossScaleState& state() const { return state_; }
  // Goes on from that state. A scale that the rule keeps constant stays the rule's.
  void restore(const LossScaleState& state);

 private:
  LossScaleRule rule_;
  LossScaleState state_;
  std::map<const Optimizer*, bool> unscaled_;  // in this step; true: stepped or skipped
  bool found_nonfinite_ = false;
};

}  // namespace ulpscope
