// Sums, means, variances, norms, maxima and counts over dimensions.
#include "ulpscope/kernels/lanes.h"
#include "ulpscope/kernels/plain/element.h"
#include "ulpscope/kernels/targets.h"

namespace ulpscope::plain {
namespace {

using lanes::is_nan, lanes::square_root;

// The terms of output element o are elements kept[o] + reduced[i] of the input, in memory order.
struct Reduction {
  unsigned mask;
  IndexList kept, reduced;
  int64_t n;

  explicit Reduction(const OpCall& call)
      : mask(static_cast<unsigned>(call.attribute("dims"))),
        kept(IndexList::kept(call.inputs[0], mask)),
        reduced(IndexList::reduced(call.inputs[0], mask)),
        n(reduced.size()) {}
  template <class In>
  auto terms(In& in, int64_t o) const {
    return [this, &in, start = kept[o]](int64_t i) { return in(0, start + reduced[i]); };
  }
};

template <bool mean>
struct Sum : Reduction {
  using Reduction::Reduction;
  template <class In>
  typename In::Value operator()(In& in, int /*slot*/, int64_t o) const {
    const auto total = in.sum(n, terms(in, o));
    return mean ? total / static_cast<typename In::Value>(n) : total;
  }
};

// And the mean.
struct Variance : Reduction {
  double correction;

  explicit Variance(const OpCall& call) : Reduction(call), correction(call.attribute("correction")) {}
  template <class In>
  typename In::Value operator()(In& in, int slot, int64_t o) const {
    using C = typename In::Value;
    const auto x = terms(in, o);
    if (slot == 1) return in.sum(n, x) / static_cast<C>(n);
    const C mean = in.output(1, o), squares = in.sum(n, [&](int64_t i) {
      const C difference = x(i) - mean;
      return difference * difference;
    });
    return squares / static_cast<C>(std::max(0.0, static_cast<double>(n) - correction));
  }
};

// The largest value, and how often it occurs; NaN, 0 times, where there is a NaN.
struct Largest : Reduction {
  using Reduction::Reduction;
  template <class In>
  typename In::Value operator()(In& in, int slot, int64_t o) const {
    using C = typename In::Value;
    const auto x = terms(in, o);
    return in.statistic([&] {
      C best = x(0);
      for (int64_t i = 1; i < n; ++i)
        if (const C value = x(i); !(value <= best) && !is_nan(best)) best = value;
      if (slot == 0) return best;
      int64_t count = 0;
      for (int64_t i = 0; i < n; ++i) count += x(i) == best ? 1 : 0;
      return static_cast<C>(count);
    });
  }
};

// Squares are added in FP64, so that none overflows on the way.
struct Norm : Reduction {
  using Reduction::Reduction;
  template <class In>
  typename In::Value operator()(In& in, int /*slot*/, int64_t o) const {
    const auto x = terms(in, o);
    return static_cast<typename In::Value>(square_root(in.sum(n, [&](int64_t i) {
      const auto value = static_cast<typename In::WideValue>(x(i));
      return value * value;
    })));
  }
};

// Of all elements of all inputs.
struct GradientNorm {
  std::vector<IndexList> inputs;

  explicit GradientNorm(const OpCall& call) {
    for (const TensorView& g : call.inputs) inputs.push_back(IndexList::reduced(g));
  }
  template <class In>
  typename In::Value operator()(In& in, int /*slot*/, int64_t /*e*/) const {
    using WideValue = typename In::WideValue;
    WideValue total = 0;
    for (size_t k = 0; k < inputs.size(); ++k) {
      total += in.sum(inputs[k].size(), [&](int64_t i) {
        const auto value = static_cast<WideValue>(in(static_cast<int>(k), inputs[k][i]));
        return value * value;
      });
    }
    return static_cast<typename In::Value>(square_root(total));
  }
};

// A NaN counts as the largest, and no row that has one is right.
struct CorrectCount {
  Targets targets;
  int64_t rows, classes;

  explicit CorrectCount(const OpCall& call)
      : targets(call, call.inputs[1], call.inputs[0].shape[1]), rows(call.inputs[0].shape[0]), classes(call.inputs[0].shape[1]) {}
  template <class In>
  typename In::Value operator()(In& in, int /*slot*/, int64_t e) const {
    return static_cast<typename In::Value>(index(in, e));
  }
  int64_t index(auto& in, int64_t /*e*/) const {
    int64_t correct = 0;
    for (int64_t row = 0; row < rows; ++row) {
      if (targets[row] == Targets::kIgnored) continue;
      int64_t best = 0;
      for (int64_t i = 1; i < classes; ++i) {
        const auto value = in(0, row * classes + i), largest = in(0, row * classes + best);
        if (!is_nan(largest) && (value > largest || is_nan(value))) best = i;
      }
      correct += best == targets[row] && !is_nan(in(0, row * classes + best)) ? 1 : 0;
    }
    return correct;
  }
};

}  // namespace

std::vector<Twin> reduction_twins() {
  return {twin<Sum<false>>("sum"),
          twin<Sum<true>>("mean"),
          twin<Variance>("var"),
          twin<Largest>("max"),
          twin<Norm>("norm"),
          twin<GradientNorm>("gradient_norm"),
          twin<CorrectCount>("correct_count")};
}

}  // namespace ulpscope::plain
