// Cells of recurrent networks, made of the ops that they consist of: each of them is recorded.
#include <fmt/format.h>

#include "ulpscope/base/error.h"
#include "ulpscope/core/ops/ops.h"

namespace ulpscope {

namespace {

void check_cell(std::string_view name, int64_t gates, const Tensor& input, const Tensor& hidden, const RecurrentWeights& weights) {
  const bool fits = input.rank() == 2 && hidden.rank() == 2 && weights.hidden.rank() == 2 && input.shape(0) == hidden.shape(0) &&
                    weights.hidden.shape(1) == hidden.shape(1) && input.shape(1) == gates * hidden.shape(1) &&
                    weights.hidden.shape(0) == gates * hidden.shape(1);
  if (!fits)
    throw usage_error("{}: expected gates of the input [N, {} H], hidden [N, H] and weight [{} H, H], got {}, {} and {}", name,
                      gates, gates, input.describe(), hidden.describe(), weights.hidden.describe());
}

Tensor sigmoid(const Tensor& x) { return call("sigmoid", {x}); }
Tensor tanh(const Tensor& x) { return call("tanh", {x}); }

}  // namespace

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return bias ? call("linear", {x, weight, bias}) : call("linear", {x, weight});
}

LstmState lstm_cell(const Tensor& input_gates, const LstmState& state, const RecurrentWeights& weights) {
  check_cell("lstm_cell", 4, input_gates, state.hidden, weights);
  const Tensors gates = split(add(input_gates, linear(state.hidden, weights.hidden, weights.hidden_bias)), 4, 1);
  const Tensor kept = mul(sigmoid(gates[1]), state.cell);
  const Tensor cell = add(kept, mul(sigmoid(gates[0]), tanh(gates[2])));
  return {mul(sigmoid(gates[3]), tanh(cell)), cell};
}

Tensor gru_cell(const Tensor& input_gates, const Tensor& hidden, const RecurrentWeights& weights) {
  check_cell("gru_cell", 3, input_gates, hidden, weights);
  const Tensors of_input = split(input_gates, 3, 1);
  const Tensors of_hidden = split(linear(hidden, weights.hidden, weights.hidden_bias), 3, 1);
  const Tensor reset = sigmoid(add(of_input[0], of_hidden[0]));
  const Tensor update = sigmoid(add(of_input[1], of_hidden[1]));
  const Tensor proposed = tanh(add(of_input[2], mul(reset, of_hidden[2])));
  return add(proposed, mul(update, call("sub", {hidden, proposed})));
}

}  // namespace ulpscope
