// Multi-head self-attention.
#include <fmt/format.h>

#include "ulpscope/core/nn/layers.h"

namespace ulpscope {

namespace {

// One linear layer gives queries, keys and values of all heads, and one takes the heads' outputs together, as in GPT-2.
class Attention : public Layer {
 public:
  explicit Attention(const LayerArguments& a) : Layer(a), heads_(a.spec.integer("heads")), causal_(a.spec.flag("causal")) {
    if (a.input.size() != 2) throw a.mismatch("samples of [places, features]");
    features_ = a.input[1];
    if (features_ % heads_ != 0) throw a.mismatch(fmt::format("features that {} heads share equally", heads_));
    add_linear("qkv", a, a.input, 3 * features_);
    add_linear("out", a, a.input, features_);
    set_output_shape(a.input);
  }

 private:
  void add_linear(std::string name, const LayerArguments& a, SampleShape input, int64_t features) {
    const LayerSpec spec(*find_layer_type("linear"), std::move(name), {{"out_features", features}, {"bias", a.spec.flag("bias")}});
    add_layer(spec, std::move(input));
  }

  Tensor forward(const Tensor& x, bool training) override {
    // [N, places, 3 features] as [N, 3 heads, places, features of a head]: views, of which the first third are the queries.
    constexpr int kOrder[] = {0, 2, 1, 3};
    const int64_t by_head[] = {x.shape(0), x.shape(1), 3 * heads_, features_ / heads_},
                  together[] = {x.shape(0), x.shape(1), features_};
    const Tensors parts = split(permute(reshape((*layers()[0])(x, training), by_head), kOrder), 3, 1);
    if (causal_ && !mask_) mask_ = causal_mask(x.shape(1), x.shape(1));
    const Tensor heads = scaled_dot_product_attention(parts[0], parts[1], parts[2], mask_);
    return (*layers()[1])(reshape(permute(heads, kOrder), together), training);
  }

  int64_t heads_, features_ = 0;
  bool causal_;
  Tensor mask_;  // made when it is first needed: its shape never changes
};

}  // namespace

std::vector<LayerType> attention_layers() {
  return {{"attention", {output_extent("heads"), flag("causal", false), flag("bias", true)}, make_layer<Attention>}};
}

}  // namespace ulpscope
