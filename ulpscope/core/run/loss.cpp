#include "ulpscope/core/run/loss.h"

#include "ulpscope/core/ops/ops.h"

namespace ulpscope {

std::span<const LossType> loss_types() {
  static constexpr LossType kTypes[] = {
      {"cross_entropy", TargetKind::labels, cross_entropy},
      {"mse", TargetKind::values, mse},
  };
  return kTypes;
}

}  // namespace ulpscope
