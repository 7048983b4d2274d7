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

}  // namespace

std::vector<LayerType> encoder_decoder_layers() {
  LayerOption source = output_extent("source_size");
  source.meaning = "indices of a sample that the encoder gets";
  LayerType both{"encoder_decoder", {std::move(source)}, make_layer<EncoderDecoder>};
  both.lists = {{"encoder", "gets the source, gives [places, features]"}, {"decoder", "gets the other indices"}};
  both.takes_indices = true;
  return {std::move(both)};
}

}  // namespace ulpscope
