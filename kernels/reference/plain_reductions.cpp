// Sums, means, variances, norms, maxima and counts over dimensions in plain loops.
#include <cmath>

#include "ulpscope/kernels/reference/plain_access.h"
#include "ulpscope/kernels/targets.h"

namespace ulpscope::plain {
namespace {

// Offsets of the kept elements, in the logical order of the output.
std::vector<int64_t> kept_offsets(const TensorView& view, unsigned mask) {
  DimensionList kept;
  for (int i = 0; i < view.rank; ++i) {
    if (((mask >> i) & 1) == 0) kept.dimensions[kept.count++] = i;
  }
  return offsets_of(view, kept);
}

// body(o, n, term) for each element o of the outputs: its n terms, term(i) the i-th in memory order.
template <typename C, typename Body>
void for_each_sum(const OpCall& call, Body body) {
  const TensorView& x = call.inputs[0];
  const auto mask = static_cast<unsigned>(call.attribute("dims"));
  const auto kept = kept_offsets(x, mask);
  const auto reduced = offsets_of(x, dimensions_in_memory_order(x, mask));
  for (size_t o = 0; o < kept.size(); ++o)
    body(static_cast<int64_t>(o), static_cast<int64_t>(reduced.size()),
         [&](int64_t i) { return load<C>(x, kept[o] + reduced[i]); });
}

template <typename C, bool mean>
void sum(const OpCall& call) {
  Output<C> out(call, 0);
  for_each_sum<C>(call, [&](int64_t o, int64_t n, auto term) {
    const C total = ordered_sum<C>(n, term);
    out[o] = mean ? total / static_cast<C>(n) : total;
  });
  out.store();
}

template <typename C>
void variance(const OpCall& call) {
  const auto correction = call.attribute("correction");
  Output<C> out(call, 0), means(call, 1);
  for_each_sum<C>(call, [&](int64_t o, int64_t n, auto term) {
    const C mean = ordered_sum<C>(n, term) / static_cast<C>(n);
    const C squares = ordered_sum<C>(n, [&](int64_t i) {
      const C difference = term(i) - mean;
      return difference * difference;
    });
    out[o] = squares / static_cast<C>(std::max(0.0, static_cast<double>(n) - correction));
    means[o] = mean;
  });
  out.store();
  means.store();
}

// The largest value, and how often it occurs; NaN, 0 times, where there is a NaN.
template <typename C>
void largest(const OpCall& call) {
  Output<C> out(call, 0), counts(call, 1);
  for_each_sum<C>(call, [&](int64_t o, int64_t n, auto term) {
    C best = term(0);
    for (int64_t i = 1; i < n; ++i)
      if (!(term(i) <= best) && !std::isnan(best)) best = term(i);
    int64_t count = 0;
    for (int64_t i = 0; i < n; ++i) count += term(i) == best;
    out[o] = best;
    counts[o] = static_cast<C>(count);
  });
  out.store();
  counts.store();
}

// Squares are added in FP64, so that none overflows on the way.
template <typename C>
void norm(const OpCall& call) {
  Output<C> out(call, 0);
  for_each_sum<double>(call, [&](int64_t o, int64_t n, auto term) {
    out[o] = static_cast<C>(std::sqrt(ordered_sum<double>(n, [&](int64_t i) { return term(i) * term(i); })));
  });
  out.store();
}

template <typename C>
void gradient_norm(const OpCall& call) {
  double total = 0;
  for (const TensorView& g : call.inputs) {
    const auto offsets = offsets_of(g, dimensions_in_memory_order(g));
    total += ordered_sum<double>(static_cast<int64_t>(offsets.size()), [&](int64_t i) {
      const auto value = load<double>(g, offsets[i]);
      return value * value;
    });
  }
  Output<C> out(call, 0);
  out[0] = static_cast<C>(std::sqrt(total));
  out.store();
}

// A NaN counts as the largest.
void correct_count(const OpCall& call) {
  const TensorView& logits = call.inputs[0];
  const int64_t rows = logits.shape[0], classes = logits.shape[1];
  const Targets targets(call, call.inputs[1], classes);
  int64_t correct = 0;
  for (int64_t row = 0; row < rows; ++row) {
    if (targets[row] == Targets::kIgnored) continue;
    int64_t best = 0;
    for (int64_t i = 1; i < classes; ++i) {
      const auto value = at<double>(logits, {row, i}), largest = at<double>(logits, {row, best});
      if (!std::isnan(largest) && (value > largest || std::isnan(value))) best = i;
    }
    correct += best == targets[row];
  }
  *call.outputs[0].as<int64_t>() = correct;
  record_stored(call, 0);
}

}  // namespace

std::vector<NamedKernel> reduction_kernels() {
  return {{"sum", sum<float, false>, sum<double, false>, capture::reduction},
          {"mean", sum<float, true>, sum<double, true>, capture::reduction},
          {"var", variance<float>, variance<double>, capture::reduction},
          {"max", largest<float>, largest<double>, capture::reduction},
          {"norm", norm<float>, norm<double>, capture::reduction},
          {"gradient_norm", gradient_norm<float>, gradient_norm<double>, capture::whole_tensors},
          {"correct_count", correct_count, correct_count, capture::whole_tensors}};
}

}  // namespace ulpscope::plain
