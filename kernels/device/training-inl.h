// What a training step does to gradients and weights, in place.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "ulpscope/kernels/device/launcher-inl.h"
#include "ulpscope/kernels/device/ops-inl.h"
#include "ulpscope/kernels/device/updates.h"
#include "ulpscope/kernels/store.h"

namespace ulpscope::device {

template <class L>
void unscale(L& launcher, const OpCall& call) {
  const ElementwiseTensors tensors{{input_of(call, 0, call.outputs[0])}, output_of(call, 0)};
  Unscale kernel{static_cast<float>(call.attribute("inverse_scale")), tensors, call.outputs[1].as<float>()};
  launcher.launch(kernel, kernel.tensors.output, L::record_of(call, 0));
  launcher.sample(call, 0);
  launcher.put(call, 1, call.outputs[1].data);
}

// An update whose operations round to the type `rounded`.
template <class Rule, DType rounded, class L>
void update_rounding(L& launcher, const OpCall& call) {
  const int d_slot = static_cast<int>(call.inputs.size()) - 1;
  Update<Rule, rounded> kernel{Rule(*call.attributes), update_tensors(call, rounded != DType::f32)};
  UpdateTensors& tensors = kernel.tensors;
  tensors.has_decay = lanes::adds_some_decay(kernel.rule);
  Output* const outputs = tensors.outputs;
  OutputRecord* const record = wanted_record(call, d_slot);
  const int64_t tiles = tiles_of(outputs[0]);
  if (record != nullptr) {
    const auto sums = static_cast<size_t>(tiles * UpdateSums::kSums);
    const DecayTerm decay{kernel.rule.adds_decay(), tensors.has_decay};
    void* const memory = launcher.pend(sizeof(UpdateTallies) + sums * sizeof(double),
                                       [record, tiles, sums, decay, rate = call.attribute("lr")](const void* copy) {
                                         const auto* tallies = static_cast<const UpdateTallies*>(copy);
                                         const auto* of_tiles = reinterpret_cast<const double*>(tallies + 1);
                                         std::vector<double> merged(of_tiles, of_tiles + sums);
                                         describe_update(*record, *tallies, merged.data(), tiles, rate, decay);
                                       });
    tensors.tallies = static_cast<UpdateTallies*>(memory);
    tensors.sums = reinterpret_cast<double*>(tensors.tallies + 1);
  }
  for (int slot = 0; slot <= d_slot; ++slot) {
    Output& output = outputs[slot < d_slot ? slot : Rule::kStates + 1];
    launcher.count(output, L::record_of(call, static_cast<size_t>(slot)));
    tensors.has_wide = tensors.has_wide || (slot < d_slot && output.counts != nullptr);
  }
  if (outputs[0].size > 0) launcher.machine().launch(grid_of(outputs[0]), kernel);
  for (size_t slot = 0; slot < call.outputs.size(); ++slot) launcher.sample(call, slot);
}

template <class Rule, class L>
void update(L& launcher, const OpCall& call) {
  check_stepwise(call);
  const DType type = call.attributes->value_or("stepwise", 0) != 0 ? call.outputs[0].dtype : DType::f32;
  if (type == DType::f16) return update_rounding<Rule, DType::f16>(launcher, call);
  if (type == DType::bf16) return update_rounding<Rule, DType::bf16>(launcher, call);
  update_rounding<Rule, DType::f32>(launcher, call);
}

template <class L, class... Rule>
void add_updates(lanes::UpdateList<Rule...>, Kernels<L>& kernels) {
  (kernels.emplace(Rule::kName, &update<Rule, L>), ...);
}

template <class L>
void add_training(Kernels<L>& kernels) {
  kernels.emplace("unscale", &unscale<L>);
  add_updates(lanes::Updates(), kernels);
}

}  // namespace ulpscope::device
