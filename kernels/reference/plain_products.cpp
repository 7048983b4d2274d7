// Matrix products. Sums run over the terms in their index order.
#include "ulpscope/kernels/reference/plain_access.h"

namespace ulpscope::plain {
namespace {

template <typename C>
void matmul(const OpCall& call) {
  const TensorView &a = call.inputs[0], &b = call.inputs[1];
  const int rank = a.rank;
  const int64_t rows = a.shape[rank - 2], depth = a.shape[rank - 1], columns = b.shape[rank - 1];
  const auto wide_a = widen<C>(a), wide_b = widen<C>(b);
  const int64_t batch = call.outputs[0].size() / std::max<int64_t>(1, rows * columns);
  Output<C> out(call, 0);
  for (int64_t n = 0; n < batch; ++n) {
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < columns; ++j) {
        C total{};
        for (int64_t k = 0; k < depth; ++k) total += wide_a[(n * rows + i) * depth + k] * wide_b[(n * depth + k) * columns + j];
        out[(n * rows + i) * columns + j] = total;
      }
    }
  }
  out.store();
}

template <typename C>
void linear(const OpCall& call) {
  const int64_t rows = call.inputs[0].shape[0], depth = call.inputs[0].shape[1], columns = call.inputs[1].shape[0];
  const auto x = widen<C>(call.inputs[0]), w = widen<C>(call.inputs[1]);
  Output<C> out(call, 0);
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      C total{};
      for (int64_t k = 0; k < depth; ++k) total += x[i * depth + k] * w[j * depth + k];
      out[i * columns + j] = call.inputs.size() > 2 ? total + at<C>(call.inputs[2], j) : total;
    }
  }
  out.store();
}

}  // namespace

std::vector<NamedKernel> product_kernels() {
  return {{"matmul", matmul<float>, matmul<double>, capture::matmul}, {"linear", linear<float>, linear<double>, capture::linear}};
}

}  // namespace ulpscope::plain
