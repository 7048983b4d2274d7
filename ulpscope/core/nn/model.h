// Models: layers one after another.
#pragma once

#include <span>

#include "ulpscope/core/nn/layer.h"

namespace ulpscope {

class Model : public Layer {
 public:
  // For samples of the shape `input`. Throws Error (usage) that names the first layer that does not fit, what came and what it
  // expects.
  Model(std::span<const LayerSpec> layers, SampleShape input);

 private:
  Tensor forward(const Tensor& x, bool training) override;
};

}  // namespace ulpscope
