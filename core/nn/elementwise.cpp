// Ops as layers.
#include "ulpscope/core/nn/layers.h"

namespace ulpscope {

namespace {

// One of one input, whose output has its shape.
class OpLayer : public Layer {
 public:
  explicit OpLayer(const LayerArguments& a) : Layer(a), op_(find_op(a.spec.type->name)) { set_output_shape(a.input); }

 private:
  Tensor forward(const Tensor& x, bool) override { return dispatch(op_, {&x, 1})[0]; }

  const Op& op_;
};

// Over the last dimension of a sample.
class Softmax : public Layer {
 public:
  explicit Softmax(const LayerArguments& a) : Layer(a), subtracts_max_(a.spec.flag("subtract_max")) { set_output_shape(a.input); }

 private:
  Tensor forward(const Tensor& x, bool) override {
    if (subtracts_max_) return softmax(x);
    const Tensor exponentials = call("exp", {x});
    return call("div", {exponentials, sum(exponentials, 1u << (x.rank() - 1), true)});
  }

  bool subtracts_max_;
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
      types.push_back({op->name, {}, make_layer<OpLayer>});
  }
  types.push_back({"softmax",
                   {flag("subtract_max", true, "false: exp(x) / sum(exp(x)) as the formula has it, each op by itself")},
                   make_layer<Softmax>});
  types.push_back({"log_softmax", {}, make_layer<OpLayer>});  // over the last dimension of a sample, too
  return types;
}

}  // namespace ulpscope
