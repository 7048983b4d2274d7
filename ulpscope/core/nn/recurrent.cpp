// Layers that go through a sequence step by step.
#include <fmt/format.h>

#include <cmath>

#include "ulpscope/core/nn/layers.h"

namespace ulpscope {

namespace {

// Parameters and their names as PyTorch has them; the state begins as zeros.
class Recurrent : public Layer {
 public:
  Recurrent(const LayerArguments& a, int64_t gates)
      : Layer(a), hidden_(a.spec.integer("hidden_size")), sequences_(a.spec.flag("return_sequences")) {
    if (a.input.size() != 2) throw a.mismatch("samples of [places, features]");
    int64_t features = a.input[1];
    a.expect("input_size", features);
    const auto initial = InitialValues::uniform(1.0 / std::sqrt(static_cast<double>(hidden_)));
    levels_.resize(static_cast<size_t>(a.spec.integer("num_layers")));
    for (size_t i = 0; i < levels_.size(); ++i) {
      Level& level = levels_[i];
      add_parameter(level.input, fmt::format("weight_ih_l{}", i), {gates * hidden_, features}, initial);
      add_parameter(level.weights.hidden, fmt::format("weight_hh_l{}", i), {gates * hidden_, hidden_}, initial);
      if (a.spec.flag("bias")) {
        add_parameter(level.input_bias, fmt::format("bias_ih_l{}", i), {gates * hidden_}, initial);
        add_parameter(level.weights.hidden_bias, fmt::format("bias_hh_l{}", i), {gates * hidden_}, initial);
      }
      features = hidden_;
    }
    set_output_shape(sequences_ ? SampleShape{a.input[0], hidden_} : SampleShape{hidden_});
  }

 protected:
  // The hidden states [N, H] of all steps, from the gates of the input [N, gates H] at each.
  virtual Tensors run(const Tensors& gates, const Tensor& zeros, const RecurrentWeights& weights) const = 0;

 private:
  struct Level {
    Tensor input, input_bias;
    RecurrentWeights weights;
  };

  Tensor forward(const Tensor& x, bool) override {
    constexpr int kSwapped[] = {1, 0, 2};
    const int64_t samples = x.shape(0), places = x.shape(1);
    Tensor value = permute(x, kSwapped);  // [places, N, features]: a step lies together
    Tensors states;
    for (const Level& level : levels_) {
      const int64_t rows[] = {places * samples, value.shape(-1)}, steps[] = {places, samples, level.input.shape(0)};
      const Tensor all = reshape(linear(reshape(value, rows), level.input, level.input_bias), steps);
      const int64_t step[] = {samples, level.input.shape(0)}, single[] = {1, samples, hidden_};
      Tensors gates = split(all, places, 0);
      for (Tensor& gate : gates) gate = reshape(gate, step);
      const Tensor zeros = call("fill", {slice(gates[0].detach(), 1, 0, hidden_)}, {{"value", 0}});
      states = run(gates, zeros, level.weights);
      if (&level == &levels_.back() && !sequences_) return states[states.size() - 1];
      for (Tensor& state : states) state = reshape(state, single);
      value = cat({states.begin(), states.size()}, 0);
    }
    return permute(value, kSwapped);
  }

  int64_t hidden_;
  bool sequences_;
  std::vector<Level> levels_;
};

class Lstm : public Recurrent {
 public:
  explicit Lstm(const LayerArguments& a) : Recurrent(a, 4) {}

 private:
  Tensors run(const Tensors& gates, const Tensor& zeros, const RecurrentWeights& weights) const override {
    Tensors states;
    LstmState state{zeros, zeros};
    for (const Tensor& gate : gates) {
      state = lstm_cell(gate, state, weights);
      states.push_back(state.hidden);
    }
    return states;
  }
};

class Gru : public Recurrent {
 public:
  explicit Gru(const LayerArguments& a) : Recurrent(a, 3) {}

 private:
  Tensors run(const Tensors& gates, const Tensor& zeros, const RecurrentWeights& weights) const override {
    Tensors states;
    Tensor state = zeros;
    for (const Tensor& gate : gates) {
      state = gru_cell(gate, state, weights);
      states.push_back(state);
    }
    return states;
  }
};

LayerType recurrent(std::string_view name, std::unique_ptr<Layer> (*make)(const LayerArguments&)) {
  LayerOption levels{{"num_layers", {ValueKind::integer, {.low = 1, .high = 1000}, {}}, "one on the other", ""}, int64_t{1}};
  return {name,
          {input_extent("input_size"), output_extent("hidden_size"), std::move(levels), flag("bias", true),
           flag("return_sequences", true)},
          make};
}

}  // namespace

std::vector<LayerType> recurrent_layers() { return {recurrent("lstm", make_layer<Lstm>), recurrent("gru", make_layer<Gru>)}; }

}  // namespace ulpscope
