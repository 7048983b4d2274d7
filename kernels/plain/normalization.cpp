// Batch and group normalization.
#include "ulpscope/kernels/lanes.h"
#include "ulpscope/kernels/plain/element.h"

namespace ulpscope::plain {
namespace {

using lanes::square_root;

// Mean and sum of squared deviations of one channel: blocks are taken in the compute type, about their own mean, and merged in
// FP64.
template <typename C, typename WideValue, typename Value>
MomentsOf<WideValue> channel_moments(int64_t count, Value value_of) {
  using Part = MomentsOf<WideValue>;
  std::vector<Part> blocks;
  for (int64_t begin = 0; begin < count; begin += kReductionBlock) {
    const int64_t n = std::min(kReductionBlock, count - begin);
    const auto value = [&](int64_t i) { return value_of(begin + i); };
    const auto size = static_cast<WideValue>(static_cast<double>(n));
    const C center = static_cast<C>(static_cast<WideValue>(block_sum<C>(n, value)) / size);
    const C deviations = block_sum<C>(n, [&](int64_t i) { return value(i) - center; });
    const C squares = block_sum<C>(n, [&](int64_t i) {
      const C deviation = value(i) - center;
      return deviation * deviation;
    });
    blocks.push_back(
        Part::about(static_cast<WideValue>(center), size, static_cast<WideValue>(deviations), static_cast<WideValue>(squares)));
  }
  if (blocks.empty()) return {};
  merge_by_tree(blocks.data(), static_cast<int64_t>(blocks.size()), Part::merge);
  return blocks[0];
}

// x [N, C, ...], of which a channel has `area` elements in each sample.
struct Channels {
  int64_t samples, channels, area;

  explicit Channels(const TensorView& x) : samples(x.shape[0]), channels(x.shape[1]), area(1) {
    for (int i = 2; i < x.rank; ++i) area *= x.shape[i];
  }
  int64_t channel_of(int64_t e) const { return e / area % channels; }
};

// Inputs x, weight, bias and the running statistics; outputs y, mean, 1 / sqrt(variance + eps), and in training the new running
// statistics.
struct BatchNorm : Channels {
  bool training;
  double eps, momentum;
  IndexList of_channel;
  Memo moments;

  explicit BatchNorm(const OpCall& call)
      : Channels(call.inputs[0]),
        training(call.attribute("training") != 0),
        eps(call.attribute("eps")),
        momentum(call.attribute("momentum")),
        of_channel(IndexList::reduced(call.inputs[0], ~2u)),
        moments(channels) {}
  template <class In>
  typename In::Value operator()(In& in, int slot, int64_t e) const {
    using C = typename In::Value;
    if (slot == 0) {
      const int64_t c = channel_of(e);
      const C x = in(0, e), center = in.output(1, c), factor = in.output(2, c) * in(1, c);
      return (x - center) * factor + in(2, c);
    }
    using WideValue = typename In::WideValue;
    using Found = MomentsOf<WideValue>;
    const auto wide = [](auto value) { return static_cast<WideValue>(value); };
    const double count = static_cast<double>(of_channel.size());
    const Found found = !training ? Found{wide(1), wide(in(slot == 2 ? 4 : 3, e)), wide(0)} : in.statistic([&] {
      return moments.template get<Found>(e, [&] {
        return channel_moments<C, WideValue>(of_channel.size(), [&](int64_t i) { return in(0, e * area + of_channel[i]); });
      });
    });
    switch (slot) {
      case 1:
        return static_cast<C>(found.mean);
      case 2: {
        const WideValue variance = training ? found.squares / wide(count) : found.mean;
        return static_cast<C>(wide(1) / square_root(variance + wide(eps)));
      }
      case 3:
        return static_cast<C>(wide(1 - momentum) * wide(in(3, e)) + wide(momentum) * found.mean);
      default:
        return static_cast<C>(wide(1 - momentum) * wide(in(4, e)) + wide(momentum) * (found.squares / wide(count - 1)));
    }
  }
};

// Inputs g, x, weight, mean and inverse; outputs the gradients of x, weight and bias.
struct BatchNormBackward : Channels {
  bool training;
  IndexList of_channel;

  explicit BatchNormBackward(const OpCall& call)
      : Channels(call.inputs[1]), training(call.attribute("training") != 0), of_channel(IndexList::reduced(call.inputs[1], ~2u)) {}
  template <class In>
  typename In::Value operator()(In& in, int slot, int64_t e) const {
    using C = typename In::Value;
    const int64_t n = of_channel.size();
    if (slot == 2) return in.sum(n, [&](int64_t i) { return in(0, e * area + of_channel[i]); });
    if (slot == 1) {
      const C mean = in(3, e), inverse = in(4, e);
      const auto term = [&](int64_t i) {
        const C g = in(0, e * area + of_channel[i]), x = in(1, e * area + of_channel[i]);
        return g * (x - mean);
      };
      return in.sum(n, term, inverse);
    }
    const int64_t c = channel_of(e);
    const C g = in(0, e), inverse = in(4, c), factor = in(2, c) * inverse;
    if (!training) return factor * g;
    const C x = in(1, e), mean = in(3, c);
    const C offset = in.output(2, c) / static_cast<C>(n), slope = (in.output(1, c) * inverse) / static_cast<C>(n);
    return factor * ((g - offset) - (x - mean) * slope);
  }
};

// x [N, C, ...], the channels of which lie in groups.
struct Groups : Channels {
  int64_t groups, of_group;
  IndexList of_channel;  // of a sample

  Groups(const TensorView& x, int64_t groups_)
      : Channels(x), groups(groups_), of_group(channels / groups), of_channel(IndexList::reduced(x, ~3u)) {}
  // The number of a group among those of all samples, from its sample and one of its channels.
  int64_t group_of(int64_t sample, int64_t channel) const { return sample * groups + channel / of_group; }
  // Element i of a channel of a sample.
  int64_t element(int64_t sample, int64_t channel, int64_t i) const { return (sample * channels + channel) * area + of_channel[i]; }
};

// Inputs x, weight and bias; outputs y and each group's mean and 1 / sqrt(variance + eps). The moments of a group are those of its
// channels, merged in FP64.
struct GroupNorm : Groups {
  double eps;
  Memo moments;

  explicit GroupNorm(const OpCall& call)
      : Groups(call.inputs[0], call.outputs[1].shape[1]), eps(call.attribute("eps")), moments(samples * groups) {}
  template <class In>
  typename In::Value operator()(In& in, int slot, int64_t e) const {
    using C = typename In::Value;
    if (slot == 0) {
      const int64_t c = channel_of(e), group = group_of(e / (channels * area), c);
      const C x = in(0, e), mean = in.output(1, group), factor = in.output(2, group) * in(1, c);
      return (x - mean) * factor + in(2, c);
    }
    const int64_t sample = e / groups, first = e % groups * of_group;
    using WideValue = typename In::WideValue;
    using Found = MomentsOf<WideValue>;
    const Found found = in.statistic([&] {
      return moments.template get<Found>(e, [&] {
        std::vector<Found> parts;
        for (int64_t c = first; c < first + of_group; ++c)
          parts.push_back(channel_moments<C, WideValue>(area, [&](int64_t i) { return in(0, element(sample, c, i)); }));
        merge_by_tree(parts.data(), of_group, Found::merge);
        return parts[0];
      });
    });
    if (slot == 1) return static_cast<C>(found.mean);
    const auto wide = [](double value) { return static_cast<WideValue>(value); };
    return static_cast<C>(wide(1) / square_root(found.squares / wide(static_cast<double>(area * of_group)) + wide(eps)));
  }
};

// Inputs g, x, weight and each group's mean and inverse; outputs the gradients of x, weight and bias.
struct GroupNormBackward : Groups {
  template <class C>
  struct Sums {
    C gradient, product;  // of weight g, and of weight g (x - mean)
  };
  Memo sums;

  explicit GroupNormBackward(const OpCall& call) : Groups(call.inputs[1], call.inputs[3].shape[1]), sums(samples * groups) {}

  template <class In>
  typename In::Value operator()(In& in, int slot, int64_t e) const {
    using C = typename In::Value;
    const auto gradient_sum = [&](int64_t sample, int64_t c) {
      return in.sum(area, [&](int64_t i) { return in(0, element(sample, c, i)); });
    };
    const auto product_sum = [&](int64_t sample, int64_t c, C mean, C factor) {
      const auto term = [&](int64_t i) {
        const C g = in(0, element(sample, c, i)), x = in(1, element(sample, c, i));
        return g * (x - mean);
      };
      return in.sum(area, term, factor);
    };
    if (slot > 0) {
      const auto of_sample = [&](int64_t sample) {
        if (slot == 2) return gradient_sum(sample, e);
        const C mean = in(3, group_of(sample, e)), inverse = in(4, group_of(sample, e));
        return product_sum(sample, e, mean, inverse);
      };
      C total = samples > 0 ? of_sample(0) : C{};
      for (int64_t sample = 1; sample < samples; ++sample) total += of_sample(sample);
      return total;
    }
    const int64_t c = channel_of(e), sample = e / (channels * area), group = group_of(sample, c);
    const C g = in(0, e), x = in(1, e), weight = in(2, c), mean = in(3, group), inverse = in(4, group);
    const auto found = in.statistic([&] {
      return sums.template get<Sums<C>>(group, [&] {
        C gradient{}, product{};
        for (int64_t k = c / of_group * of_group, end = k + of_group; k < end; ++k) {
          const C of_channel_k = in(2, k);
          gradient += of_channel_k * gradient_sum(sample, k);
          product += of_channel_k * product_sum(sample, k, mean, C{1});
        }
        return Sums<C>{gradient, product};
      });
    });
    const C count = static_cast<C>(area * of_group), offset = found.gradient / count;
    const C slope = found.product * inverse * inverse / count;
    return inverse * ((g * weight - offset) - (x - mean) * slope);
  }
};

}  // namespace

std::vector<Twin> normalization_twins() {
  return {twin<BatchNorm>("batch_norm"), twin<BatchNormBackward>("batch_norm_backward"), twin<GroupNorm>("group_norm"),
          twin<GroupNormBackward>("group_norm_backward")};
}

}  // namespace ulpscope::plain
