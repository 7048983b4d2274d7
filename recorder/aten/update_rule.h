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

// d of w + d, in FP32 or FP64 as the parameter, in logical order.
struct AskedUpdate {
  DType dtype = DType::f32;
  std::vector<float> narrow;
  std::vector<double> wide;
  const void* data() const { return dtype == DType::f64 ? static_cast<const void*>(wide.data()) : narrow.data(); }
};
// Computed by the rule of torch.optim.SGD, Adam and AdamW (docs/pytorch.md), from the weight and the gradient that the step read
// and the states that it left after so many steps, in FP32, or in FP64 for a parameter in FP64. `gradient` is without the loss
// scale. Nothing: not known.
std::optional<AskedUpdate> asked_update(const ulpscope_aten_update& rule, double steps, const HostTensor& weight,
                                        const HostTensor* gradient, std::span<const OptimizerState> states);

}  // namespace ulpscope::aten
