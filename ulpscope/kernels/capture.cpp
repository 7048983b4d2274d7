// Values are read as they are after the call, and those that an in-place op overwrote are marked.
#include "ulpscope/kernels/capture.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <string_view>
#include <utility>

#include "ulpscope/kernels/pool_window.h"

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

}  // namespace

class Capture {
 public:
  Capture(const OpCall& call, int slot, int64_t element) : call_(call), slot_(slot) {
    result_.element = element;
    result_.value = read_element(call.outputs[slot], element);
    place_ = place_of(call.outputs[slot], element);
  }

  const OpCall& call() const { return call_; }
  const TensorView& input(int i) const { return call_.inputs[i]; }
  const Place& place() const { return place_; }
  int64_t element() const { return result_.element; }
  int slot() const { return slot_; }
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
      float product = 1;
      for (const auto& [input, element] : factors) product *= static_cast<float>(read_element(call_.inputs[input], element));
      add(product);
      if (result_.terms < kTermsKept || result_.broke_at == result_.terms) {
        for (const auto& [input, element] : factors) keep(input, element, read_element(call_.inputs[input], element));
      }
    }
    ++result_.terms;
  }
  void add(float value) {
    const float next = partial_sum_ + value;
    if (result_.broke_at < 0 && !std::isfinite(next)) {
      result_.broke_at = result_.terms;
      result_.partial_sum = partial_sum_;
    }
    partial_sum_ = next;
    has_sum_ = true;
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
  void keep(int input, int64_t element, double value) { result_.operands.push_back({input, element, value, overwritten(input)}); }

  const OpCall& call_;
  int slot_;
  Place place_{};
  float partial_sum_ = 0;
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

namespace {

struct Window {
  int64_t stride_y, stride_x, padding_y, padding_x;
  explicit Window(const Capture& capture)
      : stride_y(capture.setting("stride_y")),
        stride_x(capture.setting("stride_x")),
        padding_y(capture.setting("padding_y")),
        padding_x(capture.setting("padding_x")) {}
};

// body(oy, ox, ky, kx) for each window, that of output pixel (oy, ox), which covers the pixel of `place` at (ky, kx) of the window;
// g has the outputs' shape.
template <typename Body>
void for_each_window(const TensorView& g, const Window& window, int64_t kernel_y, int64_t kernel_x, const Place& place, Body body) {
  for (int64_t ky = 0; ky < kernel_y; ++ky) {
    for (int64_t kx = 0; kx < kernel_x; ++kx) {
      const int64_t y = place[2] + window.padding_y - ky, x = place[3] + window.padding_x - kx;
      if (y < 0 || x < 0 || y % window.stride_y != 0 || x % window.stride_x != 0) continue;
      if (y / window.stride_y >= g.shape[2] || x / window.stride_x >= g.shape[3]) continue;
      body(y / window.stride_y, x / window.stride_x, ky, kx);
    }
  }
}

}  // namespace

void conv2d(Capture& capture) {
  const TensorView &x = capture.input(0), &w = capture.input(1);
  const Window window(capture);
  const Place& out = capture.place();
  for (int64_t c = 0; c < w.shape[1]; ++c) {
    for (int64_t ky = 0; ky < w.shape[2]; ++ky) {
      for (int64_t kx = 0; kx < w.shape[3]; ++kx) {
        const int64_t iy = out[2] * window.stride_y + ky - window.padding_y;
        const int64_t ix = out[3] * window.stride_x + kx - window.padding_x;
        const int64_t factor = index_of(w, {out[1], c, ky, kx});
        if (iy < 0 || iy >= x.shape[2] || ix < 0 || ix >= x.shape[3]) {
          capture.beside_padding(1, factor);
        } else {
          capture.term({{0, index_of(x, {out[0], c, iy, ix})}, {1, factor}});
        }
      }
    }
  }
  if (capture.call().inputs.size() > 2) capture.term({{2, out[1]}});
}

void conv2d_backward_input(Capture& capture) {
  const TensorView &g = capture.input(0), &w = capture.input(1);
  const Place& in = capture.place();
  for (int64_t o = 0; o < w.shape[0]; ++o) {
    for_each_window(g, Window(capture), w.shape[2], w.shape[3], in, [&](int64_t oy, int64_t ox, int64_t ky, int64_t kx) {
      capture.term({{0, index_of(g, {in[0], o, oy, ox})}, {1, index_of(w, {o, in[1], ky, kx})}});
    });
  }
}

void conv2d_backward_weight(Capture& capture) {
  const TensorView &g = capture.input(0), &x = capture.input(1);
  const Place& out = capture.place();
  if (capture.slot() == 1) {  // the bias
    return sum_over(capture, g, ~2u, {0, out[0]}, [&](int64_t e) { capture.term({{0, e}}); });
  }
  const Window window(capture);
  for (int64_t n = 0; n < g.shape[0]; ++n) {
    for (int64_t oy = 0; oy < g.shape[2]; ++oy) {
      for (int64_t ox = 0; ox < g.shape[3]; ++ox) {
        const int64_t iy = oy * window.stride_y + out[2] - window.padding_y;
        const int64_t ix = ox * window.stride_x + out[3] - window.padding_x;
        const int64_t factor = index_of(g, {n, out[0], oy, ox});
        if (iy < 0 || iy >= x.shape[2] || ix < 0 || ix >= x.shape[3]) {
          capture.beside_padding(0, factor);
        } else {
          capture.term({{0, factor}, {1, index_of(x, {n, out[1], iy, ix})}});
        }
      }
    }
  }
}

void max_pool2d(Capture& capture) {
  const TensorView& x = capture.input(0);
  const Window window(capture);
  const Place& out = capture.place();
  for (int64_t ky = 0; ky < capture.setting("kernel_y"); ++ky) {
    for (int64_t kx = 0; kx < capture.setting("kernel_x"); ++kx) {
      const int64_t iy = out[2] * window.stride_y + ky - window.padding_y, ix = out[3] * window.stride_x + kx - window.padding_x;
      if (iy < 0 || iy >= x.shape[2] || ix < 0 || ix >= x.shape[3]) continue;
      capture.operand(0, index_of(x, {out[0], out[1], iy, ix}));
    }
  }
}

void max_pool2d_backward(Capture& capture) {
  const TensorView &g = capture.input(0), &indices = capture.input(1);
  const Place& in = capture.place();
  const int64_t kernel_x = capture.setting("kernel_x");
  for_each_window(g, Window(capture), capture.setting("kernel_y"), kernel_x, in,
                  [&](int64_t oy, int64_t ox, int64_t ky, int64_t kx) {
                    const int64_t e = index_of(g, {in[0], in[1], oy, ox});
                    if ((static_cast<int>(read_element(indices, e)) & kPoolPlaceMask) != ky * kernel_x + kx) return;
                    capture.operand(0, e);
                    capture.operand(1, e);
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
  const TensorView &logits = capture.input(0), &targets = capture.input(1);
  float sum = 0, largest = 0;
  int64_t row_of_largest = 0;
  for (int64_t row = 0; row < logits.shape[0]; ++row) {
    const auto target = static_cast<int64_t>(read_element(targets, row));
    const float term = static_cast<float>(read_element(capture.call().outputs[1], row)) -
                       static_cast<float>(read_element(logits, row * logits.shape[1] + target));
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

void mse_backward(Capture& capture) {
  capture.operand(0, 0);
  capture.operand(1, capture.element());
  capture.operand(2, capture.element());
}

}  // namespace capture

ElementCapture capture_nonfinite(const OpCall& call, int slot, CaptureOperands& operands) {
  const int64_t element = call.outputs[slot].data == nullptr ? -1 : first_nonfinite(call.outputs[slot]);
  if (element < 0) return {};
  Capture capture(call, slot, element);
  operands(capture);
  return capture.take();
}

}  // namespace ulpscope
