// Batch and group normalization in plain loops.
#include <cmath>
#include <optional>

#include "ulpscope/kernels/reference/plain_access.h"

namespace ulpscope::plain {
namespace {

// Mean and sum of squared deviations of one channel: blocks are taken in the compute type, about their own mean, and merged in
// FP64.
template <typename C>
Moments channel_moments(const TensorView& x, int64_t start, const std::vector<int64_t>& offsets) {
  std::vector<Moments> blocks;
  const auto count = static_cast<int64_t>(offsets.size());
  for (int64_t begin = 0; begin < count; begin += kReductionBlock) {
    const int64_t n = std::min(kReductionBlock, count - begin);
    const auto value = [&](int64_t i) { return load<C>(x, start + offsets[begin + i]); };
    const C center = static_cast<C>(static_cast<double>(block_sum<C>(n, value)) / static_cast<double>(n));
    const C deviations = block_sum<C>(n, [&](int64_t i) { return value(i) - center; });
    const C squares = block_sum<C>(n, [&](int64_t i) { return (value(i) - center) * (value(i) - center); });
    blocks.push_back(Moments::about(center, static_cast<double>(n), deviations, squares));
  }
  merge_by_tree(blocks.data(), static_cast<int64_t>(blocks.size()), Moments::merge);
  return blocks[0];
}

template <typename C>
void batch_norm(const OpCall& call) {
  const TensorView& x = call.inputs[0];
  const bool training = call.attribute("training") != 0;
  const double eps = call.attribute("eps"), momentum = call.attribute("momentum");
  const auto offsets = offsets_of(x, dimensions_in_memory_order(x, ~2u));
  const int64_t channels = x.shape[1];
  const auto count = static_cast<double>(offsets.size());
  Output<C> y(call, 0), means(call, 1), inverses(call, 2);
  std::optional<Output<C>> running_means, running_variances;
  if (training) {
    running_means.emplace(call, 3);
    running_variances.emplace(call, 4);
  }
  for (int64_t c = 0; c < channels; ++c) {
    const C weight = at<C>(call.inputs[1], c), bias = at<C>(call.inputs[2], c);
    const C running_mean = at<C>(call.inputs[3], c), running_variance = at<C>(call.inputs[4], c);
    double mean = running_mean, variance = running_variance;
    if (training) {
      const Moments moments = channel_moments<C>(x, c * x.strides[1], offsets);
      mean = moments.mean;
      variance = moments.squares / count;
      (*running_means)[c] = static_cast<C>((1 - momentum) * running_mean + momentum * mean);
      (*running_variances)[c] = static_cast<C>((1 - momentum) * running_variance + momentum * (moments.squares / (count - 1)));
    }
    means[c] = static_cast<C>(mean);
    inverses[c] = static_cast<C>(1 / std::sqrt(variance + eps));
    const C center = means[c], factor = inverses[c] * weight;
    const int64_t area = x.size() / (x.shape[0] * channels);
    for (int64_t n = 0; n < x.shape[0]; ++n) {
      for (int64_t i = 0; i < area; ++i) {
        const int64_t index = (n * channels + c) * area + i;
        y[index] = (at<C>(x, index) - center) * factor + bias;
      }
    }
  }
  y.store();
  means.store();
  inverses.store();
  if (!training) return;
  running_means->store();
  running_variances->store();
}

template <typename C>
void batch_norm_backward(const OpCall& call) {
  const TensorView &g = call.inputs[0], &x = call.inputs[1];
  const bool training = call.attribute("training") != 0;
  const DimensionList order = dimensions_in_memory_order(x, ~2u);
  const auto x_offsets = offsets_of(x, order), g_offsets = offsets_of(g, order);
  const auto count = static_cast<int64_t>(x_offsets.size());
  const int64_t channels = x.shape[1], area = x.size() / (x.shape[0] * channels);
  Output<C> dx(call, 0), dweight(call, 1), dbias(call, 2);
  for (int64_t c = 0; c < channels; ++c) {
    const C weight = at<C>(call.inputs[2], c), mean = at<C>(call.inputs[3], c), inverse = at<C>(call.inputs[4], c);
    const auto gradient = [&](int64_t i) { return load<C>(g, c * g.strides[1] + g_offsets[i]); };
    const C sum = ordered_sum<C>(count, gradient);
    const C product =
        ordered_sum<C>(count, [&](int64_t i) { return gradient(i) * (load<C>(x, c * x.strides[1] + x_offsets[i]) - mean); });
    dbias[c] = sum;
    dweight[c] = product * inverse;
    const C factor = weight * inverse;
    const C offset = training ? sum / static_cast<C>(count) : C{0};
    const C slope = training ? (dweight[c] * inverse) / static_cast<C>(count) : C{0};
    for (int64_t n = 0; n < x.shape[0]; ++n) {
      for (int64_t i = 0; i < area; ++i) {
        const int64_t index = (n * channels + c) * area + i;
        const C centered = training ? (at<C>(g, index) - offset) - (at<C>(x, index) - mean) * slope : at<C>(g, index);
        dx[index] = factor * centered;
      }
    }
  }
  dx.store();
  dweight.store();
  dbias.store();
}

// The moments of each channel of a sample as batch_norm has them, and those of a group's channels merged in FP64.
template <typename C>
void group_norm(const OpCall& call) {
  const TensorView& x = call.inputs[0];
  const double eps = call.attribute("eps");
  const auto offsets = offsets_of(x, dimensions_in_memory_order(x, ~3u));
  const auto area = static_cast<int64_t>(offsets.size());
  const int64_t channels = x.shape[1], groups = call.outputs[1].shape[1], of_group = channels / groups;
  Output<C> y(call, 0), means(call, 1), inverses(call, 2);
  for (int64_t n = 0; n < x.shape[0]; ++n) {
    for (int64_t group = 0; group < groups; ++group) {
      std::vector<Moments> parts;
      for (int64_t c = group * of_group; c < (group + 1) * of_group; ++c)
        parts.push_back(channel_moments<C>(x, n * x.strides[0] + c * x.strides[1], offsets));
      merge_by_tree(parts.data(), of_group, Moments::merge);
      const double variance = parts[0].squares / static_cast<double>(area * of_group);
      const C mean = static_cast<C>(parts[0].mean), inverse = static_cast<C>(1 / std::sqrt(variance + eps));
      means[n * groups + group] = mean;
      inverses[n * groups + group] = inverse;
      for (int64_t c = group * of_group; c < (group + 1) * of_group; ++c) {
        const C factor = inverse * at<C>(call.inputs[1], c), bias = at<C>(call.inputs[2], c);
        for (int64_t i = 0; i < area; ++i) {
          const int64_t index = (n * channels + c) * area + i;
          y[index] = (at<C>(x, index) - mean) * factor + bias;
        }
      }
    }
  }
  y.store();
  means.store();
  inverses.store();
}

template <typename C>
void group_norm_backward(const OpCall& call) {
  const TensorView &g = call.inputs[0], &x = call.inputs[1];
  const DimensionList order = dimensions_in_memory_order(x, ~3u);
  const auto x_offsets = offsets_of(x, order), g_offsets = offsets_of(g, order);
  const auto area = static_cast<int64_t>(x_offsets.size());
  const int64_t channels = x.shape[1], groups = call.inputs[3].shape[1], of_group = channels / groups;
  Output<C> dx(call, 0), dweight(call, 1), dbias(call, 2);
  for (int64_t n = 0; n < x.shape[0]; ++n) {
    for (int64_t group = 0; group < groups; ++group) {
      const C mean = at<C>(call.inputs[3], n * groups + group), inverse = at<C>(call.inputs[4], n * groups + group);
      C sum{}, product{};
      for (int64_t c = group * of_group; c < (group + 1) * of_group; ++c) {
        const C weight = at<C>(call.inputs[2], c);
        const auto gradient = [&](int64_t i) { return load<C>(g, n * g.strides[0] + c * g.strides[1] + g_offsets[i]); };
        const auto centered = [&](int64_t i) { return load<C>(x, n * x.strides[0] + c * x.strides[1] + x_offsets[i]) - mean; };
        const C of_gradient = ordered_sum<C>(area, gradient);
        const C of_product = ordered_sum<C>(area, [&](int64_t i) { return gradient(i) * centered(i); });
        dbias[c] = n == 0 ? of_gradient : dbias[c] + of_gradient;
        dweight[c] = n == 0 ? of_product * inverse : dweight[c] + of_product * inverse;
        sum += weight * of_gradient;
        product += weight * of_product;
      }
      const C count = static_cast<C>(area * of_group), offset = sum / count, slope = product * inverse * inverse / count;
      for (int64_t c = group * of_group; c < (group + 1) * of_group; ++c) {
        const C weight = at<C>(call.inputs[2], c);
        for (int64_t i = 0; i < area; ++i) {
          const int64_t index = (n * channels + c) * area + i;
          dx[index] = inverse * ((at<C>(g, index) * weight - offset) - (at<C>(x, index) - mean) * slope);
        }
      }
    }
  }
  dx.store();
  dweight.store();
  dbias.store();
}

}  // namespace

std::vector<NamedKernel> normalization_kernels() {
  return {{"batch_norm", batch_norm<float>, batch_norm<double>, capture::batch_norm},
          {"batch_norm_backward", batch_norm_backward<float>, batch_norm_backward<double>, capture::batch_norm_backward},
          {"group_norm", group_norm<float>, group_norm<double>, capture::group_norm},
          {"group_norm_backward", group_norm_backward<float>, group_norm_backward<double>, capture::group_norm_backward}};
}

}  // namespace ulpscope::plain
