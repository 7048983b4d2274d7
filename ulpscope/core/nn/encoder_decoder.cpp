// An encoder and a decoder that looks at what it gave.
#include <fmt/format.h>

#include "ulpscope/core/nn/layers.h"

namespace ulpscope {

namespace {

// The first source_size indices of a sample go through the encoder, the others through the decoder, whose output is the layer's.
class EncoderDecoder : public Layer {
 public:
  explicit EncoderDecoder(const LayerArguments& a) : Layer(a), source_(a.spec.integer("source_size")) {
    if (a.input.size() != 1 || a.input[0] <= source_)
      throw a.mismatch(fmt::format("samples of more than {} places, the source and then the target", source_));
    encoded_->shape = add_sequence("encoder", a.spec.layers("encoder"), {source_}, a.indices).output_shape();
    if (encoded_->shape.size() != 2)
      throw usage_error("expected an encoder that gives [places, features], got {}", describe_shape(encoded_->shape));
    set_encoded(encoded_);
    set_output_shape(add_sequence("decoder", a.spec.layers("decoder"), {a.input[0] - source_}, a.indices).output_shape());
  }

 private:
  Tensor forward(const Tensor& x, bool training) override {
    encoded_->value = (*layers()[0])(copy(slice(x, 1, 0, source_)), training);
    const Tensor output = (*layers()[1])(copy(slice(x, 1, source_, x.shape(1) - source_)), training);
    encoded_->value = {};
    return output;
  }

  int64_t source_;
  std::shared_ptr<EncoderOutput> encoded_ = std::make_shared<EncoderOutput>();
};

// Multi-head attention of what comes in to what the encoder gave.
class CrossAttention : public Layer {
 public:
  explicit CrossAttention(const LayerArguments& a) : Layer(a), heads_(a.spec.integer("heads")), encoded_(a.around.encoded) {
    if (!encoded_) throw usage_error("expected to stand in the decoder of an encoder_decoder");
    if (a.input.size() != 2) throw a.mismatch("samples of [places, features]");
    features_ = a.input[1];
    if (features_ % heads_ != 0) throw a.mismatch(fmt::format("features that {} heads share equally", heads_));
    add_linear("query", a, a.input, features_);
    add_linear("key_value", a, encoded_->shape, 2 * features_);
    add_linear("out", a, a.input, features_);
    set_output_shape(a.input);
  }

 private:
  void add_linear(std::string name, const LayerArguments& a, SampleShape input, int64_t features) {
    const LayerSpec spec(*find_layer_type("linear"), std::move(name), {{"out_features", features}, {"bias", a.spec.flag("bias")}});
    add_layer(spec, std::move(input));
  }

  Tensor forward(const Tensor& x, bool training) override {
    constexpr int kOrder[] = {0, 2, 1, 3};
    const Tensor& source = encoded_->value;
    const int64_t share = features_ / heads_;
    const int64_t of_query[] = {x.shape(0), x.shape(1), heads_, share},
                  of_source[] = {x.shape(0), source.shape(1), 2 * heads_, share}, together[] = {x.shape(0), x.shape(1), features_};
    const Tensor query = permute(reshape((*layers()[0])(x, training), of_query), kOrder);
    const Tensors parts = split(permute(reshape((*layers()[1])(source, training), of_source), kOrder), 2, 1);
    const Tensor heads = scaled_dot_product_attention(query, parts[0], parts[1]);
    return (*layers()[2])(reshape(permute(heads, kOrder), together), training);
  }

  int64_t heads_, features_ = 0;
  std::shared_ptr<const EncoderOutput> encoded_;
};

}  // namespace

std::vector<LayerType> encoder_decoder_layers() {
  LayerOption source = output_extent("source_size");
  source.meaning = "indices of a sample that the encoder gets";
  LayerType both{"encoder_decoder", {std::move(source)}, make_layer<EncoderDecoder>};
  both.lists = {{"encoder", "gets the source, gives [places, features]"}, {"decoder", "gets the other indices"}};
  both.takes_indices = true;
  return {std::move(both), {"cross_attention", {output_extent("heads"), flag("bias", true)}, make_layer<CrossAttention>}};
}

}  // namespace ulpscope
