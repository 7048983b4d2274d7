// Models: layers one after another.
#pragma once

#include <functional>
#include <span>
#include <utility>

#include "ulpscope/core/nn/layer.h"

namespace ulpscope {

class Model : public Layer {
 public:
  // For samples of the shape `input`, which come in batches of at least `smallest_batch` in training, where that is known. Throws
  // Error (usage) that names the first layer that does not fit, what came and what it expects.
  // Samples are values, or where `indices` is not 0 indices below it.
  Model(std::span<const LayerSpec> layers, SampleShape input, std::optional<int64_t> smallest_batch = {}, int64_t indices = 0,
        std::shared_ptr<const Fp8Layers> fp8 = {}, AttentionKind attention = AttentionKind::sdpa);

  // Is shown what each of the layers gives in a forward pass, by its place among them.
  using Watch = std::function<void(size_t layer, const Tensor& output)>;
  // Gives the one before.
  Watch watch_layers(Watch watch) { return std::exchange(watch_, std::move(watch)); }

 private:
  Tensor forward(const Tensor& x, bool training) override;

  Watch watch_;
};

}  // namespace ulpscope
