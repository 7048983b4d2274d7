// Ops on the same element of each input, on rows and over dimensions.
#pragma once

#include <algorithm>
#include <deque>
#include <string_view>
#include <type_traits>
#include <unordered_map>

#include "ulpscope/base/error.h"
#include "ulpscope/kernels/device/launcher-inl.h"
#include "ulpscope/kernels/rows.h"

namespace ulpscope::device {

// What computes the calls of each op. L: a Launcher.
template <class L>
using Kernels = std::unordered_map<std::string_view, void (*)(L& launcher, const OpCall& call)>;

// A kernel on the elements of output 0, which is its `output`.
template <class L, class Kernel>
void on_elements(L& launcher, const OpCall& call, Kernel& kernel) {
  launcher.launch(kernel, kernel.output, L::record_of(call, 0));
  launcher.sample(call, 0);
}

template <class F, class L>
void elementwise(L& launcher, const OpCall& call) {
  if (!is_float(call.outputs[0].dtype)) return integers<F>(launcher, call);
  Elementwise<F> kernel{F(*call.attributes), elementwise_tensors(call)};
  launcher.launch(kernel, kernel.tensors.output, L::record_of(call, 0));
  launcher.sample(call, 0);
}

// Output `slot`, of integers: those of a formula of at most one input, which may be the output.
template <class F, class L>
void put_integers(L& launcher, const OpCall& call, size_t slot, const F& formula, const Input& input) {
  const TensorView& view = call.outputs[slot];
  ElementwiseIntegers<F> kernel{formula, input, view.data, view.dtype, view.size(), input_of(view).elements, nullptr};
  if (OutputRecord* const record = L::record_of(call, slot); record != nullptr && record->wanted != StatisticsLevel::none) {
    void* const zeros = launcher.pend(sizeof(uint64_t), [record, size = kernel.size](const void* copy) {
      fill_in_integers(*record, size, *static_cast<const uint64_t*>(copy));
    });
    kernel.zeros = static_cast<uint64_t*>(zeros);
  }
  if (kernel.size > 0) launcher.machine().launch(grid_over(kernel.size), kernel);
  launcher.survey(call, slot);
}

// Has output `slot`, of integers that are stored, counted, where its record asks for that.
template <class L>
void count_integers(L& launcher, const OpCall& call, size_t slot) {
  const OutputRecord* const record = L::record_of(call, slot);
  if (record == nullptr || record->wanted == StatisticsLevel::none) return launcher.survey(call, slot);
  put_integers(launcher, call, slot, lanes::Copy(*call.attributes), input_of(call.outputs[slot]));
}

template <class F, class L>
void integers(L& launcher, const OpCall& call) {
  if constexpr (std::is_base_of_v<lanes::Copy, F> || std::is_same_v<F, lanes::Fill>) {
    put_integers(launcher, call, 0, F(*call.attributes), F::kInputs == 0 ? Input{} : input_of(call.inputs[0]));
  } else {
    throw usage_error("{}: no kernel of {} gives {}", call.op, launcher.machine().name(), info(call.outputs[0].dtype).name);
  }
}

template <class L>
void dropout(L& launcher, const OpCall& call) {
  DropOut kernel{Dropout(*call.attributes), elementwise_tensors(call)};
  launcher.launch(kernel, kernel.tensors.output, L::record_of(call, 0));
  launcher.sample(call, 0);
}

// Nothing to compute: the output is there.
template <class L>
void source(L& launcher, const OpCall& call) {
  OutputRecord* const record = L::record_of(call, 0);
  if (record == nullptr) return;
  const TensorView& view = call.outputs[0];
  const FloatFormat* format = info(view.dtype).format;
  if (record->wanted != StatisticsLevel::none) {
    launcher.count_stored(view, *record, is_dense(view) && is_narrow(*format) ? format : nullptr,
                          [record](const Output& output, const void* counts) { fill_in(*record, output, counts); });
  }
  launcher.survey(call, 0);
}

template <class R, class L>
void row_op(L& launcher, const OpCall& call) {
  RowKernel<R> kernel{R(*call.attributes), row_tensors(call, R::kInputs, R::kOutputs)};
  RowTensors& tensors = kernel.tensors;
  if (tensors.rows * tensors.n == 0) return launcher.put_zeros(call);
  const Grid grid = grid_of(tensors);
  const typename L::Scratch scratch(launcher, sizeof(float) * static_cast<size_t>(grid.blocks * tensors.scratch_of_block));
  tensors.scratch = scratch.template as<float>();
  std::deque<typename L::Scratch> wide;
  for (size_t slot = 0; slot < call.outputs.size(); ++slot) tensors.outputs[slot].values = launcher.wide_output(call, slot, wide);
  launcher.machine().launch(grid, kernel);
  for (size_t slot = 0; slot < call.outputs.size(); ++slot) launcher.put(call, slot, tensors.outputs[slot].values);
}
template <class Op, class L>
void reduce(L& launcher, const OpCall& call, const Op& op) {
  Reduction<Op> kernel{op, reduction_tensors(call, 0, static_cast<unsigned>(call.attribute("dims")))};
  std::deque<typename L::Scratch> wide;
  for (size_t slot = 0; slot < call.outputs.size(); ++slot) kernel.tensors.values[slot] = launcher.wide_output(call, slot, wide);
  if (kernel.tensors.outputs > 0) launcher.machine().launch(grid_of(kernel.tensors), kernel);
  for (size_t slot = 0; slot < call.outputs.size(); ++slot) launcher.put(call, slot, kernel.tensors.values[slot]);
}
template <class L>
void sum(L& launcher, const OpCall& call) {
  reduce(launcher, call, SumOfTerms{false});
}
template <class L>
void mean(L& launcher, const OpCall& call) {
  reduce(launcher, call, SumOfTerms{true});
}
template <class L>
void variance(L& launcher, const OpCall& call) {
  reduce(launcher, call, VarianceOfTerms{call.attribute("correction")});
}
template <class L>
void largest(L& launcher, const OpCall& call) {
  reduce(launcher, call, LargestOfTerms());
}
template <class L>
void norm(L& launcher, const OpCall& call) {
  reduce(launcher, call, NormOfTerms());
}

// Of a normalization's weight and bias.
template <class L>
void weight_gradient(L& launcher, const OpCall& call) {
  WeightGradient kernel = weight_gradient_of(call);
  std::deque<typename L::Scratch> wide;
  for (size_t slot = 0; slot < call.outputs.size(); ++slot) kernel.values[slot] = launcher.wide_output(call, slot, wide);
  if (kernel.n > 0) launcher.machine().launch(Grid{std::min(kernel.n, kMostRowBlocks), threads_for(kernel.rows)}, kernel);
  for (size_t slot = 0; slot < call.outputs.size(); ++slot) launcher.put(call, slot, kernel.values[slot]);
}

template <class L, class... F>
void add_formulas(lanes::FormulaList<F...>, Kernels<L>& kernels) {
  static_assert(((F::kInputs <= kMaxInputs) && ...));
  (kernels.emplace(F::kName, &elementwise<F, L>), ...);
}
template <class L, class... R>
void add_row_ops(lanes::RowOpList<R...>, Kernels<L>& kernels) {
  (kernels.emplace(R::kName, &row_op<R, L>), ...);
}

template <class L>
void add_ops(Kernels<L>& kernels) {
  add_formulas(lanes::Formulas(), kernels);
  add_row_ops(lanes::RowOps(), kernels);
  kernels.emplace("dropout", &dropout<L>);
  kernels.emplace("source", &source<L>);
  kernels.emplace("sum", &sum<L>);
  kernels.emplace("mean", &mean<L>);
  kernels.emplace("var", &variance<L>);
  kernels.emplace("max", &largest<L>);
  kernels.emplace("norm", &norm<L>);
  kernels.emplace("layer_norm_backward_weight", &weight_gradient<L>);
  kernels.emplace("rms_norm_backward_weight", &weight_gradient<L>);
}

}  // namespace ulpscope::device
