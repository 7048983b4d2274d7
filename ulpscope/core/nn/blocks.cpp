// Layers made of layers.
#include "ulpscope/core/nn/layers.h"

namespace ulpscope {

namespace {

// The layers, one after another, `repeat` times, each time with parameters of its own.
class Sequential : public Layer {
 public:
  explicit Sequential(const LayerArguments& a) : Layer(a) {
    const int64_t repeat = a.spec.integer("repeat");
    SampleShape shape = a.input;
    for (int64_t i = 0; i < repeat; ++i) {
      const std::string name = repeat > 1 ? std::to_string(i) : "";
      shape = add_sequence(name, a.spec.layers("layers"), std::move(shape), i == 0 ? a.indices : 0).output_shape();
    }
    set_output_shape(std::move(shape));
  }

 private:
  Tensor forward(const Tensor& x, bool training) override { return run_layers(x, training); }
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

}  // namespace

std::vector<LayerType> block_layers() {
  LayerOption repeat{{"repeat", {ValueKind::integer, {.low = 1, .high = 1000}, {}}, "how many times", ""}, int64_t{1}};
  LayerType sequential{"sequential", {std::move(repeat)}, make_layer<Sequential>};
  sequential.lists = {{"layers", "one after another"}};
  sequential.takes_indices = true;
  LayerType residual{"residual", {}, make_layer<Residual>};
  residual.lists = {{"layers", "one after another"}, {"shortcut", "what is added to them; without layers, the input", false}};
  return {std::move(sequential), std::move(residual)};
}

}  // namespace ulpscope
