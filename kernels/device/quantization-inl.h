// FP8: quantization, and the scales of delayed scaling.
#pragma once

#include <cstdint>
#include <deque>

#include "ulpscope/kernels/device/launcher-inl.h"
#include "ulpscope/kernels/device/ops-inl.h"
#include "ulpscope/kernels/device/quantization.h"
#include "ulpscope/kernels/store.h"

namespace ulpscope::device {

template <class L>
void quantize(L& launcher, const OpCall& call) {
  const TensorView& out = call.outputs[0];
  const bool is_given = call.inputs.size() > 1;
  const typename L::Scratch largest(launcher, sizeof(uint64_t));
  std::deque<typename L::Scratch> wide;
  ScaleOfTensor scale{largest.template as<uint64_t>(),
                      is_given,
                      is_given ? input_of(call, 1, contiguous(call.inputs[1])) : Input{},
                      QuantizationScale(*info(out.dtype).format, *call.attributes),
                      launcher.wide_output(call, 1, wide),
                      launcher.wide_output(call, 2, wide),
                      launcher.wide_output(call, 3, wide),
                      nullptr};
  if (OutputRecord* const record = wanted_record(call, 0)) {
    scale.recorded = static_cast<float*>(launcher.pend(
        sizeof(float), [record](const void* copy) { record->quantization_scale = *static_cast<const float*>(copy); }));
  }
  Quantize kernel{input_of(call, 0, out), scale.scale, output_of(call, 0)};
  const int64_t size = kernel.output.size;
  launcher.machine().clear(largest.template as<void>(), sizeof(uint64_t));
  if (size > 0) launcher.machine().launch(grid_over(size), LargestMagnitude{kernel.input, size, largest.template as<uint64_t>()});
  launcher.machine().launch(Grid{}, scale);
  on_elements(launcher, call, kernel);
  launcher.put(call, 1, scale.scale);
  launcher.put(call, 2, scale.inverse);
  launcher.put(call, 3, scale.amax);
}

// In place; elements move, so the history is made beside the old one.
template <class L>
void amax_history_update(L& launcher, const OpCall& call) {
  const int64_t size = call.inputs[0].size();
  const auto format = static_cast<DType>(call.attribute("dtype"));
  const typename L::Scratch room(launcher, sizeof(float) * static_cast<size_t>(size + 1));
  auto* const shifted = room.template as<float>();
  const auto in_logical_order = [&](size_t input) { return input_of(call, input, contiguous(call.inputs[input])); };
  const UpdateHistory update{in_logical_order(0),
                             in_logical_order(1),
                             in_logical_order(2),
                             size,
                             call.attribute("most_recent") != 0,
                             QuantizationScale(*info(format).format, *call.attributes),
                             shifted,
                             shifted + size};
  launcher.machine().launch(Grid{}, update);
  launcher.put(call, 0, update.shifted);
  launcher.put(call, 1, update.scale);
}

template <class L>
void add_quantization(Kernels<L>& kernels) {
  kernels.emplace("quantize", &quantize<L>);
  kernels.emplace("amax_history_update", &amax_history_update<L>);
}

}  // namespace ulpscope::device
