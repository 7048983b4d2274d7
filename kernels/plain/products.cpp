// Matrix products. Sums run over the terms in their index order.
#include "ulpscope/kernels/plain/element.h"

namespace ulpscope::plain {
namespace {

// a [..., M, K] b [..., K, N].
struct MatrixProduct {
  int64_t rows, depth, columns;

  explicit MatrixProduct(const OpCall& call)
      : rows(call.inputs[0].shape[call.inputs[0].rank - 2]),
        depth(call.inputs[0].shape[call.inputs[0].rank - 1]),
        columns(call.inputs[1].shape[call.inputs[1].rank - 1]) {}
  auto operator()(auto& in, int /*slot*/, int64_t e) const {
    const int64_t row = e / columns, column = e % columns, matrix = row / rows;
    auto&& total = in.total();
    for (int64_t k = 0; k < depth; ++k) total.product(0, row * depth + k, 1, (matrix * depth + k) * columns + column);
    return total.value();
  }
};

// x [M, K] w [N, K] transposed, and a bias [N] where there is one.
struct Linear {
  int64_t depth, columns;
  bool with_bias;

  explicit Linear(const OpCall& call)
      : depth(call.inputs[0].shape[1]), columns(call.inputs[1].shape[0]), with_bias(call.inputs.size() > 2) {}
  auto operator()(auto& in, int /*slot*/, int64_t e) const {
    const int64_t row = e / columns, column = e % columns;
    auto&& total = in.total();
    for (int64_t k = 0; k < depth; ++k) total.product(0, row * depth + k, 1, column * depth + k);
    if (with_bias) total.term([&] { return in(2, column); });
    return total.value();
  }
};

// The product of FP8 values, times a's inverse scale and b's, and a bias where there is one.
struct ScaledProduct {
  MatrixProduct product;
  bool with_bias;

  explicit ScaledProduct(const OpCall& call) : product(call), with_bias(call.inputs.size() > 4) {}
  auto operator()(auto& in, int slot, int64_t e) const {
    const auto scale_a = in(2, 0), scale_b = in(3, 0), total = product(in, slot, e) * scale_a * scale_b;
    return with_bias ? total + in(4, e % product.columns) : total;
  }
};

}  // namespace

std::vector<Twin> product_twins() {
  return {twin<MatrixProduct>("matmul"), twin<Linear>("linear"), twin<ScaledProduct>("scaled_matmul")};
}

}  // namespace ulpscope::plain
