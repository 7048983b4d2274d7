// Layers that normalize.
#include <fmt/format.h>

#include <algorithm>

#include "ulpscope/core/nn/layers.h"

namespace ulpscope {

namespace {

class BatchNorm : public Layer {
 public:
  explicit BatchNorm(const LayerArguments& a)
      : Layer(a), attributes_{{"eps", a.spec.number("eps")}, {"momentum", a.spec.number("momentum")}} {
    if (a.input.empty() || a.input.size() > 3)
      throw a.mismatch("samples of [features], [channels, length] or [channels, height, width]");
    const int64_t features = a.input[0];
    if (a.around.smallest_batch == 1 && std::all_of(a.input.begin() + 1, a.input.end(), [](int64_t extent) { return extent == 1; }))
      throw usage_error(
          "expected at least 2 samples in every training batch, got a batch of 1 (data.drop_last = true leaves out a "
          "smaller last one)");
    a.expect("features", features);
    add_parameter(weight_, "weight", {features}, InitialValues::constant(1));
    add_parameter(bias_, "bias", {features}, InitialValues::constant(0));
    add_buffer(running_mean_, "running_mean", {features}, InitialValues::constant(0));
    add_buffer(running_var_, "running_var", {features}, InitialValues::constant(1));
    set_output_shape(a.input);
  }

 private:
  Tensor forward(const Tensor& x, bool training) override {
    Attributes attributes = attributes_;
    attributes.set("training", training);
    if (context().recomputing) attributes.set("momentum", 0);  // the running statistics have this batch already
    return call("batch_norm", {x, weight_, bias_, running_mean_, running_var_}, attributes);
  }
  DType parameter_type(const ParameterTypes& types) const override { return types.of_batch_norm; }

  Attributes attributes_;
  Tensor weight_, bias_, running_mean_, running_var_;
};

// Each sample by itself, over the values of a group of channels.
class GroupNorm : public Layer {
 public:
  explicit GroupNorm(const LayerArguments& a) : Layer(a), groups_(a.spec.integer("groups")), eps_(a.spec.number("eps")) {
    const int64_t features = a.input[0];
    a.expect("features", features);
    if (features % groups_ != 0) throw a.mismatch(fmt::format("channels that {} groups share equally", groups_));
    add_parameter(weight_, "weight", {features}, InitialValues::constant(1));
    add_parameter(bias_, "bias", {features}, InitialValues::constant(0));
    set_output_shape(a.input);
  }

 private:
  Tensor forward(const Tensor& x, bool) override { return group_norm(x, groups_, weight_, bias_, eps_); }

  int64_t groups_;
  double eps_;
  Tensor weight_, bias_;
};

// Over the last dimension.
class LayerNorm : public Layer {
 public:
  explicit LayerNorm(const LayerArguments& a) : Layer(a), attributes_{{"eps", a.spec.number("eps")}} {
    const int64_t features = a.input.back();
    a.expect("features", features);
    add_parameter(weight_, "weight", {features}, InitialValues::constant(1));
    add_parameter(bias_, "bias", {features}, InitialValues::constant(0));
    set_output_shape(a.input);
  }

 private:
  Tensor forward(const Tensor& x, bool) override { return call("layer_norm", {x, weight_, bias_}, attributes_); }

  Attributes attributes_;
  Tensor weight_, bias_;
};

// One op, whose sums and roots are FP32; or, not fused, the ops that code by hand writes, each of which rounds to its own type.
class RmsNorm : public Layer {
 public:
  explicit RmsNorm(const LayerArguments& a)
      : Layer(a), attributes_{{"eps", a.spec.number("eps")}}, is_fused_(a.spec.flag("fused")) {
    const int64_t features = a.input.back();
    a.expect("features", features);
    add_parameter(weight_, "weight", {features}, InitialValues::constant(1));
    set_output_shape(a.input);
  }

 private:
  Tensor forward(const Tensor& x, bool) override {
    if (is_fused_) return call("rms_norm", {x, weight_}, attributes_);
    const double eps[] = {attributes_["eps"]};
    const Tensor mean_square = mean(mul(x, x), 1u << (x.rank() - 1), true);
    const Tensor inverse = call("rsqrt", {add(mean_square, from_host(*context().backend, DType::f32, {}, eps))});
    return mul(mul(x, inverse), weight_);
  }

  Attributes attributes_;
  bool is_fused_;
  Tensor weight_;
};

}  // namespace

std::vector<LayerType> normalization_layers() {
  return {
      {"batch_norm",
       {input_extent("features"), number("eps", {.low = 0}, 1e-5),
        number("momentum", {.low = 0, .high = 1}, 0.1, "of the running statistics")},
       make_layer<BatchNorm>},
      {"group_norm", {output_extent("groups"), input_extent("features"), number("eps", {.low = 0}, 1e-5)}, make_layer<GroupNorm>},
      {"layer_norm", {input_extent("features"), number("eps", {.low = 0}, 1e-5)}, make_layer<LayerNorm>},
      {"rms_norm",
       {input_extent("features"), number("eps", {.low = 0}, 1e-6),
        flag("fused", true, "false: x * rsqrt(mean(x * x) + eps) * weight, each op by itself and in its own type")},
       make_layer<RmsNorm>}};
}

}  // namespace ulpscope
