#include "ulpscope/kernels/reference/plain_loops.h"

namespace ulpscope::plain {
namespace {

int64_t checked_target(const OpCall& call, const TensorView& targets, int64_t row, int64_t classes) {
  const auto target = at<int64_t>(targets, row);
  if (target < 0 || target >= classes) {
    throw failed_error("{}: target {} of row {} is not one of {} classes", call.op, target, row, classes);
  }
  return target;
}

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
  Output<C> loss(call, 0), sums(call, 1);
  for (int64_t row = 0; row < rows; ++row) sums[row] = log_sum_exp<C>(logits, row);
  const C total = ordered_sum<C>(rows, [&](int64_t row) {
    return sums[row] - at<C>(logits, {row, checked_target(call, call.inputs[1], row, classes)});
  });
  loss[0] = total / static_cast<C>(rows);
  loss.store();
  sums.store();
}

template <typename C>
void cross_entropy_backward(const OpCall& call) {
  const TensorView& logits = call.inputs[1];
  const int64_t rows = logits.shape[0], classes = logits.shape[1];
  const C factor = at<C>(call.inputs[0], 0) / static_cast<C>(rows);
  Output<C> out(call, 0);
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t target = checked_target(call, call.inputs[2], row, classes);
    const C sum = at<C>(call.inputs[3], row);
    for (int64_t i = 0; i < classes; ++i) {
      const C probability = PlainLoops<C>().apply(lanes::ExponentialFrom(sum), at<C>(logits, {row, i}));
      out[row * classes + i] = (probability - (i == target ? C{1} : C{0})) * factor;
    }
  }
  out.store();
}

template <typename C>
void mse(const OpCall& call) {
  const TensorView &prediction = call.inputs[0], &target = call.inputs[1];
  const DimensionList order = dimensions_in_memory_order(prediction);
  const auto p = offsets_of(prediction, order), t = offsets_of(target, order);
  Output<C> out(call, 0);
  const C total = ordered_sum<C>(prediction.size(), [&](int64_t i) {
    const C difference = load<C>(prediction, p[i]) - load<C>(target, t[i]);
    return difference * difference;
  });
  out[0] = total / static_cast<C>(prediction.size());
  out.store();
}

template <typename C>
void mse_backward(const OpCall& call) {
  const C factor = C{2} * at<C>(call.inputs[0], 0) / static_cast<C>(call.inputs[1].size());
  Output<C> out(call, 0);
  for (int64_t i = 0; i < call.outputs[0].size(); ++i) {
    out[i] = (at<C>(call.inputs[1], i) - at<C>(call.inputs[2], i)) * factor;
  }
  out.store();
}

}  // namespace

std::vector<NamedKernel> loss_kernels() {
  return {
      {"cross_entropy", cross_entropy<float>, cross_entropy<double>, capture::cross_entropy},
      {"cross_entropy_backward", cross_entropy_backward<float>, cross_entropy_backward<double>, capture::cross_entropy_backward},
      {"mse", mse<float>, mse<double>, capture::whole_tensors},
      {"mse_backward", mse_backward<float>, mse_backward<double>, capture::mse_backward}};
}

}  // namespace ulpscope::plain
