#include "ulpscope/core/nn/model.h"

namespace ulpscope {

Model::Model(std::span<const LayerSpec> layers, SampleShape input, std::optional<int64_t> smallest_batch)
    : Layer("", smallest_batch) {
  for (const LayerSpec& layer : layers) input = add_layer(layer, std::move(input)).output_shape();
  set_output_shape(std::move(input));
}

Tensor Model::forward(const Tensor& x, bool training) {
  Tensor value = x;
  for (const auto& layer : layers()) value = (*layer)(value, training);
  return value;
}

}  // namespace ulpscope
