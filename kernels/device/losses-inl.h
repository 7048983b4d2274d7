// Losses, and norms over several tensors.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>

#include "ulpscope/kernels/device/indices-inl.h"
#include "ulpscope/kernels/device/launcher-inl.h"
#include "ulpscope/kernels/device/long_sums.h"
#include "ulpscope/kernels/device/losses.h"
#include "ulpscope/kernels/device/ops-inl.h"

namespace ulpscope::device {

// Output 0 of a call: the mean of n terms, over all or over the targets that are not ignored.
template <class L, class Terms>
void put_mean(L& launcher, const OpCall& call, const Terms& terms, int64_t n, const Indices& over = {}) {
  const int64_t count = (n + kPartOfSum - 1) / kPartOfSum;
  const typename L::Scratch parts(launcher, sizeof(float) * static_cast<size_t>(count));
  std::deque<typename L::Scratch> wide;
  float* const value = launcher.wide_output(call, 0, wide);
  if (n > 0)
    launcher.machine().launch(Grid{count, threads_for(std::min(n, kPartOfSum))},
                              SumParts<Terms>{terms, n, parts.template as<float>()});
  launcher.machine().launch(Grid{1, threads_for(count)}, MeanOfParts{parts.template as<float>(), count, n, over, value});
  launcher.put(call, 0, value);
}

template <class L>
void cross_entropy(L& launcher, const OpCall& call) {
  static constexpr RowOperand kLogits[] = {RowOperand::row};
  const RowTensors tensors = row_tensors(call, kLogits, {});
  const int64_t rows = call.inputs[0].shape[0], classes = call.inputs[0].shape[1];
  const Indices targets = targets_of(launcher, call, call.inputs[1], classes);
  const Grid grid = grid_of(tensors);
  std::deque<typename L::Scratch> scratch;
  const auto floats = [&](int64_t n) {
    return scratch.emplace_back(launcher, sizeof(float) * static_cast<size_t>(n)).template as<float>();
  };
  float* const terms = floats(rows);
  float* const sums = launcher.wide_output(call, 1, scratch);
  const CrossEntropyRows kernel{tensors.inputs[0],       rows, classes, targets,
                                smoothing_of(call),      sums, terms,   floats(grid.blocks * tensors.scratch_of_block),
                                tensors.scratch_of_block};
  if (tensors.rows > 0) launcher.machine().launch(grid, kernel);
  put_mean(launcher, call, StoredTerms{terms}, rows, targets);
  launcher.put(call, 1, sums);
}

template <class L>
ClassGradient class_gradient(L& launcher, const OpCall& call, size_t targets) {
  const TensorView& out = call.outputs[0];
  return {output_of(call, 0), out.shape[1], input_of(call, 0, contiguous(call.inputs[0])),
          targets_of(launcher, call, call.inputs[targets], out.shape[1])};
}

template <class L>
void cross_entropy_backward(L& launcher, const OpCall& call) {
  CrossEntropyGradient kernel{class_gradient(launcher, call, 2), input_of(call, 1, contiguous(call.inputs[1])),
                              input_of(call, 3, contiguous(call.inputs[3])), smoothing_of(call)};
  launcher.launch(kernel, kernel.of.output, L::record_of(call, 0));
  launcher.sample(call, 0);
}

template <class L>
void nll(L& launcher, const OpCall& call) {
  const TensorView& x = call.inputs[0];
  const Indices targets = targets_of(launcher, call, call.inputs[1], x.shape[1]);
  put_mean(launcher, call, LikelihoodTerms{input_of(call, 0, contiguous(x)), x.shape[1], targets}, x.shape[0], targets);
}

template <class L>
void nll_backward(L& launcher, const OpCall& call) {
  LikelihoodGradient kernel{class_gradient(launcher, call, 1)};
  launcher.launch(kernel, kernel.of.output, L::record_of(call, 0));
  launcher.sample(call, 0);
}

// In the memory order of the prediction.
template <class F, class L>
void mean_of_terms(L& launcher, const OpCall& call) {
  const DimensionList order = dimensions_in_memory_order(call.inputs[0]);
  const ElementTerms<F> terms{F(*call.attributes), input_over(call, 0, order), input_over(call, 1, order)};
  put_mean(launcher, call, terms, call.inputs[0].size());
}

template <class L>
void correct_count(L& launcher, const OpCall& call) {
  const TensorView &scores = call.inputs[0], &out = call.outputs[0];
  const int64_t rows = scores.shape[0], classes = scores.shape[1];
  const Indices targets = targets_of(launcher, call, call.inputs[1], classes);
  launcher.machine().clear(out.data, sizeof(uint64_t));
  const CountCorrect kernel{input_of(call, 0, contiguous(scores)), rows, classes, targets, out.as<uint64_t>()};
  if (scores.size() > 0) launcher.machine().launch(Grid{std::min(rows, kMostRowBlocks), threads_for(classes)}, kernel);
  count_integers(launcher, call, 0);
}

template <class L>
void gradient_norm(L& launcher, const OpCall& call) {
  const size_t count = call.inputs.size();
  const typename L::Scratch sums(launcher, sizeof(double) * count);
  for (size_t first = 0; first < count; first += SquaresOfTensors::kMost) {
    const size_t tensors = std::min<size_t>(SquaresOfTensors::kMost, count - first);
    SquaresOfTensors squares{};
    int threads = kWarpThreads;
    for (size_t i = 0; i < SquaresOfTensors::kMost; ++i) {
      const int64_t size = i < tensors ? call.inputs[first + i].size() : 0;
      squares.first_parts[i + 1] = squares.first_parts[i] + (size + kPartOfSum - 1) / kPartOfSum;
      squares.sizes[i] = size;
      if (i >= tensors) continue;
      squares.inputs[i] = input_over(call, first + i, dimensions_in_memory_order(call.inputs[first + i]));
      threads = std::max(threads, threads_for(std::min(size, kPartOfSum)));
    }
    const int64_t all = squares.first_parts[tensors];
    const typename L::Scratch parts(launcher, sizeof(double) * static_cast<size_t>(all));
    squares.parts = parts.template as<double>();
    squares.sums = sums.template as<double>() + first;
    if (all > 0) launcher.machine().launch(Grid{all, threads}, SquareParts{squares});
    launcher.machine().launch(Grid{static_cast<int64_t>(tensors), kMostThreads}, SquareSums{squares});
  }
  std::deque<typename L::Scratch> wide;
  float* const value = launcher.wide_output(call, 0, wide);
  launcher.machine().launch(Grid{}, NormOfSums{sums.template as<double>(), static_cast<int64_t>(count), value});
  launcher.put(call, 0, value);
}

template <class L, class... F>
void add_means(lanes::FormulaList<F...>, Kernels<L>& kernels) {
  (kernels.emplace(F::kName, &mean_of_terms<F, L>), ...);
}

template <class L>
void add_losses(Kernels<L>& kernels) {
  kernels.emplace("cross_entropy", &cross_entropy<L>);
  kernels.emplace("cross_entropy_backward", &cross_entropy_backward<L>);
  kernels.emplace("nll", &nll<L>);
  kernels.emplace("nll_backward", &nll_backward<L>);
  kernels.emplace("correct_count", &correct_count<L>);
  kernels.emplace("gradient_norm", &gradient_norm<L>);
  add_means(lanes::LossTerms(), kernels);
}

}  // namespace ulpscope::device
