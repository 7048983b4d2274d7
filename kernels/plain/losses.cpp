// Losses.
#include "ulpscope/kernels/formulas.h"
#include "ulpscope/kernels/plain/element.h"
#include "ulpscope/kernels/plain/loops.h"
#include "ulpscope/kernels/targets.h"

namespace ulpscope::plain {
namespace {

// Rows of logits or logarithms of probabilities [N, classes], and the target of each.
struct ClassRows {
  int64_t rows, classes;
  Targets targets;

  ClassRows(const OpCall& call, const TensorView& x, const TensorView& target)
      : rows(x.shape[0]), classes(x.shape[1]), targets(call, target, classes) {}
  bool ignored(int64_t row) const { return targets[row] == Targets::kIgnored; }
  int64_t target(int64_t row) const { return row * classes + targets[row]; }
};

// Inputs logits and targets; outputs the mean over the rows, and each row's log(sum(e^logit)).
struct CrossEntropy : ClassRows {
  double smoothing;

  explicit CrossEntropy(const OpCall& call)
      : ClassRows(call, call.inputs[0], call.inputs[1]), smoothing(call.attributes->value_or("label_smoothing", 0)) {}
  template <class In>
  typename In::Value operator()(In& in, int slot, int64_t e) const {
    using C = typename In::Value;
    if (slot == 1) {
      return in.statistic([&] {
        std::vector<C> logits;
        for (int64_t i = 0; i < classes; ++i) logits.push_back(in(0, e * classes + i));
        return lanes::log_of_softmax_sum(PlainLoops<C>(), classes, logits.data());
      });
    }
    const C share = static_cast<C>(smoothing);
    const auto term = [&](int64_t row) {
      if (ignored(row)) return C{};
      const C sum = in.output(1, row), logit = in(0, target(row));
      if (share == 0) return sum - logit;
      const C mean = in.statistic([&] { return in.sum(classes, [&](int64_t i) { return in(0, row * classes + i); }); }) /
                     static_cast<C>(classes);
      return sum - (C{1} - share) * logit - share * mean;
    };
    return in.sum(rows, term) / static_cast<C>(targets.counted());
  }
};

// Inputs the gradient of the loss, logits, targets and the rows' log(sum(e^logit)).
struct CrossEntropyBackward : ClassRows {
  double smoothing;

  explicit CrossEntropyBackward(const OpCall& call)
      : ClassRows(call, call.inputs[1], call.inputs[2]), smoothing(call.attributes->value_or("label_smoothing", 0)) {}
  template <class In>
  typename In::Value operator()(In& in, int /*slot*/, int64_t e) const {
    using C = typename In::Value;
    const int64_t row = e / classes;
    if (ignored(row)) return {};
    const C share = static_cast<C>(smoothing), factor = in(0, 0) / static_cast<C>(targets.counted());
    const C logit = in(1, e);
    in(2, row);
    const C probability = PlainLoops<C>().apply(lanes::ExponentialFrom(in(3, row)), logit);
    return (probability - (e == target(row) ? C{1} - share : C{0}) - share / static_cast<C>(classes)) * factor;
  }
};

struct NegativeLogLikelihood : ClassRows {
  explicit NegativeLogLikelihood(const OpCall& call) : ClassRows(call, call.inputs[0], call.inputs[1]) {}
  template <class In>
  typename In::Value operator()(In& in, int /*slot*/, int64_t /*e*/) const {
    using C = typename In::Value;
    return in.sum(rows, [&](int64_t row) { return ignored(row) ? C{} : -in(0, target(row)); }) / static_cast<C>(targets.counted());
  }
};

struct NegativeLogLikelihoodBackward : ClassRows {
  explicit NegativeLogLikelihoodBackward(const OpCall& call) : ClassRows(call, call.outputs[0], call.inputs[1]) {}
  template <class In>
  typename In::Value operator()(In& in, int /*slot*/, int64_t e) const {
    using C = typename In::Value;
    const int64_t row = e / classes;
    if (ignored(row) || e != target(row)) return {};
    in(1, row);
    return -in(0, 0) / static_cast<C>(targets.counted());
  }
};

// Losses by element: the mean of a formula's values, in the memory order of the prediction.
template <class F>
struct MeanOfTerms {
  F formula;
  IndexList elements;

  explicit MeanOfTerms(const OpCall& call) : formula(*call.attributes), elements(IndexList::reduced(call.inputs[0])) {}
  template <class In>
  typename In::Value operator()(In& in, int /*slot*/, int64_t /*e*/) const {
    using C = typename In::Value;
    const auto term = [&](int64_t i) {
      const C prediction = in(0, elements[i]), target = in(1, elements[i]);
      return evaluate<C>(formula, prediction, target);
    };
    return in.sum(elements.size(), term) / static_cast<C>(elements.size());
  }
};

template <typename... F>
void add_losses(lanes::FormulaList<F...>, std::vector<Twin>& twins) {
  (twins.push_back(twin<MeanOfTerms<F>>(F::kName)), ...);
}

}  // namespace

std::vector<Twin> loss_twins() {
  std::vector<Twin> twins{twin<CrossEntropy>("cross_entropy"), twin<CrossEntropyBackward>("cross_entropy_backward"),
                          twin<NegativeLogLikelihood>("nll"), twin<NegativeLogLikelihoodBackward>("nll_backward")};
  add_losses(lanes::LossTerms{}, twins);
  return twins;
}

}  // namespace ulpscope::plain
