// Layers made of layers.
#include <fmt/format.h>

#include "ulpscope/core/engine/function.h"
#include "ulpscope/core/nn/layers.h"

namespace ulpscope {

namespace {

// The layers, one after another, `repeat` times, each time with parameters of its own. With `checkpoint` each time keeps only what
// came in, and computes the rest again in backward.
class Sequential : public Layer {
 public:
  explicit Sequential(const LayerArguments& a) : Layer(a), checkpoint_(a.spec.flag("checkpoint")) {
    if (checkpoint_ && a.around.encoded)
      throw usage_error(
          "checkpoint: what is computed again sees only what comes in, and not the encoder's output; expected false "
          "within a decoder");
    const int64_t repeat = a.spec.integer("repeat");
    SampleShape shape = a.input;
    for (int64_t i = 0; i < repeat; ++i) {
      const std::string name = repeat > 1 ? std::to_string(i) : "";
      shape = add_sequence(name, a.spec.layers("layers"), std::move(shape), i == 0 ? a.indices : 0).output_shape();
    }
    set_output_shape(std::move(shape));
  }

 private:
  Tensor forward(const Tensor& x, bool training) override {
    if (!checkpoint_ || !training) return run_layers(x, training);
    Tensor value = x;
    for (const auto& layer : layers()) {
      const auto body = [&part = *layer](std::span<const Tensor> inputs) { return Tensors{part(inputs[0], true)}; };
      value = checkpoint(body, {&value, 1})[0];
    }
    return value;
  }

  bool checkpoint_;
};

// What the layers give plus what the shortcut gives, which is the input where it has no layers.
class Residual : public Layer {
 public:
  explicit Residual(const LayerArguments& a) : Layer(a) {
    const SampleShape& main = add_sequence("", a.spec.layers("layers"), a.input).output_shape();
    const SampleShape& shortcut = add_sequence("shortcut", a.spec.layers("shortcut"), a.input).output_shape();
    if (main != shortcut)
      throw usage_error("expected layers and shortcut to give the same shape, got {} and {}", describe_shape(main),
                        describe_shape(shortcut));
    set_output_shape(main);
  }

 private:
  Tensor forward(const Tensor& x, bool training) override {
    const Tensor main = (*layers()[0])(x, training);
    return add((*layers()[1])(x, training), main);
  }
};

// Each of the layers gets the input; what they give is added or multiplied, or concatenated along a dimension of the samples.
class Branches : public Layer {
 public:
  explicit Branches(const LayerArguments& a)
      : Layer(a),
        concatenates_(a.spec.text("join") == "concat"),
        join_(a.spec.text("join") == "mul" ? mul : add),
        dim_(a.spec.integer("dim")) {
    if (dim_ != 0 && !concatenates_) throw usage_error("dim belongs to join = \"concat\"; join is \"{}\"", a.spec.text("join"));
    SampleShape joined;
    for (const LayerSpec& spec : a.spec.layers("layers")) {
      const SampleShape& shape = add_layer(spec, a.input, a.indices).output_shape();
      if (joined.empty()) {
        joined = shape;
        check_dimension(joined);
        continue;
      }
      if (!fits(joined, shape)) throw mismatch(joined, shape);
      if (concatenates_) joined[dim()] += shape[dim()];
    }
    set_output_shape(std::move(joined));
  }

 private:
  size_t dim() const { return static_cast<size_t>(dim_); }
  void check_dimension(const SampleShape& shape) const {
    if (concatenates_ && dim() >= shape.size())
      throw usage_error("dim: expected a dimension of the branches, which give {}, found {}", describe_shape(shape), dim_);
  }
  bool fits(SampleShape joined, const SampleShape& shape) const {
    if (concatenates_ && shape.size() == joined.size()) joined[dim()] = shape[dim()];
    return joined == shape;
  }
  Error mismatch(const SampleShape& joined, const SampleShape& shape) const {
    const std::string but = concatenates_ ? fmt::format(" but for dimension {}", dim_) : "";
    return usage_error("expected branches that give the same shape{}, got {} and {}", but, describe_shape(joined),
                       describe_shape(shape));
  }

  Tensor forward(const Tensor& x, bool training) override {
    Tensors outputs;
    for (const auto& layer : layers()) outputs.push_back((*layer)(x, training));
    if (concatenates_) return cat(outputs, static_cast<int>(dim_) + 1);
    Tensor joined = outputs[0];
    for (size_t i = 1; i < outputs.size(); ++i) joined = join_(joined, outputs[i]);
    return joined;
  }

  bool concatenates_;
  Tensor (*join_)(const Tensor&, const Tensor&);  // of two, where they are not concatenated
  int64_t dim_;
};

}  // namespace

std::vector<LayerType> block_layers() {
  LayerOption repeat{{"repeat", {OptionKind::integer, {.low = 1, .high = 1000}, {}}, "how many times", ""}, int64_t{1}};
  LayerType sequential{"sequential",
                       {std::move(repeat),
                        flag("checkpoint", false, "keep what comes into each repetition, and compute the rest again in backward")},
                       make_layer<Sequential>};
  sequential.lists = {{"layers", "one after another"}};
  sequential.takes_indices = true;
  LayerType residual{"residual", {}, make_layer<Residual>};
  residual.lists = {{"layers", "one after another"}, {"shortcut", "what is added to them; without layers, the input", false}};
  LayerType branches{"branches",
                     {choice("join", {"add", "mul", "concat"}, "what is done with the outputs"),
                      integer("dim", 0, 0, "concat: the dimension of a sample, from 0, along which")},
                     make_layer<Branches>};
  branches.lists = {{"layers", "each gets the input; a branch of several layers is a sequential"}};
  branches.takes_indices = true;
  return {std::move(sequential), std::move(residual), std::move(branches)};
}

}  // namespace ulpscope
