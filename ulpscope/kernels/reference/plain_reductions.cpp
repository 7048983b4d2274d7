#include <cmath>

#include "ulpscope/kernels/reference/plain_access.h"

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

template <typename C, bool mean>
void sum(const OpCall& call) {
  const TensorView& x = call.inputs[0];
  const auto mask = static_cast<unsigned>(call.attribute("dims"));
  const auto kept = kept_offsets(x, mask);
  const auto reduced = offsets_of(x, dimensions_in_memory_order(x, mask));
  Output<C> out(call, 0);
  for (size_t o = 0; o < kept.size(); ++o) {
    const C total =
        ordered_sum<C>(static_cast<int64_t>(reduced.size()), [&](int64_t i) { return load<C>(x, kept[o] + reduced[i]); });
    out[static_cast<int64_t>(o)] = mean ? total / static_cast<C>(reduced.size()) : total;
  }
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
  int64_t correct = 0;
  for (int64_t row = 0; row < rows; ++row) {
    int64_t best = 0;
    for (int64_t i = 1; i < classes; ++i) {
      const auto value = at<double>(logits, {row, i}), largest = at<double>(logits, {row, best});
      if (!std::isnan(largest) && (value > largest || std::isnan(value))) best = i;
    }
    correct += best == at<int64_t>(call.inputs[1], row);
  }
  *call.outputs[0].as<int64_t>() = correct;
  record_stored(call, 0);
}

}  // namespace

std::vector<NamedKernel> reduction_kernels() {
  return {{"sum", sum<float, false>, sum<double, false>, capture::reduction},
          {"mean", sum<float, true>, sum<double, true>, capture::reduction},
          {"gradient_norm", gradient_norm<float>, gradient_norm<double>, capture::whole_tensors},
          {"correct_count", correct_count, correct_count, capture::whole_tensors}};
}

}  // namespace ulpscope::plain
