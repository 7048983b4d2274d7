// Updates that optimizers of torch.optim ask for, from what their step read and left.
#pragma once

#include <optional>
#include <vector>

#include "ulpscope/recorder/aten/tensor.h"

namespace ulpscope::aten {

// A state of an optimizer, by the name that torch.optim gives it, in the host's memory.
struct OptimizerState {
  std::string_view name;
  HostTensor values;
};

// d of w + d into `room`, in logical order, by the rule of torch.optim.SGD, Adam and AdamW (docs/pytorch.md), from the weight and
// the gradient that the step read and the states that it left after so many steps. It is computed in FP32, or in FP64 for a
// parameter in FP64, and has the type that is returned. `gradient` is without the loss scale. Nothing: not known.
std::optional<DType> asked_update(const ulpscope_aten_update& rule, double steps, const HostTensor& weight,
                                  const HostTensor* gradient, std::span<const OptimizerState> states, Room& room);

// Which of the states, by their names, a rule reads; nothing: its update is not known from these.
struct RuleStates {
  std::optional<size_t> first, second;  // the momentum; the first and the second moment
};
std::optional<RuleStates> states_of_rule(const ulpscope_aten_update& rule, std::span<const std::string_view> names,
                                         bool knows_steps);

}  // namespace ulpscope::aten
