// Values are read as they are after the call, and those that an in-place op overwrote are marked.
#include "ulpscope/kernels/capture.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <string_view>
#include <utility>

#include "ulpscope/emulation/arithmetic.h"
#include "ulpscope/emulation/rounding.h"
#include "ulpscope/kernels/pool_windows.h"
#include "ulpscope/kernels/targets.h"

namespace ulpscope {
namespace {

constexpr int64_t kTermsKept = 64;

using Place = std::array<int64_t, kMaxRank>;

Place place_of(const TensorView& view, int64_t index) {
  Place place{};
  for (int i = view.rank - 1; i >= 0; --i) {
    place[i] = index % view.shape[i];
    index /= view.shape[i];
  }
  return place;
}

int64_t index_of(const TensorView& view, const Place& place) {
  int64_t index = 0;
  for (int i = 0; i < view.rank; ++i) index = index * view.shape[i] + place[i];
  return index;
}

// What the sum of an op's products, its first output, is kept in. That of tensor cores is FP32 as well, whose terms are cut off
// (docs/emulation.md).
Accumulator accumulator_of(const OpCall& call, int slot) {
  const bool is_set = call.arithmetic != nullptr && slot == 0 && is_product(call.op);
  return is_set ? call.arithmetic->accumulation->accumulator : Accumulator::fp32;
}

// a b + sum, rounded once.
double add_in_fp16(double a, double b, double sum) {
  const auto number = [](double value) { return decode(binary64, encoding_of(value)); };
  return value_of(binary16, encode(binary16, fused_multiply_add(number(a), number(b), number(sum))));
}

}  // namespace

class Capture {
 public:
  Capture(const OpCall& call, int slot, int64_t element) : call_(call), slot_(slot), accumulator_(accumulator_of(call, slot)) {
    result_.element = element;
    result_.value = read_element(call.outputs[slot], element);
    place_ = place_of(call.outputs[slot], element);
  }

  const OpCall& call() const { return call_; }
  const TensorView& input(int i) const { return call_.inputs[i]; }
  const Place& place() const { return place_; }
  int64_t element() const { return result_.element; }
  int slot() const { return slot_; }
  const Attributes& attributes() const { return *call_.attributes; }
  int64_t setting(std::string_view name) const { return static_cast<int64_t>(call_.attribute(name)); }

  double operand(int input, int64_t element) {
    const double value = read_element(call_.inputs[input], element);
    if (static_cast<int64_t>(result_.operands.size()) < 2 * kTermsKept) keep(input, element, value);
    return value;
  }

  bool overwritten(int input) const {
    if (call_.op == "source") return false;  // gives its input back as it was
    return std::any_of(call_.outputs.begin(), call_.outputs.end(),
                       [&](const TensorView& output) { return output.data != nullptr && output.data == call_.inputs[input].data; });
  }

  // One term of a sum, the product of its factors: (input, element) each. Terms come in the order of the sum. Only the first of
  // them and the one at which the sum breaks are kept, and none is read once the sum is known to be broken, so that a tensor of NaN
  // costs no more than a healthy one.
  void term(std::initializer_list<std::pair<int, int64_t>> factors) {
    if (!settled()) {
      const auto value = [&](const std::pair<int, int64_t>& factor) {
        return read_element(call_.inputs[factor.first], factor.second);
      };
      const double first = value(*factors.begin());
      if (factors.size() == 1) {
        add(first);
      } else {
        add_product(first, value(factors.begin()[1]));
      }
      if (result_.terms < kTermsKept || result_.broke_at == result_.terms) {
        for (const auto& [input, element] : factors) keep(input, element, read_element(call_.inputs[input], element));
      }
    }
    ++result_.terms;
  }
  void add(double value) {
    advance(keeps_fp64() ? partial_sum_ + value : static_cast<float>(partial_sum_) + static_cast<float>(value));
  }
  // A factor that meets padding. It is no term, but some of oneDNN's implementations multiply it by a zero: where no term explains
  // the element, the first that is not finite does (docs/ops.md).
  void beside_padding(int input, int64_t element) {
    if (padding_input_ < 0 && !settled() && !std::isfinite(read_element(call_.inputs[input], element))) {
      padding_input_ = input;
      padding_element_ = element;
    }
  }
  bool settled() const { return result_.broke_at >= 0 && result_.terms >= kTermsKept; }
  void count_term() { ++result_.terms; }
  void count_terms(int64_t terms) { result_.terms = terms; }

  ElementCapture take() {
    if (has_sum_ && result_.broke_at < 0) result_.partial_sum = partial_sum_;
    if (padding_input_ >= 0 && result_.broke_at < 0) {
      result_.operands.push_back({padding_input_, padding_element_, read_element(call_.inputs[padding_input_], padding_element_)});
    }
    return std::move(result_);
  }

 private:
  bool keeps_fp64() const { return accumulator_ == Accumulator::fp64 || accumulator_ == Accumulator::exact; }
  void add_product(double a, double b) {
    if (accumulator_ == Accumulator::fp16) return advance(add_in_fp16(a, b, partial_sum_));
    add(keeps_fp64() ? a * b : static_cast<float>(a) * static_cast<float>(b));
  }
  void advance(double next) {
    if (result_.broke_at < 0 && !std::isfinite(next)) {
      result_.broke_at = result_.terms;
      result_.partial_sum = partial_sum_;
    }
    partial_sum_ = next;
    has_sum_ = true;
  }
  void keep(int input, int64_t element, double value) { result_.operands.push_back({input, element, value, overwritten(input)}); }

  const OpCall& call_;
  int slot_;
  Accumulator accumulator_;
  Place place_{};
  double partial_sum_ = 0;
  bool has_sum_ = false;
  int padding_input_ = -1;
  int64_t padding_element_ = -1;
  ElementCapture result_;
};

namespace capture {

// A smaller input (a scalar) gives its last element.
void elementwise(Capture& capture) {
  for (int i = 0; i < static_cast<int>(capture.call().inputs.size()); ++i) {
    capture.operand(i, std::min(capture.element(), capture.input(i).size() - 1));
  }
}

namespace {

// Terms over the dimensions of x in `mask`, from `start`, in memory order.
template <typename Term>
void sum_over(Capture& capture, const TensorView& x, unsigned mask, const Place& start, Term term) {
  const DimensionList order = dimensions_in_memory_order(x, mask);
  int64_t terms = 1;
  for (int k = 0; k < order.count; ++k) terms *= x.shape[order.dimensions[k]];
  for (int64_t i = 0; i < terms && !capture.settled(); ++i) {
    Place place = start;
    int64_t rest = i;
    for (int k = order.count - 1; k >= 0; --k) {
      place[order.dimensions[k]] = rest % x.shape[order.dimensions[k]];
      rest /= x.shape[order.dimensions[k]];
    }
    term(index_of(x, place));
  }
  capture.count_terms(terms);
}

}  // namespace

void reduction(Capture& capture) {
  const TensorView& x = capture.input(0);
  const auto mask = static_cast<unsigned>(capture.setting("dims"));
  const bool keep = capture.setting("keep") != 0;
  Place start{};
  for (int i = 0, kept = 0; i < x.rank; ++i) {
    if (((mask >> i) & 1) != 0) continue;
    start[i] = capture.place()[keep ? i : kept];
    ++kept;
  }
  sum_over(capture, x, mask, start, [&](int64_t e) { capture.term({{0, e}}); });
}

// Sums over whole tensors (gradient_norm, mse): the first nonfinite element of each input, the same element of the others where it
// is the first input's.
void whole_tensors(Capture& capture) {
  const auto inputs = capture.call().inputs;
  for (int i = 0; i < static_cast<int>(inputs.size()); ++i) {
    const int64_t e = first_nonfinite(inputs[i]);
    if (e >= 0) capture.operand(i, e);
  }
}

void matmul(Capture& capture) {
  const TensorView &a = capture.input(0), &b = capture.input(1);
  for (int64_t k = 0; k < a.shape[a.rank - 1]; ++k) {
    Place left = capture.place(), right = capture.place();
    left[a.rank - 1] = k;
    right[b.rank - 2] = k;
    capture.term({{0, index_of(a, left)}, {1, index_of(b, right)}});
  }
}

void linear(Capture& capture) {
  const TensorView &x = capture.input(0), &w = capture.input(1);
  for (int64_t k = 0; k < x.shape[1]; ++k) {
    capture.term({{0, index_of(x, {capture.place()[0], k})}, {1, index_of(w, {capture.place()[1], k})}});
  }
  if (capture.call().inputs.size() > 2) capture.term({{2, capture.place()[1]}});
}

// Scales and bias come first, for only so many operands are kept. The partial sums are those of the product before it is scaled.
void scaled_matmul(Capture& capture) {
  for (int scale = 2; scale < 4; ++scale) capture.operand(scale, 0);
  if (capture.call().inputs.size() > 4) capture.operand(4, capture.place()[1]);
  matmul(capture);
}

void quantize(Capture& capture) { (capture.slot() == 0 ? elementwise : whole_tensors)(capture); }

// An element of the map that a convolution makes of an image; inputs image and weight, and where there is one the bias.
void convolution_map(Capture& capture) {
  const TensorView &x = capture.input(0), &w = capture.input(1);
  const Windows windows = Windows::of(capture.attributes(), w.shape[2], w.shape[3]);
  const Place& out = capture.place();
  const int64_t first_channel = out[1] / (w.shape[0] / groups_of(capture.attributes())) * w.shape[1];
  for (int64_t c = 0; c < w.shape[1]; ++c) {
    for (int64_t ky = 0; ky < w.shape[2]; ++ky) {
      for (int64_t kx = 0; kx < w.shape[3]; ++kx) {
        const int64_t iy = windows.y.input(out[2], ky), ix = windows.x.input(out[3], kx);
        const int64_t factor = index_of(w, {out[1], c, ky, kx});
        if (iy < 0 || iy >= x.shape[2] || ix < 0 || ix >= x.shape[3]) {
          capture.beside_padding(1, factor);
        } else {
          capture.term({{0, index_of(x, {out[0], first_channel + c, iy, ix})}, {1, factor}});
        }
      }
    }
  }
  if (capture.call().inputs.size() > 2) capture.term({{2, out[1]}});
}

// An element of the image that is made of a map; inputs map and weight, and where there is one the bias.
void convolution_image(Capture& capture) {
  const TensorView &map = capture.input(0), &w = capture.input(1);
  const Windows windows = Windows::of(capture.attributes(), w.shape[2], w.shape[3]);
  const Place& in = capture.place();
  const int64_t filters = w.shape[0] / groups_of(capture.attributes()), first = in[1] / w.shape[1] * filters;
  for (int64_t o = first; o < first + filters; ++o) {
    for (int64_t ky = 0; ky < w.shape[2]; ++ky) {
      for (int64_t kx = 0; kx < w.shape[3]; ++kx) {
        const int64_t oy = windows.y.output(in[2], ky, map.shape[2]), ox = windows.x.output(in[3], kx, map.shape[3]);
        if (oy < 0 || ox < 0) continue;
        capture.term({{0, index_of(map, {in[0], o, oy, ox})}, {1, index_of(w, {o, in[1] % w.shape[1], ky, kx})}});
      }
    }
  }
  if (capture.call().inputs.size() > 2) capture.term({{2, in[1]}});
}

namespace {

// An element of the gradient of a convolution's weight; the inputs that are the map and the image. Input 0 is the gradient, and the
// second output that of the bias.
void convolution_weight(Capture& capture, int map_input, int image_input) {
  const TensorView &map = capture.input(map_input), &image = capture.input(image_input);
  const Place& out = capture.place();
  if (capture.slot() == 1) {
    return sum_over(capture, capture.input(0), ~2u, {0, out[0]}, [&](int64_t e) { capture.term({{0, e}}); });
  }
  const TensorView& w = capture.call().outputs[0];
  const Windows windows = Windows::of(capture.attributes(), w.shape[2], w.shape[3]);
  const int64_t channel = out[0] / (w.shape[0] / groups_of(capture.attributes())) * w.shape[1] + out[1];
  for (int64_t n = 0; n < map.shape[0]; ++n) {
    for (int64_t oy = 0; oy < map.shape[2]; ++oy) {
      for (int64_t ox = 0; ox < map.shape[3]; ++ox) {
        const int64_t iy = windows.y.input(oy, out[2]), ix = windows.x.input(ox, out[3]);
        const std::pair<int, int64_t> factor{map_input, index_of(map, {n, out[0], oy, ox})};
        if (iy < 0 || iy >= image.shape[2] || ix < 0 || ix >= image.shape[3]) {
          capture.beside_padding(factor.first, factor.second);
          continue;
        }
        const std::pair<int, int64_t> other{image_input, index_of(image, {n, channel, iy, ix})};
        if (map_input == 0) {
          capture.term({factor, other});
        } else {
          capture.term({other, factor});
        }
      }
    }
  }
}

}  // namespace

void conv2d_weight(Capture& capture) { convolution_weight(capture, 0, 1); }
void conv_transpose2d_weight(Capture& capture) { convolution_weight(capture, 1, 0); }

namespace {

// body(e) for each element of the image that the window of the captured element covers.
template <typename Body>
void for_each_pooled(Capture& capture, Body body) {
  const TensorView& x = capture.input(0);
  const PoolAxes axes(capture.attributes(), x, capture.call().outputs[capture.slot()]);
  const Place& out = capture.place();
  const PoolSpan rows = axes.y.span(out[2]), columns = axes.x.span(out[3]);
  for (int64_t iy = rows.begin; iy < rows.end; ++iy)
    for (int64_t ix = columns.begin; ix < columns.end; ++ix) body(index_of(x, {out[0], out[1], iy, ix}));
}

// body(rows, columns, e) for each window that covers the captured element of the image; e is its gradient's index.
template <typename Body>
void for_each_pooling_window(Capture& capture, Body body) {
  const TensorView& g = capture.input(0);
  const PoolAxes axes(capture.attributes(), capture.call().outputs[capture.slot()], g);
  const Place& in = capture.place();
  const auto covers = [](const PoolSpan& span, int64_t place) { return place >= span.begin && place < span.end; };
  for (int64_t oy = 0; oy < g.shape[2]; ++oy) {
    for (int64_t ox = 0; ox < g.shape[3]; ++ox) {
      const PoolSpan rows = axes.y.span(oy), columns = axes.x.span(ox);
      if (covers(rows, in[2]) && covers(columns, in[3]))
        body(oy, ox, axes.divisor(rows, columns), index_of(g, {in[0], in[1], oy, ox}));
    }
  }
}

// A gradient that came from the captured element, and the index that says so.
void chosen_gradient(Capture& capture, int64_t e) {
  capture.operand(0, e);
  capture.operand(1, e);
}

}  // namespace

void max_pooling(Capture& capture) {
  for_each_pooled(capture, [&](int64_t e) { capture.operand(0, e); });
}

void average_pooling(Capture& capture) {
  for_each_pooled(capture, [&](int64_t e) { capture.term({{0, e}}); });
}

void max_pool2d_backward(Capture& capture) {
  const Windows windows = Windows::of(capture.attributes());
  const Place& in = capture.place();
  for_each_pooling_window(capture, [&](int64_t oy, int64_t ox, int64_t, int64_t e) {
    const int64_t place = (in[2] - windows.y.input(oy, 0)) * windows.x.kernel + in[3] - windows.x.input(ox, 0);
    if ((static_cast<int>(read_element(capture.input(1), e)) & kPoolPlaceMask) == place) chosen_gradient(capture, e);
  });
}

void adaptive_max_pool2d_backward(Capture& capture) {
  const TensorView& g = capture.input(0);
  const Place& in = capture.place();
  const int64_t place = in[2] * capture.call().outputs[0].shape[3] + in[3], pooled = g.shape[2] * g.shape[3];
  for (int64_t e = index_of(g, {in[0], in[1]}), end = e + pooled; e < end; ++e) {
    const auto index = static_cast<int32_t>(read_element(capture.input(1), e));
    if ((index < 0 ? marked_nan(index) : index) == place) chosen_gradient(capture, e);
  }
}

void average_pooling_backward(Capture& capture) {
  for_each_pooling_window(capture, [&](int64_t, int64_t, int64_t divisor, int64_t e) {
    capture.add(static_cast<float>(capture.operand(0, e)) / static_cast<float>(divisor));
    capture.count_term();
  });
}

namespace {

// The first nonfinite element of the element's channel: what made the channel's statistics, and so all of it, nonfinite.
void channel_culprit(Capture& capture, int input) {
  TensorView channel = capture.input(input);
  const int64_t c = capture.place()[1], size = static_cast<int64_t>(info(channel.dtype).size);
  channel.data = channel.as<char>() + c * channel.strides[1] * size;
  channel.shape[1] = 1;
  const int64_t e = first_nonfinite(channel);
  if (e < 0) return;
  Place place = place_of(channel, e);
  place[1] = c;
  capture.operand(input, index_of(capture.input(input), place));
}

}  // namespace

void batch_norm(Capture& capture) {
  const TensorView& x = capture.input(0);
  if (capture.slot() > 0) {
    return sum_over(capture, x, ~2u, {0, capture.element()}, [&](int64_t e) { capture.term({{0, e}}); });
  }
  capture.operand(0, capture.element());
  for (int i = 1; i < 5; ++i) capture.operand(i, capture.place()[1]);
  if (capture.setting("training") != 0) channel_culprit(capture, 0);
}

void batch_norm_backward(Capture& capture) {
  const TensorView& g = capture.input(0);
  if (capture.slot() > 0) {
    const double mean = capture.slot() == 1 ? read_element(capture.input(3), capture.element()) : 0;
    return sum_over(capture, g, ~2u, {0, capture.element()}, [&](int64_t e) {
      if (capture.slot() == 2) return capture.term({{0, e}});
      const double gradient = capture.operand(0, e), value = capture.operand(1, e);
      capture.add(static_cast<float>(gradient) * static_cast<float>(value - mean));
      capture.count_term();
    });
  }
  capture.operand(0, capture.element());
  capture.operand(1, capture.element());
  for (int i = 2; i < 5; ++i) capture.operand(i, capture.place()[1]);
  if (capture.setting("training") == 0) return;
  channel_culprit(capture, 0);
  channel_culprit(capture, 1);
}

namespace {

// The elements of the captured element's group in input `input` [N, C, ...]: `channels` of them, from `first` on, `area` each.
struct Group {
  int64_t sample, first, channels, area, all_channels;

  Group(const TensorView& x, int64_t groups, int64_t sample_index, int64_t group)
      : sample(sample_index),
        first(group * (x.shape[1] / groups)),
        channels(x.shape[1] / groups),
        area(x.size() / (x.shape[0] * x.shape[1])),
        all_channels(x.shape[1]) {}
  int64_t begin() const { return (sample * all_channels + first) * area; }
  int64_t size() const { return channels * area; }
};

// The first of n elements of an input that is not finite.
void first_culprit(Capture& capture, int input, int64_t begin, int64_t n) {
  for (int64_t e = begin; e < begin + n; ++e) {
    if (std::isfinite(read_element(capture.input(input), e))) continue;
    capture.operand(input, e);
    return;
  }
}

}  // namespace

void group_norm(Capture& capture) {
  const TensorView& x = capture.input(0);
  const int64_t groups = capture.setting("groups"), sample = capture.place()[0];
  if (capture.slot() > 0) {
    const Group group(x, groups, sample, capture.place()[1]);
    for (int64_t i = 0; i < group.size() && !capture.settled(); ++i) capture.term({{0, group.begin() + i}});
    return capture.count_terms(group.size());
  }
  const int64_t channel = capture.place()[1];
  capture.operand(0, capture.element());
  for (int i = 1; i < 3; ++i) capture.operand(i, channel);
  const Group group(x, groups, sample, channel / (x.shape[1] / groups));
  first_culprit(capture, 0, group.begin(), group.size());
}

// Inputs g, x, weight, mean and inverse [N, groups]. Terms g (x - mean) inverse of the weight's gradient and g of the bias's.
void group_norm_backward(Capture& capture) {
  const TensorView &x = capture.input(1), &means = capture.input(3);
  const int64_t groups = means.shape[1], channels = x.shape[1];
  if (capture.slot() == 2) {
    return sum_over(capture, capture.input(0), ~2u, {0, capture.element()}, [&](int64_t e) { capture.term({{0, e}}); });
  }
  const auto statistic_of = [&](int64_t sample, int64_t channel) { return sample * groups + channel / (channels / groups); };
  if (capture.slot() == 1) {
    return sum_over(capture, x, ~2u, {0, capture.element()}, [&](int64_t e) {
      const int64_t statistic = statistic_of(place_of(x, e)[0], capture.element());
      const double gradient = capture.operand(0, e), value = capture.operand(1, e), mean = capture.operand(3, statistic);
      const double inverse = capture.operand(4, statistic);
      capture.add(static_cast<float>(gradient) * static_cast<float>(value - mean) * static_cast<float>(inverse));
      capture.count_term();
    });
  }
  const int64_t sample = capture.place()[0], channel = capture.place()[1], statistic = statistic_of(sample, channel);
  capture.operand(0, capture.element());
  capture.operand(1, capture.element());
  capture.operand(2, channel);
  capture.operand(3, statistic);
  capture.operand(4, statistic);
  const Group group(x, groups, sample, channel / (channels / groups));
  first_culprit(capture, 0, group.begin(), group.size());
  first_culprit(capture, 1, group.begin(), group.size());
  first_culprit(capture, 2, group.first, group.channels);
}

// Of each row and vector the element, or for an output with one value a row nothing, and the first that is not finite.
void rows(Capture& capture, std::span<const RowOperand> operands) {
  const auto first_row = std::find(operands.begin(), operands.end(), RowOperand::row);
  const TensorView& x = capture.input(static_cast<int>(first_row - operands.begin()));
  const int64_t n = x.rank > 0 ? x.shape[x.rank - 1] : 1;
  const bool whole_row = capture.call().outputs[capture.slot()].size() * n == x.size() && n > 1;
  const int64_t row = whole_row ? capture.element() : capture.element() / n, place = whole_row ? -1 : capture.element() % n;
  for (int i = 0; i < static_cast<int>(operands.size()); ++i) {
    if (operands[i] == RowOperand::scalar) {
      capture.operand(i, row);
      continue;
    }
    const int64_t start = operands[i] == RowOperand::row ? row * n : 0;
    if (!whole_row) capture.operand(i, start + place);
    for (int64_t k = 0; k < n; ++k) {
      if (std::isfinite(read_element(capture.input(i), start + k))) continue;
      if (k != place) capture.operand(i, start + k);
      break;
    }
  }
}

void places(Capture& capture, std::span<const RowOperand> inputs, std::span<const RowOperand> outputs) {
  const TensorView& output = capture.call().outputs[capture.slot()];
  const int64_t stride = output.shape[output.rank - 1];
  const int64_t n = stride / outputs[static_cast<size_t>(capture.slot())].parts();
  const int64_t row = capture.element() / stride, place = capture.element() % n;
  for (int i = 0; i < static_cast<int>(inputs.size()); ++i) {
    const RowOperand input = inputs[static_cast<size_t>(i)];
    for (int part = 0; part < input.parts(); ++part) capture.operand(i, row * input.stride(n) + part * n + place);
  }
}

void cat(Capture& capture) {
  const auto dim = static_cast<int>(capture.setting("dim"));
  Place place = capture.place();
  int input = 0;
  while (place[dim] >= capture.input(input).shape[dim]) place[dim] -= capture.input(input++).shape[dim];
  capture.operand(input, index_of(capture.input(input), place));
}

void slice_backward(Capture& capture) {
  const auto dim = static_cast<int>(capture.setting("dim"));
  Place place = capture.place();
  place[dim] = (place[dim] - capture.setting("start")) / capture.setting("step");
  capture.operand(0, index_of(capture.input(0), place));
}

void embedding(Capture& capture) {
  const int64_t n = capture.input(0).shape[1];
  const auto row = static_cast<int64_t>(capture.operand(1, capture.element() / n));
  capture.operand(0, row * n + capture.element() % n);
}

void embedding_backward(Capture& capture) {
  const TensorView& indices = capture.input(1);
  const int64_t n = capture.call().outputs[capture.slot()].shape[1], row = capture.element() / n;
  for (int64_t i = 0; i < indices.size(); ++i) {
    if (static_cast<int64_t>(read_element(indices, i)) == row) capture.term({{0, i * n + capture.element() % n}});
  }
}

namespace {

// Where element i of the indices points to in `x`.
int64_t indexed(const Capture& capture, const TensorView& x, const TensorView& indices, int64_t i) {
  Place place = place_of(indices, i);
  place[static_cast<size_t>(capture.setting("dim"))] = static_cast<int64_t>(read_element(indices, i));
  return index_of(x, place);
}

// The elements of input `values` that were added to the captured one.
void indexed_terms(Capture& capture, const TensorView& indices, int values) {
  const TensorView& out = capture.call().outputs[capture.slot()];
  for (int64_t i = 0; i < indices.size(); ++i)
    if (indexed(capture, out, indices, i) == capture.element())
      capture.term({{values, index_of(capture.input(values), place_of(indices, i))}});
}

}  // namespace

void gather(Capture& capture) {
  capture.operand(1, capture.element());
  capture.operand(0, indexed(capture, capture.input(0), capture.input(1), capture.element()));
}

void gather_backward(Capture& capture) { indexed_terms(capture, capture.input(1), 0); }

void scatter_add(Capture& capture) {
  capture.term({{0, capture.element()}});
  indexed_terms(capture, capture.input(1), 2);
}

// Terms g (x - mean) inverse over the rows, without a mean g x inverse; of the bias g alone.
void normalization_weight(Capture& capture) {
  const TensorView& x = capture.input(1);
  const int64_t n = x.shape[x.rank - 1], rows = x.size() / n, place = capture.element();
  const bool with_mean = capture.call().inputs.size() > 3;
  for (int64_t row = 0; row < rows && !capture.settled(); ++row) {
    const int64_t e = row * n + place;
    if (capture.slot() == 1) {
      capture.term({{0, e}});
      continue;
    }
    const double gradient = capture.operand(0, e), value = capture.operand(1, e), mean = with_mean ? capture.operand(2, row) : 0;
    const double inverse = capture.operand(with_mean ? 3 : 2, row);
    capture.add(static_cast<float>(gradient) * (static_cast<float>(value - mean) * static_cast<float>(inverse)));
    capture.count_term();
  }
  capture.count_terms(rows);
}

namespace {

// The row whose term of the loss, log_sum_exp - logit of the target, is the first after which the sum of terms is not finite. Where
// the sum breaks in the op's order only, the row of the largest term.
int64_t row_of_loss(const Capture& capture) {
  const TensorView& logits = capture.input(0);
  const Targets targets(capture.call(), capture.input(1), logits.shape[1]);
  float sum = 0, largest = 0;
  int64_t row_of_largest = 0;
  for (int64_t row = 0; row < logits.shape[0]; ++row) {
    if (targets[row] == Targets::kIgnored) continue;
    const float term = static_cast<float>(read_element(capture.call().outputs[1], row)) -
                       static_cast<float>(read_element(logits, row * logits.shape[1] + targets[row]));
    sum += term;
    if (!std::isfinite(sum)) return row;
    if (term > largest) {
      largest = term;
      row_of_largest = row;
    }
  }
  return row_of_largest;
}

}  // namespace

// The logits of the row, for the loss those of the row that made it nonfinite.
void cross_entropy(Capture& capture) {
  const int64_t row = capture.slot() == 0 ? row_of_loss(capture) : capture.element();
  for (int64_t i = 0; i < capture.input(0).shape[1]; ++i) capture.operand(0, row * capture.input(0).shape[1] + i);
}

void cross_entropy_backward(Capture& capture) {
  capture.operand(0, 0);
  capture.operand(1, capture.element());
  capture.operand(2, capture.place()[0]);
  capture.operand(3, capture.place()[0]);
}

void nll_backward(Capture& capture) { capture.operand(0, 0); }

}  // namespace capture

ElementCapture capture_nonfinite(const OpCall& call, int slot, CaptureOperands& operands) {
  const int64_t element = call.outputs[slot].data == nullptr ? -1 : first_nonfinite(call.outputs[slot]);
  if (element < 0) return {};
  Capture capture(call, slot, element);
  operands(capture);
  return capture.take();
}

}  // namespace ulpscope
