// Losses in plain loops.
#include "ulpscope/kernels/formulas.h"
#include "ulpscope/kernels/reference/plain_loops.h"
#include "ulpscope/kernels/targets.h"

namespace ulpscope::plain {
namespace {

template <typename C>
C log_sum_exp(const TensorView& logits, int64_t row) {
  std::vector<C> values(static_cast<size_t>(logits.shape[1]));
  for (size_t i = 0; i < values.size(); ++i) values[i] = at<C>(logits, {row, static_cast<int64_t>(i)});
  return lanes::log_of_softmax_sum(PlainLoops<C>(), logits.shape[1], values.data());
}

template <typename C>
void cross_entropy(const OpCall& call) {
  const TensorView& logits = call.inputs[0];
  const int64_t rows = logits.shape[0], classes = logits.shape[1];
  const Targets targets(call, call.inputs[1], classes);
  const C smoothing = static_cast<C>(call.attributes->value_or("label_smoothing", 0));
  Output<C> loss(call, 0), sums(call, 1);
  for (int64_t row = 0; row < rows; ++row) sums[row] = log_sum_exp<C>(logits, row);
  const C total = ordered_sum<C>(rows, [&](int64_t row) {
    if (targets[row] == Targets::kIgnored) return C{};
    const C logit = at<C>(logits, {row, targets[row]});
    if (smoothing == 0) return sums[row] - logit;
    const C mean = ordered_sum<C>(classes, [&](int64_t i) { return at<C>(logits, {row, i}); }) / static_cast<C>(classes);
    return sums[row] - (C{1} - smoothing) * logit - smoothing * mean;
  });
  loss[0] = total / static_cast<C>(targets.counted());
  loss.store();
  sums.store();
}

template <typename C>
void cross_entropy_backward(const OpCall& call) {
  const TensorView& logits = call.inputs[1];
  const int64_t rows = logits.shape[0], classes = logits.shape[1];
  const Targets targets(call, call.inputs[2], classes);
  const C smoothing = static_cast<C>(call.attributes->value_or("label_smoothing", 0));
  const C factor = at<C>(call.inputs[0], 0) / static_cast<C>(targets.counted());
  const C share = smoothing / static_cast<C>(classes);
  Output<C> out(call, 0);
  for (int64_t row = 0; row < rows; ++row) {
    if (targets[row] == Targets::kIgnored) continue;
    const C sum = at<C>(call.inputs[3], row);
    for (int64_t i = 0; i < classes; ++i) {
      const C probability = PlainLoops<C>().apply(lanes::ExponentialFrom(sum), at<C>(logits, {row, i}));
      out[row * classes + i] = (probability - (i == targets[row] ? C{1} - smoothing : C{0}) - share) * factor;
    }
  }
  out.store();
}

template <typename C>
void nll(const OpCall& call) {
  const TensorView& x = call.inputs[0];
  const Targets targets(call, call.inputs[1], x.shape[1]);
  Output<C> loss(call, 0);
  const C total = ordered_sum<C>(x.shape[0], [&](int64_t row) {
    return targets[row] == Targets::kIgnored ? C{} : -at<C>(x, {row, targets[row]});
  });
  loss[0] = total / static_cast<C>(targets.counted());
  loss.store();
}

template <typename C>
void nll_backward(const OpCall& call) {
  const int64_t rows = call.outputs[0].shape[0], classes = call.outputs[0].shape[1];
  const Targets targets(call, call.inputs[1], classes);
  const C gradient = -at<C>(call.inputs[0], 0) / static_cast<C>(targets.counted());
  Output<C> out(call, 0);
  for (int64_t row = 0; row < rows; ++row)
    if (targets[row] != Targets::kIgnored) out[row * classes + targets[row]] = gradient;
  out.store();
}

// Losses by element: the mean of a formula's values.
template <typename F, typename C>
void mean_of_terms(const OpCall& call) {
  const TensorView &prediction = call.inputs[0], &target = call.inputs[1];
  const DimensionList order = dimensions_in_memory_order(prediction);
  const auto p = offsets_of(prediction, order), t = offsets_of(target, order);
  const F formula(*call.attributes);
  Output<C> out(call, 0);
  const C total = ordered_sum<C>(prediction.size(),
                                 [&](int64_t i) { return evaluate<C>(formula, load<C>(prediction, p[i]), load<C>(target, t[i])); });
  out[0] = total / static_cast<C>(prediction.size());
  out.store();
}

template <typename... F>
void add_losses(lanes::FormulaList<F...>, std::vector<NamedKernel>& kernels) {
  (kernels.push_back({F::kName, mean_of_terms<F, float>, mean_of_terms<F, double>, capture::whole_tensors}), ...);
}

}  // namespace

std::vector<NamedKernel> loss_kernels() {
  std::vector<NamedKernel> kernels{
      {"cross_entropy", cross_entropy<float>, cross_entropy<double>, capture::cross_entropy},
      {"cross_entropy_backward", cross_entropy_backward<float>, cross_entropy_backward<double>, capture::cross_entropy_backward},
      {"nll", nll<float>, nll<double>, capture::whole_tensors},
      {"nll_backward", nll_backward<float>, nll_backward<double>, capture::nll_backward}};
  add_losses(lanes::LossTerms{}, kernels);
  return kernels;
}

}  // namespace ulpscope::plain
