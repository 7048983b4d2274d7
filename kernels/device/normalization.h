// Batch and group normalization: a block of the grid takes one channel after another, of all samples or of one, for what is formed
// of all its elements, and then all elements are computed from that.
#pragma once

#include <cstdint>

#include "ulpscope/kernels/device/elementwise.h"
#include "ulpscope/kernels/device/sums.h"
#include "ulpscope/kernels/lanes.h"
#include "ulpscope/kernels/reduction_order.h"

namespace ulpscope::device {

// The moments of blocks of terms (reduction_order.h), and of branches of the tree.
struct MomentParts {
  using Element = Moments;
  static constexpr int kSize = 512;
  static constexpr const char* kName = "moments";
};
struct MomentBranches {
  using Element = Moments;
  static constexpr int kSize = 256;
  static constexpr const char* kName = "moments of branches";
};
inline constexpr int64_t kMostTermsOfMoments = int64_t{MomentBranches::kSize} * MomentParts::kSize * kReductionBlock;

// Merges the first n > 0 elements as add_neighbours() adds them.
template <class Block, class Parts>
ULPSCOPE_DEVICE void merge_neighbours(Block& block, const Parts& parts, int n) {
  for (int distance = 1; distance < n; distance *= 2) {
    for (int i = 2 * distance * block.thread(); i + distance < n; i += 2 * distance * block.threads())
      parts.write(i, Moments::merge(parts.read(i), parts.read(i + distance)));
    block.barrier();
  }
}

// Merges n > 0 moments, for all threads; `fill(first, count)` writes the next `count` of them to MomentParts.
template <class Block, class Fill>
ULPSCOPE_DEVICE Moments merge_branches(Block& block, int64_t n, const Fill& fill) {
  const auto parts = block.template shared<MomentParts>();
  const auto of_branches = block.template shared<MomentBranches>();
  const auto branches = static_cast<int>((n + MomentParts::kSize - 1) / MomentParts::kSize);
  for (int branch = 0; branch < branches; ++branch) {
    const int64_t first = int64_t{branch} * MomentParts::kSize, left = n - first;
    const auto count = static_cast<int>(left < MomentParts::kSize ? left : MomentParts::kSize);
    fill(first, count);
    block.barrier();
    merge_neighbours(block, parts, count);
    if (block.thread() == 0) of_branches.write(branch, parts.read(0));
    block.barrier();
  }
  merge_neighbours(block, of_branches, branches);
  return of_branches.read(0);
}

// The moments of term(0), ..., term(n - 1), for all threads; n <= kMostTermsOfMoments.
template <class Block, class Term>
ULPSCOPE_DEVICE Moments moments_of(Block& block, int64_t n, const Term& term) {
  if (n == 0) return {};
  const auto parts = block.template shared<MomentParts>();
  // Half a warp has the lanes of a block of terms.
  const int lane = block.lane() % kSumLanes, half = block.lane() / kSumLanes;
  return merge_branches(block, (n + kReductionBlock - 1) / kReductionBlock, [&](int64_t first_block, int blocks) {
    for (int first = 2 * block.warp(); first < blocks; first += 2 * block.warps()) {
      const int64_t begin = (first_block + first + half) * kReductionBlock,
                    end = begin + kReductionBlock < n ? begin + kReductionBlock : n;
      const auto sum = [&](const auto& value) {
        float total = 0;
        for (int64_t i = begin + lane; i < end; i += kSumLanes) total += value(term(i));
        for (int width = kSumLanes / 2; width > 0; width /= 2) total = shuffle_sum(block, total, width);
        return block.shuffle(total, half * kSumLanes);
      };
      const auto count = static_cast<double>(end - begin);
      const auto center = static_cast<float>(static_cast<double>(sum([](float x) { return x; })) / count);
      const float deviations = sum([&](float x) { return x - center; });
      const float squares = sum([&](float x) { return (x - center) * (x - center); });
      if (lane == 0 && first + half < blocks) parts.write(first + half, Moments::about(center, count, deviations, squares));
    }
  });
}

// The elements of a channel of all samples, or of a channel of a sample: i in [0, count) in both cases.
struct ChannelElements {
  Input input;  // its order: over the other dimensions
  int64_t channel_stride, count;
  int64_t channels, sample_stride;  // where they are of a sample: number c is of sample c / channels

  template <class Block>
  ULPSCOPE_DEVICE float at(int64_t c, int64_t i) const {
    return read_at<Block>(input, c / channels * sample_stride + c % channels * channel_stride + input.elements.offset_of(i));
  }
};

struct BatchStatistics {
  ChannelElements x;
  int64_t channels;
  bool training;
  double eps, momentum;
  Input running_mean, running_variance;
  float *mean, *inverse, *new_mean, *new_variance;  // the latter in training

  template <class Block>
  ULPSCOPE_DEVICE void operator()(Block& block) const {
    for (int64_t c = block.block(); c < channels; c += block.blocks()) {
      const auto count = static_cast<double>(x.count);
      const double old_mean = read<Block>(running_mean, c), old_variance = read<Block>(running_variance, c);
      Moments found{1, old_mean, old_variance};
      if (training) found = moments_of(block, x.count, [&](int64_t i) { return x.at<Block>(c, i); });
      if (block.thread() != 0) continue;
      mean[c] = static_cast<float>(found.mean);
      inverse[c] = static_cast<float>(1 / lanes::square_root((training ? found.squares / count : old_variance) + eps));
      if (!training) continue;
      new_mean[c] = static_cast<float>((1 - momentum) * old_mean + momentum * found.mean);
      new_variance[c] = static_cast<float>((1 - momentum) * old_variance + momentum * (found.squares / (count - 1)));
    }
  }
};

// Which channel an element is of, by its logical index, and which of the statistics: its channel's, or its group's of its sample.
struct ChannelOf {
  int64_t area, channels;
  int64_t groups;  // 0: none

  ULPSCOPE_DEVICE int64_t operator()(int64_t e) const { return e / area % channels; }
  ULPSCOPE_DEVICE int64_t statistic(int64_t e) const {
    const int64_t c = (*this)(e);
    return groups == 0 ? c : e / (area * channels) * groups + c / (channels / groups);
  }
};

struct Normalize {
  Output output;
  ChannelOf channel_of;
  Input x;  // in the output's order
  Input weight, bias;
  const float *mean, *inverse;

  template <class Block>
  ULPSCOPE_DEVICE void operator()(Block& block) const {
    put_values(block, output, [&](int64_t i) {
      const int64_t e = output.logical.offset_of(i), c = channel_of(e), statistic = channel_of.statistic(e);
      const float factor = inverse[statistic] * read<Block>(weight, c);
      return (read<Block>(x, i) - mean[statistic]) * factor + read<Block>(bias, c);
    });
  }
};

struct BatchGradientSums {
  ChannelElements gradient, x;
  int64_t channels;
  Input mean, inverse;
  float *weight, *bias;

  template <class Block>
  ULPSCOPE_DEVICE void operator()(Block& block) const {
    for (int64_t c = block.block(); c < channels; c += block.blocks()) {
      const float center = read<Block>(mean, c);
      const float product =
          sum_of<float>(block, x.count, [&](int64_t i) { return gradient.at<Block>(c, i) * (x.at<Block>(c, i) - center); });
      const float sum = sum_of<float>(block, x.count, [&](int64_t i) { return gradient.at<Block>(c, i); });
      if (block.thread() != 0) continue;
      weight[c] = product * read<Block>(inverse, c);
      bias[c] = sum;
    }
  }
};

struct BatchGradient {
  Output output;
  ChannelOf channel_of;
  Input gradient, x;  // in the output's order
  Input weight, mean, inverse;
  const float *weight_gradient, *bias_gradient;
  int64_t count;
  bool training;

  template <class Block>
  ULPSCOPE_DEVICE void operator()(Block& block) const {
    put_values(block, output, [&](int64_t i) {
      const int64_t c = channel_of(output.logical.offset_of(i));
      const float g = read<Block>(gradient, i), of_channel = read<Block>(inverse, c), factor = read<Block>(weight, c) * of_channel;
      if (!training) return factor * g;
      const auto n = static_cast<float>(count);
      const float offset = bias_gradient[c] / n, slope = (weight_gradient[c] * of_channel) / n;
      return factor * ((g - offset) - (read<Block>(x, i) - read<Block>(mean, c)) * slope);
    });
  }
};

// Of each channel of each sample.
struct ChannelMoments {
  ChannelElements x;
  int64_t channels;  // of all samples
  Moments* moments;

  template <class Block>
  ULPSCOPE_DEVICE void operator()(Block& block) const {
    for (int64_t c = block.block(); c < channels; c += block.blocks()) {
      const Moments found = moments_of(block, x.count, [&](int64_t i) { return x.at<Block>(c, i); });
      if (block.thread() == 0) moments[c] = found;
    }
  }
};

// Of each group, from its channels, which follow each other.
struct GroupStatistics {
  const Moments* moments;
  int64_t groups, of_group, area;  // of all samples
  double eps;
  float *mean, *inverse;

  template <class Block>
  ULPSCOPE_DEVICE void operator()(Block& block) const {
    const auto parts = block.template shared<MomentParts>();
    for (int64_t group = block.block(); group < groups; group += block.blocks()) {
      const Moments found = merge_branches(block, of_group, [&](int64_t first, int count) {
        for (int i = block.thread(); i < count; i += block.threads()) parts.write(i, moments[group * of_group + first + i]);
      });
      if (block.thread() != 0) continue;
      mean[group] = static_cast<float>(found.mean);
      inverse[group] = static_cast<float>(1 / lanes::square_root(found.squares / static_cast<double>(area * of_group) + eps));
    }
  }
};

// Of each channel of each sample: of g, and of g (x - mean).
struct GroupGradientSums {
  ChannelElements gradient, x;
  int64_t channels, of_group;  // channels of all samples
  Input mean;
  float *sums, *products;

  template <class Block>
  ULPSCOPE_DEVICE void operator()(Block& block) const {
    for (int64_t c = block.block(); c < channels; c += block.blocks()) {
      const float center = read<Block>(mean, c / of_group);
      const float product =
          sum_of<float>(block, x.count, [&](int64_t i) { return gradient.at<Block>(c, i) * (x.at<Block>(c, i) - center); });
      const float sum = sum_of<float>(block, x.count, [&](int64_t i) { return gradient.at<Block>(c, i); });
      if (block.thread() != 0) continue;
      products[c] = product;
      sums[c] = sum;
    }
  }
};

// What follows from them, a thread for each channel of the weight and then for each group of each sample.
struct GroupGradientTotals {
  const float *sums, *products;
  int64_t samples, channels, groups;  // of a sample
  Input weight, inverse;
  float *weight_gradient, *bias_gradient;
  float *group_sums, *group_products;

  template <class Block>
  ULPSCOPE_DEVICE void operator()(Block& block) const {
    const int64_t all = channels + samples * groups;
    for (int64_t i = block.block() * block.threads() + block.thread(); i < all; i += block.blocks() * block.threads()) {
      if (i < channels) {
        of_channel<Block>(i);
      } else {
        of_group<Block>(i - channels);
      }
    }
  }

 private:
  template <class Block>
  ULPSCOPE_DEVICE void of_channel(int64_t c) const {
    const int64_t group = c / (channels / groups);
    float product = 0, sum = 0;
    for (int64_t sample = 0; sample < samples; ++sample) {
      const int64_t at = sample * channels + c;
      const float of_sample = products[at] * read<Block>(inverse, sample * groups + group);
      product = sample == 0 ? of_sample : product + of_sample;
      sum = sample == 0 ? sums[at] : sum + sums[at];
    }
    weight_gradient[c] = product;
    bias_gradient[c] = sum;
  }
  template <class Block>
  ULPSCOPE_DEVICE void of_group(int64_t group) const {
    const int64_t count = channels / groups, first = group % groups * count, at = group / groups * channels;
    float sum = 0, product = 0;
    for (int64_t c = first; c < first + count; ++c) {
      const float factor = read<Block>(weight, c);
      sum += factor * sums[at + c];
      product += factor * products[at + c];
    }
    group_sums[group] = sum;
    group_products[group] = product;
  }
};

struct GroupGradient {
  Output output;
  ChannelOf channel_of;
  Input gradient, x;  // in the output's order
  Input weight, mean, inverse;
  const float *group_sums, *group_products;
  int64_t count;  // elements of a group

  template <class Block>
  ULPSCOPE_DEVICE void operator()(Block& block) const {
    put_values(block, output, [&](int64_t i) {
      const int64_t e = output.logical.offset_of(i), group = channel_of.statistic(e);
      const float of_channel = read<Block>(weight, channel_of(e)), of_group = read<Block>(inverse, group);
      const auto n = static_cast<float>(count);
      const float offset = group_sums[group] / n, slope = group_products[group] * of_group * of_group / n;
      return of_group * ((read<Block>(gradient, i) * of_channel - offset) - (read<Block>(x, i) - read<Block>(mean, group)) * slope);
    });
  }
};

}  // namespace ulpscope::device
