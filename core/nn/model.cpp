#include "ulpscope/core/nn/model.h"

namespace ulpscope {

Model::Model(std::span<const LayerSpec> specs, SampleShape input, std::optional<int64_t> smallest_batch, int64_t indices,
             std::shared_ptr<const Fp8Layers> fp8, AttentionKind attention)
    : Layer("", {.smallest_batch = smallest_batch, .encoded = {}, .fp8 = std::move(fp8), .attention = attention}) {
  for (const LayerSpec& spec : specs) {
    input = add_layer(spec, std::move(input), indices).output_shape();
    indices = 0;
  }
  set_output_shape(std::move(input));
}

Tensor Model::forward(const Tensor& x, bool training) {
  Tensor value = x;
  for (size_t i = 0; i < layers().size(); ++i) {
    value = (*layers()[i])(value, training);
    if (watch_) watch_(i, value);
  }
  return value;
}

}  // namespace ulpscope
