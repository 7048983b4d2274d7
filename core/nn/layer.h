// A layer of a model. Its constructor checks the shape that comes in, says which comes out, and declares tensors and the layers
// within it; so a model is checked before any memory is taken, and create_tensors makes what was declared. forward computes.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ulpscope/base/error.h"
#include "ulpscope/core/nn/layer_spec.h"
#include "ulpscope/core/ops/fp8.h"
#include "ulpscope/core/ops/ops.h"

namespace ulpscope {

// A named tensor of a model: a parameter, or a buffer that ops change (running statistics).
struct NamedTensor {
  const std::string* name;    // "features.0.weight", interned
  const std::string* module;  // "features.0"
  Tensor tensor;              // undefined before create_tensors
};

using SampleShape = std::vector<int64_t>;  // of one sample, without the batch

// The types of a model's parameters and buffers.
struct ParameterTypes {
  DType of_batch_norm = DType::f32;
  DType others = DType::f32;
};

// What the encoder of an encoder_decoder gives: its shape, and within a forward pass the tensor.
struct EncoderOutput {
  SampleShape shape;
  Tensor value;
};

// Which linear layers compute in FP8.
struct Fp8Layers {
  Fp8Settings settings;
  std::vector<std::string> excluded;  // patterns of module paths: layers that do not
};

// What holds for a layer and for those within it.
struct LayerSurroundings {
  std::optional<int64_t> smallest_batch = {};         // samples in the smallest batch of the training, where that is known
  std::shared_ptr<const EncoderOutput> encoded = {};  // within a decoder
  std::shared_ptr<const Fp8Layers> fp8 = {};          // nullptr: no layer does
  AttentionKind attention = AttentionKind::sdpa;      // of layers that do not say their own
};

// The kind that an attention layer says, or that of the precision where it leaves that open.
AttentionKind attention_kind(const LayerSpec& spec, AttentionKind of_precision);

// What a layer is built from.
struct LayerArguments {
  const LayerSpec& spec;
  std::string path;     // its module path
  SampleShape input;    // what comes in
  int64_t indices = 0;  // not 0: what comes in are indices below it, and not values
  LayerSurroundings around = {};

  // "expected EXPECTED, got [1, 28, 28]"
  Error mismatch(std::string_view expected) const;
  // Throws where the integer `key` is neither 0, for whatever comes, nor `came`.
  void expect(std::string_view key, int64_t came) const;
};

// How the elements of a tensor begin.
class InitialValues {
 public:
  static InitialValues constant(double value) { return {Kind::constant, value}; }
  // In [-bound, bound), from the seed and the tensor's name: adding a layer moves no other layer's numbers.
  static InitialValues uniform(double bound) { return {Kind::uniform, bound}; }
  // Normal, about 0, with this standard deviation.
  static InitialValues normal(double deviation) { return {Kind::normal, deviation}; }

  std::vector<double> values(size_t count, uint64_t seed, std::string_view name) const;

 private:
  enum class Kind : uint8_t { constant, uniform, normal };
  InitialValues(Kind kind, double value) : kind_(kind), value_(value) {}
  Kind kind_;
  double value_;
};

class Layer {
 public:
  virtual ~Layer() = default;
  Layer(const Layer&) = delete;

  // The layer's output for a batch, computed within its module path.
  Tensor operator()(const Tensor& x, bool training);

  const SampleShape& output_shape() const { return output_shape_; }
  // Makes the tensors of this layer and of those within it in the current context.
  void create_tensors(uint64_t seed, const ParameterTypes& types = {});
  // Of this layer, then of those within it, in the order in which they were declared.
  std::vector<NamedTensor> parameters() const;
  std::vector<NamedTensor> buffers() const;
  std::vector<std::string> module_paths() const;
  // Enters parameters and buffers into the recording, as outputs of the op source.
  void record_initial_values() const;

 protected:
  Layer(std::string_view path, LayerSurroundings around) : path_(intern(path)), around_(std::move(around)) {}
  explicit Layer(const LayerArguments& arguments);

  virtual Tensor forward(const Tensor& x, bool training) = 0;
  // What a linear layer here computes in FP8 with; nullptr: it does not.
  const Fp8Settings* fp8_settings() const;
  // Of the layer's own tensors.
  virtual DType parameter_type(const ParameterTypes& types) const { return types.others; }

  // For constructors. Each throws Error (usage) where more elements are asked for than a tensor, or a sample, may have.
  void set_output_shape(SampleShape shape);
  // Declares a tensor PATH.NAME; create_tensors sets `tensor`, a member of the layer.
  void add_parameter(Tensor& tensor, std::string_view name, std::vector<int64_t> shape, InitialValues initial);
  void add_buffer(Tensor& tensor, std::string_view name, std::vector<int64_t> shape, InitialValues initial);
  // Builds a layer within this one, at PATH.(its name). Errors begin with where it stands, or its name, and its type.
  Layer& add_layer(const LayerSpec& spec, SampleShape input, int64_t indices = 0);
  // Builds layers one after another, the first for what came into this one, at PATH.NAME.(their names), or PATH.(their names) where
  // `name` is "". `indices` as in LayerArguments.
  Layer& add_sequence(std::string_view name, std::span<const LayerSpec> specs, SampleShape input, int64_t indices = 0);
  const std::vector<std::unique_ptr<Layer>>& layers() const { return layers_; }
  // For layers that are added from now on.
  void set_encoded(std::shared_ptr<const EncoderOutput> encoded) { around_.encoded = std::move(encoded); }
  // The layers one after another.
  Tensor run_layers(const Tensor& x, bool training);

 private:
  struct Declared {
    NamedTensor named;
    Tensor* member;
    std::vector<int64_t> shape;
    InitialValues initial;
  };
  Declared declare(Tensor& tensor, std::string_view name, std::vector<int64_t> shape, InitialValues initial) const;

  const std::string* path_;
  LayerSurroundings around_;
  std::optional<DType> dtype_;
  SampleShape output_shape_;
  std::vector<Declared> parameters_, buffers_;
  std::vector<std::unique_ptr<Layer>> layers_;
};

}  // namespace ulpscope
