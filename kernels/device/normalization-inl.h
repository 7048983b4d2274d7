// Batch and group normalization.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>

#include "ulpscope/base/error.h"
#include "ulpscope/kernels/device/launcher-inl.h"
#include "ulpscope/kernels/device/normalization.h"
#include "ulpscope/kernels/device/ops-inl.h"

namespace ulpscope::device {

// The elements of the channels of an input, in the memory order of `order`: of all samples, or of each.
inline ChannelElements channels_of(const OpCall& call, size_t input, const TensorView& order, bool of_samples) {
  const TensorView& view = call.inputs[input];
  const int64_t channels = view.shape[1], parts = of_samples ? view.shape[0] * channels : channels;
  const int64_t count = parts > 0 ? view.size() / parts : 0;
  if (count > kMostTermsOfMoments)
    throw usage_error("{}: a channel of {} elements; a device takes at most {}", call.op, count, kMostTermsOfMoments);
  return {input_over(call, input, dimensions_in_memory_order(order, of_samples ? ~3u : ~2u)), view.strides[1], count,
          std::max<int64_t>(channels, 1), view.strides[0]};
}
inline ChannelOf channel_of(const TensorView& x, int64_t groups) {
  int64_t area = 1;
  for (int i = 2; i < x.rank; ++i) area *= x.shape[i];
  return {area, x.shape[1], groups};
}
// An input that has one element for each channel.
inline Input of_channels(const OpCall& call, size_t input) { return input_of(call, input, contiguous(call.inputs[input])); }

// A kernel on channels, one block after another.
template <class L, class Kernel>
void on_channels(L& launcher, const Kernel& kernel) {
  if (kernel.channels > 0)
    launcher.machine().launch(Grid{std::min(kernel.channels, kMostRowBlocks), threads_for(kernel.x.count)}, kernel);
}
template <class L>
void batch_norm(L& launcher, const OpCall& call) {
  const TensorView &x = call.inputs[0], &out = call.outputs[0];
  const size_t slots = call.outputs.size();
  std::deque<typename L::Scratch> scratch;
  float* wide[5] = {};
  for (size_t slot = 1; slot < slots; ++slot) wide[slot] = launcher.wide_output(call, slot, scratch);
  const BatchStatistics statistics{channels_of(call, 0, x, false),
                                   x.shape[1],
                                   call.attribute("training") != 0,
                                   call.attribute("eps"),
                                   call.attribute("momentum"),
                                   of_channels(call, 3),
                                   of_channels(call, 4),
                                   wide[1],
                                   wide[2],
                                   wide[3],
                                   wide[4]};
  Normalize kernel{
      output_of(call, 0), channel_of(x, 0), input_of(call, 0, out), of_channels(call, 1), of_channels(call, 2), wide[1], wide[2]};
  on_channels(launcher, statistics);
  on_elements(launcher, call, kernel);
  for (size_t slot = 1; slot < slots; ++slot) launcher.put(call, slot, wide[slot]);
}

template <class L>
void batch_norm_backward(L& launcher, const OpCall& call) {
  const TensorView &x = call.inputs[1], &out = call.outputs[0];
  std::deque<typename L::Scratch> scratch;
  float* const weight = launcher.wide_output(call, 1, scratch);
  float* const bias = launcher.wide_output(call, 2, scratch);
  const BatchGradientSums sums{channels_of(call, 0, x, false),
                               channels_of(call, 1, x, false),
                               x.shape[1],
                               of_channels(call, 3),
                               of_channels(call, 4),
                               weight,
                               bias};
  BatchGradient kernel{output_of(call, 0),
                       channel_of(x, 0),
                       input_of(call, 0, out),
                       input_of(call, 1, out),
                       of_channels(call, 2),
                       of_channels(call, 3),
                       of_channels(call, 4),
                       weight,
                       bias,
                       sums.x.count,
                       call.attribute("training") != 0};
  on_channels(launcher, sums);
  on_elements(launcher, call, kernel);
  launcher.put(call, 1, weight);
  launcher.put(call, 2, bias);
}

template <class L>
void group_norm(L& launcher, const OpCall& call) {
  const TensorView &x = call.inputs[0], &out = call.outputs[0];
  const int64_t channels = x.shape[0] * x.shape[1], groups = call.outputs[1].shape[1], of_samples = x.shape[0] * groups;
  std::deque<typename L::Scratch> scratch;
  float* const mean = launcher.wide_output(call, 1, scratch);
  float* const inverse = launcher.wide_output(call, 2, scratch);
  const typename L::Scratch room(launcher, sizeof(Moments) * static_cast<size_t>(channels));
  auto* const moments = room.template as<Moments>();
  const ChannelMoments of_channel{channels_of(call, 0, x, true), channels, moments};
  on_channels(launcher, of_channel);
  const GroupStatistics of_group{moments, of_samples, x.shape[1] / groups, of_channel.x.count, call.attribute("eps"),
                                 mean,    inverse};
  if (channels > 0) launcher.machine().launch(Grid{std::min(of_samples, kMostRowBlocks), threads_for(of_group.of_group)}, of_group);
  Normalize kernel{
      output_of(call, 0), channel_of(x, groups), input_of(call, 0, out), of_channels(call, 1), of_channels(call, 2), mean, inverse};
  on_elements(launcher, call, kernel);
  launcher.put(call, 1, mean);
  launcher.put(call, 2, inverse);
}

template <class L>
void group_norm_backward(L& launcher, const OpCall& call) {
  const TensorView &x = call.inputs[1], &out = call.outputs[0];
  const int64_t samples = x.shape[0], channels = x.shape[1], groups = call.inputs[3].shape[1];
  std::deque<typename L::Scratch> scratch;
  const auto floats = [&](int64_t n) {
    return scratch.emplace_back(launcher, sizeof(float) * static_cast<size_t>(n)).template as<float>();
  };
  float *const weight = launcher.wide_output(call, 1, scratch), *const bias = launcher.wide_output(call, 2, scratch);
  const GroupGradientSums sums{
      channels_of(call, 0, x, true), channels_of(call, 1, x, true), samples * channels,        channels / groups,
      of_channels(call, 3),          floats(samples * channels),    floats(samples * channels)};
  on_channels(launcher, sums);
  const GroupGradientTotals totals{sums.sums,
                                   sums.products,
                                   samples,
                                   channels,
                                   groups,
                                   of_channels(call, 2),
                                   of_channels(call, 4),
                                   weight,
                                   bias,
                                   floats(samples * groups),
                                   floats(samples * groups)};
  if (const int64_t all = channels + samples * groups; all > 0) launcher.machine().launch(grid_over(all), totals);
  GroupGradient kernel{output_of(call, 0),     channel_of(x, groups),
                       input_of(call, 0, out), input_of(call, 1, out),
                       of_channels(call, 2),   of_channels(call, 3),
                       of_channels(call, 4),   totals.group_sums,
                       totals.group_products,  sums.x.count * (channels / groups)};
  on_elements(launcher, call, kernel);
  launcher.put(call, 1, weight);
  launcher.put(call, 2, bias);
}

template <class L>
void add_normalization(Kernels<L>& kernels) {
  kernels.emplace("batch_norm", &batch_norm<L>);
  kernels.emplace("batch_norm_backward", &batch_norm_backward<L>);
  kernels.emplace("group_norm", &group_norm<L>);
  kernels.emplace("group_norm_backward", &group_norm_backward<L>);
}

}  // namespace ulpscope::device
