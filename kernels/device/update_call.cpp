#include <algorithm>

#include "ulpscope/base/error.h"
#include "ulpscope/kernels/device/call.h"
#include "ulpscope/kernels/output_rounding.h"
#include "ulpscope/kernels/store.h"

namespace ulpscope::device {
namespace {

// The number of states of the rule that computes a call.
template <class... Rule>
int states_of(std::string_view op, lanes::UpdateList<Rule...>) {
  int states = 0;
  ((states = op == Rule::kName ? Rule::kStates : states), ...);
  return states;
}

}  // namespace

UpdateTensors update_tensors(const OpCall& call, bool is_stepwise) {
  const TensorView& weight = call.outputs[0];
  const auto brought = static_cast<int>(call.inputs.size()) - 2, d_slot = brought + 1;
  UpdateTensors tensors{};
  tensors.brought = brought;
  tensors.weight = input_of(call, 0, weight);
  tensors.gradient = input_of(call, 1, weight);
  for (int state = 0; state < brought; ++state) tensors.states[state] = input_of(call, static_cast<size_t>(state) + 2, weight);
  int tile = 0;
  Output* const d = tensors.outputs + states_of(call.op, lanes::Updates()) + 1;
  for (int slot = 0; slot <= d_slot; ++slot) {
    const TensorView& view = call.outputs[static_cast<size_t>(slot)];
    if (view.data != nullptr && !same_layout(view, weight))
      throw usage_error("{}: output {} lies in memory otherwise than the weight; a device updates tensors that lie alike", call.op,
                        slot);
    Output& output = slot < d_slot ? tensors.outputs[slot] : *d;
    output = output_of(call, slot);
    output.is_stepwise = is_stepwise && slot < d_slot;
    if (output.is_stepwise) output.stepwise = stepwise_rounding(call, slot);
    tile = std::max(tile, output.tile);
  }
  if (wanted_record(call, d_slot) != nullptr) tile = Tile::kSize;
  for (Output& output : tensors.outputs) output.tile = tile;
  return tensors;
}

}  // namespace ulpscope::device
