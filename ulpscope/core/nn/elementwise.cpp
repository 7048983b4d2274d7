// Elementwise ops as layers.
#include "ulpscope/core/nn/layers.h"

namespace ulpscope {

namespace {

class Elementwise : public Layer {
 public:
  explicit Elementwise(const LayerArguments& a) : Layer(a), op_(find_op(a.spec.type->name)) { set_output_shape(a.input); }

 private:
  Tensor forward(const Tensor& x, bool) override { return dispatch(op_, {&x, 1})[0]; }

  const Op& op_;
};

// In training only.
class DropoutLayer : public Layer {
 public:
  explicit DropoutLayer(const LayerArguments& a) : Layer(a), p_(a.spec.number("p")) { set_output_shape(a.input); }

 private:
  Tensor forward(const Tensor& x, bool training) override { return training ? dropout(x, p_) : x; }

  double p_;
};

}  // namespace

std::vector<LayerType> elementwise_layers() {
  std::vector<LayerType> types;
  types.push_back(
      {"dropout", {number("p", {.low = 0, .high = 1}, 0.5, "the share of elements that become 0")}, make_layer<DropoutLayer>});
  for (const Op* op : all_ops()) {
    if (op->broadcasts && op->inputs == 1 && !op->needs_attributes && op->backward)
      types.push_back({op->name, {}, make_layer<Elementwise>});
  }
  return types;
}

}  // namespace ulpscope
