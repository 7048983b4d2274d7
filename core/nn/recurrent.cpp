// Layers that go through a sequence step by step.
#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <vector>

#include "ulpscope/core/engine/function.h"
#include "ulpscope/core/nn/layers.h"

namespace ulpscope {

namespace {

// Gives recurrent weights their gradient, as one product over all places when backward has gone through them, which is how cuDNN
// has it: a product a place would be narrow, and in the lower precision the sum of so many gradients would be rounded each time.
// The function passes on the input's gates, from which every cell follows, so its backward comes after all of theirs; the cells
// take the weights detached.
class RecurrentGradients : public Function {
 public:
  // What goes into the products with the weights, place by place: hidden states [N, H].
  void add_state(const Tensor& hidden) { states_.push_back(hidden.detach()); }
  // What comes back to them, the last place first: gradients [N, gates H]. None, where they are those of the input's gates.
  void add_gradient(const Tensor& gradient) { gradients_.insert(gradients_.begin(), gradient); }

  // Inputs: the input's gates [places, N, gates H], the weight [gates H, H] and, where there is one, its bias [gates H].
  Tensors forward(std::span<const Tensor> inputs) override {
    for (const Tensor& parameter : inputs.subspan(1)) parameters_.push_back(parameter.detach());
    return {inputs[0]};
  }

  Tensors backward(std::span<const Tensor> gradients) override {
    const AutocastScope off(nullptr);  // types are those that forward had
    const int64_t width = gradients[0].shape(-1);
    const Tensor all = gradients_.empty() ? gradients[0] : joined(gradients_, Role::activation_gradient, "gradients");
    const int64_t rows[] = {all.size() / width, width};
    const Tensor of_gates = reshape(all, rows);
    // Where a loss uses the first places only, nothing comes back to the others.
    const Tensor states = slice(joined(states_, Role::activation, "states"), 0, 0, rows[0]);
    Tensors results;
    results.push_back(gradients[0]);
    for (const Tensor& parameter : parameters_) {
      const OutputHint hint{Role::weight_gradient, parameter.body()->parameter, of_gates.body()->lowered};
      const CallOptions options{.hints = {&hint, 1}};
      results.push_back(parameter.rank() == 2 ? call("matmul", {transpose(of_gates), states}, {}, options)
                                              : call("sum", {of_gates}, {{"dims", 1}, {"keep", 0}}, options));
    }
    gradients_.clear();
    return results;
  }

 private:
  // Of all places, one after the other.
  static Tensor joined(std::span<const Tensor> places, Role role, std::string_view name) {
    const OutputHint hint{.role = role, .name = name};
    return dispatch(find_op("cat"), places, {{"dim", 0.0}}, {.hints = {&hint, 1}})[0];
  }

  Tensors parameters_;
  std::vector<Tensor> states_, gradients_;
};

// Passes its input on, and what comes back to `gradients` as well.
class WatchedProduct : public Function {
 public:
  explicit WatchedProduct(std::shared_ptr<RecurrentGradients> gradients) : gradients_(std::move(gradients)) {}
  bool uses_parameters() const override { return true; }  // of the first place, whose state requires no gradient
  Tensors forward(std::span<const Tensor> inputs) override { return Tensors(inputs); }
  Tensors backward(std::span<const Tensor> gradients) override {
    gradients_->add_gradient(gradients[0]);
    return Tensors(gradients);
  }

 private:
  std::shared_ptr<RecurrentGradients> gradients_;
};

// Parameters and their names as PyTorch has them; the state begins as zeros.
class Recurrent : public Layer {
 public:
  // `adds_gates`: gates are functions of the sums of the input's and the hidden state's shares, so that both have one gradient.
  Recurrent(const LayerArguments& a, int64_t gates, bool adds_gates)
      : Layer(a), hidden_(a.spec.integer("hidden_size")), sequences_(a.spec.flag("return_sequences")), adds_gates_(adds_gates) {
    if (a.input.size() != 2) throw a.mismatch("samples of [places, features]");
    int64_t features = a.input[1];
    a.expect("input_size", features);
    const auto initial = InitialValues::uniform(1.0 / std::sqrt(static_cast<double>(hidden_)));
    levels_.resize(static_cast<size_t>(a.spec.integer("num_layers")));
    for (size_t i = 0; i < levels_.size(); ++i) {
      Level& level = levels_[i];
      add_parameter(level.input, fmt::format("weight_ih_l{}", i), {gates * hidden_, features}, initial);
      add_parameter(level.hidden, fmt::format("weight_hh_l{}", i), {gates * hidden_, hidden_}, initial);
      if (a.spec.flag("bias")) {
        add_parameter(level.input_bias, fmt::format("bias_ih_l{}", i), {gates * hidden_}, initial);
        add_parameter(level.hidden_bias, fmt::format("bias_hh_l{}", i), {gates * hidden_}, initial);
      }
      features = hidden_;
    }
    set_output_shape(sequences_ ? SampleShape{a.input[0], hidden_} : SampleShape{hidden_});
  }

 protected:
  // The state after a place, its hidden part first, from the shares of the gates [N, gates H] and the state before.
  virtual Tensors step(const Tensor& of_input, const Tensor& of_hidden, const Tensors& state) const = 0;
  virtual size_t states() const = 0;  // tensors [N, H] that the state is

 private:
  struct Level {
    Tensor input, input_bias, hidden, hidden_bias;
  };

  Tensor forward(const Tensor& x, bool) override {
    constexpr int kSwapped[] = {1, 0, 2};
    const int64_t single[] = {1, x.shape(0), hidden_};
    Tensor value = permute(x, kSwapped);  // [places, N, features]: a step lies together
    for (const Level& level : levels_) {
      const std::vector<Tensor> hidden = run(level, value);
      if (&level == &levels_.back() && !sequences_) return hidden.back();
      std::vector<Tensor> rows;
      for (const Tensor& one : hidden) rows.push_back(reshape(one, single));
      value = cat(rows, 0);
    }
    return permute(value, kSwapped);
  }

  // The hidden states [N, H] at all places of x [places, N, features].
  std::vector<Tensor> run(const Level& level, const Tensor& x) const {
    const int64_t places = x.shape(0), samples = x.shape(1), width = level.input.shape(0);
    const int64_t rows[] = {places * samples, x.shape(2)}, steps[] = {places, samples, width}, step_shape[] = {samples, width};
    const Tensor all = reshape(linear(reshape(x, rows), level.input, level.input_bias), steps);
    const auto gradients = std::make_shared<RecurrentGradients>();
    Tensors arguments{all, level.hidden};
    if (level.hidden_bias) arguments.push_back(level.hidden_bias);
    const Tensor weight = level.hidden.detach(), bias = level.hidden_bias ? level.hidden_bias.detach() : Tensor();

    std::vector<Tensor> result;
    Tensors state;
    for (const Tensor& one : split(ulpscope::apply(gradients, arguments)[0], places, 0)) {
      const Tensor of_input = reshape(one, step_shape);
      if (state.empty()) {
        const Tensor zeros = call("fill", {slice(of_input.detach(), 1, 0, hidden_)}, {{"value", 0}});
        for (size_t i = 0; i < states(); ++i) state.push_back(zeros);
      }
      gradients->add_state(state[0]);
      Tensor of_hidden = linear(state[0], weight, bias);
      if (!adds_gates_) of_hidden = ulpscope::apply(std::make_shared<WatchedProduct>(gradients), {&of_hidden, 1})[0];
      state = step(of_input, of_hidden, state);
      result.push_back(state[0]);
    }
    return result;
  }

  int64_t hidden_;
  bool sequences_, adds_gates_;
  std::vector<Level> levels_;
};

class Lstm : public Recurrent {
 public:
  explicit Lstm(const LayerArguments& a) : Recurrent(a, 4, true) {}

 private:
  size_t states() const override { return 2; }
  Tensors step(const Tensor& of_input, const Tensor& of_hidden, const Tensors& state) const override {
    const LstmState next = lstm_cell(of_input, of_hidden, state[1]);
    return {next.hidden, next.cell};
  }
};

class Gru : public Recurrent {
 public:
  explicit Gru(const LayerArguments& a) : Recurrent(a, 3, false) {}

 private:
  size_t states() const override { return 1; }
  Tensors step(const Tensor& of_input, const Tensor& of_hidden, const Tensors& state) const override {
    return {gru_cell(of_input, of_hidden, state[0])};
  }
};

LayerType recurrent(std::string_view name, std::unique_ptr<Layer> (*make)(const LayerArguments&)) {
  LayerOption levels{{"num_layers", {OptionKind::integer, {.low = 1, .high = 1000}, {}}, "one on the other", ""}, int64_t{1}};
  return {name,
          {input_extent("input_size"), output_extent("hidden_size"), std::move(levels), flag("bias", true),
           flag("return_sequences", true)},
          make};
}

}  // namespace

std::vector<LayerType> recurrent_layers() { return {recurrent("lstm", make_layer<Lstm>), recurrent("gru", make_layer<Gru>)}; }

}  // namespace ulpscope
