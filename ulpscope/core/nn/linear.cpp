// Layers that are matrix products with a weight.
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
    SampleShape output = a.input;
    output.back() = out;
    set_output_shape(std::move(output));
  }

 private:
  Tensor forward(const Tensor& x, bool) override {
    if (x.rank() == 2) return linear(x, weight_, bias_);
    const int64_t rows[] = {-1, x.shape(-1)}, places[] = {x.shape(0), x.shape(1), weight_.shape(0)};
    return reshape(linear(reshape(x, rows), weight_, bias_), places);
  }

  Tensor weight_, bias_;
};

}  // namespace

std::vector<LayerType> linear_layers() {
  return {{"linear", {input_extent("in_features"), output_extent("out_features"), flag("bias", true)}, make_layer<Linear>}};
}

}  // namespace ulpscope
