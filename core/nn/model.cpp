#include "ulpscope/core/nn/model.h"

namespace ulpscope {

Model::Model(std::span<const LayerSpec> specs, SampleShape input, std::optional<int64_t> smallest_batch, int64_t indices,
             std::shared_ptr<const Fp8Layers> fp8)
    : Layer("", {.smallest_batch = smallest_batch, .encoded = {}, .fp8 = std::move(fp8)}) {
  set_output_shape(add_sequence("", specs, std::move(input), indices).output_shape());
}

Tensor Model::forward(const Tensor& x, bool training) { return (*layers()[0])(x, training); }

}  // namespace ulpscope
