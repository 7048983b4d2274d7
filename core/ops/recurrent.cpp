// Cells of recurrent networks: what a step does after its products, one op each.
#include <fmt/format.h>

#include "ulpscope/base/error.h"
#include "ulpscope/core/ops/ops.h"

namespace ulpscope {

namespace {

// The gates' shares from the input and from the hidden state, [..., gates H] both, and a state [..., H].
void check_gates(const OpArguments& arguments, int64_t gates) {
  const Tensor &of_input = arguments.inputs[0], &of_hidden = arguments.inputs[1], &state = arguments.inputs[2];
  bool fits = state.rank() >= 1 && of_input.rank() == state.rank() && of_hidden.rank() == state.rank();
  for (int i = 0; fits && i < state.rank(); ++i) {
    const int64_t extent = i + 1 < state.rank() ? state.shape(i) : gates * state.shape(i);
    fits = of_input.shape(i) == extent && of_hidden.shape(i) == extent;
  }
  if (!fits)
    wrong_shape(arguments, fmt::format("gates [..., {} H] of the input and of the hidden state, and a state [..., H]", gates));
}

void lstm_cell_shape(const OpArguments& arguments, OutputSpecs& specs) {
  check_gates(arguments, 4);
  const Tensor &gates = arguments.inputs[0], &cell = arguments.inputs[2];
  for (const auto* name : {"hidden", "cell"}) specs.push_back(with_name(make_spec(cell.dtype(), cell.shape()), name));
  specs.push_back(with_name(make_spec(gates.dtype(), gates.shape()), "gates"));
}

// At the last step no gradient arrives at the cell, or none at the hidden state: it is zero.
void lstm_cell_backward(BackwardCall& b) {
  const auto arrived = [&](size_t output) {
    return b.gradient(output) ? b.gradient(output) : call("fill", {b.gradient(1 - output)}, {{"value", 0}});
  };
  const Tensor inputs[] = {arrived(0), arrived(1), b.output(2), b.input(2), b.output(1)};
  const Tensors gradients = dispatch(find_op("lstm_cell_backward"), inputs, {}, {.hints = b.into({0, 2})});
  for (size_t i = 0; i < 2; ++i) b.set(i, gradients[0]);
  b.set(2, gradients[1]);
}

void lstm_cell_backward_shape(const OpArguments& arguments, OutputSpecs& specs) {
  for (const size_t like : {2, 3}) specs.push_back(make_spec(arguments.inputs[like].dtype(), arguments.inputs[like].shape()));
}

void gru_cell_shape(const OpArguments& arguments, OutputSpecs& specs) {
  check_gates(arguments, 3);
  specs.push_back(make_spec(arguments.inputs[2].dtype(), arguments.inputs[2].shape()));
  specs.push_back(with_name(make_spec(arguments.inputs[0].dtype(), arguments.inputs[0].shape()), "gates"));
}

void gru_cell_backward(BackwardCall& b) {
  const Tensor inputs[] = {b.gradient(), b.output(1), b.input(1), b.input(2)};
  const Tensors gradients = dispatch(find_op("gru_cell_backward"), inputs, {}, {.hints = b.into({0, 1, 2})});
  for (size_t i = 0; i < 3; ++i) b.set(i, gradients[i]);
}

void gru_cell_backward_shape(const OpArguments& arguments, OutputSpecs& specs) {
  for (const size_t like : {1, 2, 3}) specs.push_back(make_spec(arguments.inputs[like].dtype(), arguments.inputs[like].shape()));
}

// Of each gate an addition and a function; of the states what is left.
double lstm_cell_flops(std::span<const Tensor>, std::span<const Tensor> outputs) {
  return 13.0 * static_cast<double>(outputs[0].size());
}
double gru_cell_flops(std::span<const Tensor>, std::span<const Tensor> outputs) {
  return 10.0 * static_cast<double>(outputs[0].size());
}

// PyTorch's autocast runs cells in the lower precision.
const Op kRecurrent[] = {
    {.name = "lstm_cell",
     .inputs = 3,
     .autocast = AutocastClass::lower_precision,
     .shape_rule = lstm_cell_shape,
     .backward = lstm_cell_backward,
     .saves_inputs = 0b100,
     .saves_outputs = 0b110,
     .differentiable_outputs = 0b11,
     .flops = lstm_cell_flops},
    {.name = "lstm_cell_backward", .inputs = 5, .shape_rule = lstm_cell_backward_shape},
    {.name = "gru_cell",
     .inputs = 3,
     .autocast = AutocastClass::lower_precision,
     .shape_rule = gru_cell_shape,
     .backward = gru_cell_backward,
     .saves_inputs = 0b110,
     .saves_outputs = 0b10,
     .flops = gru_cell_flops},
    {.name = "gru_cell_backward", .inputs = 4, .shape_rule = gru_cell_backward_shape},
};

}  // namespace

std::span<const Op> recurrent_ops() { return kRecurrent; }

LstmState lstm_cell(const Tensor& of_input, const Tensor& of_hidden, const Tensor& cell) {
  const Tensor inputs[] = {of_input, of_hidden, cell};
  const Tensors outputs = dispatch(find_op("lstm_cell"), inputs);
  return {outputs[0], outputs[1]};
}

Tensor gru_cell(const Tensor& of_input, const Tensor& of_hidden, const Tensor& hidden) {
  return call("gru_cell", {of_input, of_hidden, hidden});
}

}  // namespace ulpscope
