// Layers that are matrix products with a weight.
#include <fmt/format.h>

#include <cmath>

#include "ulpscope/core/nn/layers.h"

namespace ulpscope {

namespace {

// y = x w^T + b; weight and bias begin as in PyTorch, uniform in +-1 / sqrt(in).
class Linear : public Layer {
 public:
  explicit Linear(const LayerArguments& a) : Layer(a) {
    if (a.input.empty() || a.input.size() > 2)
      throw a.mismatch("samples of [features] or [places, features] (put a flatten before it)");
    const int64_t in = a.input.back(), out = a.spec.integer("out_features");
    a.expect("in_features", in);
    const auto initial = InitialValues::uniform(1.0 / std::sqrt(static_cast<double>(in)));
    add_parameter(weight_, "weight", {out, in}, initial);
    if (a.spec.flag("bias")) add_parameter(bias_, "bias", {out}, initial);
    if (fp8_ != nullptr) add_scales(*fp8_);
    SampleShape output = a.input;
    output.back() = out;
    set_output_shape(std::move(output));
  }

 private:
  Tensor forward(const Tensor& x, bool) override {
    if (x.rank() == 2) return product(x);
    const int64_t rows[] = {-1, x.shape(-1)}, places[] = {x.shape(0), x.shape(1), weight_.shape(0)};
    return reshape(product(reshape(x, rows)), places);
  }

  Tensor product(const Tensor& x) {
    if (fp8_ != nullptr && context().autocast != nullptr) return fp8_linear(x, weight_, bias_, *fp8_, scales_);
    return linear(x, weight_, bias_);
  }

  // As in Transformer Engine, scales begin at 1, and histories empty.
  void add_scales(const Fp8Settings& fp8) {
    if (fp8.recipe != ScalingRecipe::delayed) return;
    for (const Fp8Operand operand : {Fp8Operand::input, Fp8Operand::weight, Fp8Operand::gradient}) {
      auto& [history, scale] = scales_.of[static_cast<size_t>(operand)];
      add_buffer(history, fmt::format("{}_amax_history", name_of(operand)), {fp8.amax_history}, InitialValues::constant(0));
      add_buffer(scale, fmt::format("{}_scale", name_of(operand)), {1}, InitialValues::constant(1));
    }
  }

  const Fp8Settings* const fp8_ = fp8_settings();
  Tensor weight_, bias_;
  DelayedScales scales_;
};

}  // namespace

std::vector<LayerType> linear_layers() {
  return {{"linear", {input_extent("in_features"), output_extent("out_features"), flag("bias", true)}, make_layer<Linear>}};
}

}  // namespace ulpscope
