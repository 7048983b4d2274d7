// Multi-head attention.
#include <fmt/format.h>

#include "ulpscope/core/nn/layers.h"

namespace ulpscope {

namespace {

constexpr std::string_view kOfPrecision = "auto";

// What comes in asks, in several heads; linear layers make queries, keys and values, and one takes the heads' outputs together.
class MultiHead : public Layer {
 protected:
  explicit MultiHead(const LayerArguments& a) : Layer(a), heads_(a.spec.integer("heads")) {
    if (a.input.size() != 2) throw a.mismatch("samples of [places, features]");
    options_.kind = attention_kind(a.spec, a.around.attention);
    features_ = a.input[1];
    if (features_ % heads_ != 0) throw a.mismatch(fmt::format("features that {} heads share equally", heads_));
    set_output_shape(a.input);
  }

  int64_t features() const { return features_; }

  void add_linear(std::string name, const LayerArguments& a, SampleShape input, int64_t features) {
    const LayerSpec spec(*find_layer_type("linear"), std::move(name), {{"out_features", features}, {"bias", a.spec.flag("bias")}});
    add_layer(spec, std::move(input));
  }

  // [N, places, parts features] as [N, heads, places, features of a head] for each part: views.
  Tensors by_head(const Tensor& x, int64_t parts) const {
    const int64_t shape[] = {x.shape(0), x.shape(1), parts * heads_, features_ / heads_};
    const Tensor heads = permute(reshape(x, shape), kOrder);
    return parts == 1 ? Tensors{heads} : split(heads, parts, 1);
  }
  // Takes queries, keys and values by head, and gives the heads' outputs together.
  Tensor attend(const Tensor& query, const Tensor& key, const Tensor& value) const {
    const Tensor heads = scaled_dot_product_attention(query, key, value, options_);
    const int64_t shape[] = {heads.shape(0), heads.shape(2), features_};
    return reshape(permute(heads, kOrder), shape);
  }

  AttentionOptions options_;

 private:
  static constexpr int kOrder[] = {0, 2, 1, 3};
  int64_t heads_, features_ = 0;
};

// To itself, with one linear layer for queries, keys and values, as in GPT-2.
class Attention : public MultiHead {
 public:
  explicit Attention(const LayerArguments& a) : MultiHead(a), causal_(a.spec.flag("causal")), padding_(a.spec.integer("padding")) {
    if (padding_ >= a.input[0]) throw a.mismatch(fmt::format("more places than padding = {}", padding_));
    if (a.spec.has("mask_value")) options_.mask_value = a.spec.number("mask_value");
    if (options_.mask_value && !causal_ && padding_ == 0)
      throw usage_error("mask_value belongs to causal = true or padding; nothing is masked");
    add_linear("qkv", a, a.input, 3 * features());
    add_linear("out", a, a.input, features());
  }

 private:
  Tensor forward(const Tensor& x, bool training) override {
    const Tensors parts = by_head((*layers()[0])(x, training), 3);
    // The mask is made when it is first needed: its shape never changes.
    if ((causal_ || padding_ > 0) && !options_.masked) options_.masked = attention_mask(x.shape(1), x.shape(1), causal_, padding_);
    return (*layers()[1])(attend(parts[0], parts[1], parts[2]), training);
  }

  bool causal_;
  int64_t padding_;
};

// To what the encoder gave.
class CrossAttention : public MultiHead {
 public:
  explicit CrossAttention(const LayerArguments& a) : MultiHead(a), encoded_(a.around.encoded) {
    if (!encoded_) throw usage_error("expected to stand in the decoder of an encoder_decoder");
    add_linear("query", a, a.input, features());
    add_linear("key_value", a, encoded_->shape, 2 * features());
    add_linear("out", a, a.input, features());
  }

 private:
  Tensor forward(const Tensor& x, bool training) override {
    const Tensor query = by_head((*layers()[0])(x, training), 1)[0];
    const Tensors parts = by_head((*layers()[1])(encoded_->value, training), 2);
    return (*layers()[2])(attend(query, parts[0], parts[1]), training);
  }

  std::shared_ptr<const EncoderOutput> encoded_;
};

}  // namespace

AttentionKind attention_kind(const LayerSpec& spec, AttentionKind of_precision) {
  for (const AttentionKind kind : {AttentionKind::sdpa, AttentionKind::mha, AttentionKind::explicit_scores})
    if (spec.text("kind") == name_of(kind)) return kind;
  return of_precision;
}

std::vector<LayerType> attention_layers() {
  LayerOption mask_value{{"mask_value",
                          {OptionKind::number, {.takes_infinity = true}, {}},
                          "is added to masked scores, in their type; without it softmax leaves masked places out",
                          "none"},
                         std::nullopt};
  const LayerOption kind = choice("kind", {std::string(kOfPrecision), "sdpa", "mha", "explicit"},
                                  "where scores are divided by the root of a head's features, and in which type they are kept "
                                  "([policies.md](policies.md#attention)); auto: as the precision's library");
  std::vector<LayerType> types{
      {"attention",
       {output_extent("heads"), kind, flag("causal", false),
        integer("padding", 0, 0,
                "so many places at the beginning of a sample are padding, which no place sees; with causal and without mask_value "
                "the padding sees nothing, and softmax makes NaN of it"),
        std::move(mask_value), flag("bias", true)},
       make_layer<Attention>},
      {"cross_attention", {output_extent("heads"), kind, flag("bias", true)}, make_layer<CrossAttention>}};
  for (LayerType& type : types) type.attends = true;
  return types;
}

}  // namespace ulpscope
