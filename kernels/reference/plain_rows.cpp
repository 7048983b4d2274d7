// Ops on rows along the last dimension by the shared definitions of rows.h, in plain loops.
#include "ulpscope/kernels/reference/plain_loops.h"

namespace ulpscope::plain {
namespace {

template <class R, typename C>
void row_op(const OpCall& call) {
  constexpr size_t kInputs = std::size(R::kInputs), kOutputs = std::size(R::kOutputs);
  static_assert(kInputs <= kMaxRowInputs && kOutputs <= kMaxRowOutputs);
  int64_t n = 1, rows = 0;
  std::vector<std::vector<C>> inputs(kInputs), outputs(kOutputs);
  for (size_t i = 0; i < kInputs; ++i) {
    inputs[i] = widen<C>(call.inputs[i]);
    if (R::kInputs[i] != RowOperand::row) continue;
    const TensorView& view = call.inputs[i];
    n = view.rank > 0 ? view.shape[view.rank - 1] : 1;
    rows = n > 0 ? view.size() / n : 0;
  }
  for (size_t i = 0; i < kOutputs; ++i) outputs[i].resize(static_cast<size_t>(call.outputs[i].size()));
  const R op(*call.attributes);
  for (int64_t r = 0; r < rows; ++r) {
    RowCall<C> row;
    row.n = n;
    for (size_t i = 0; i < kInputs; ++i) row.inputs[i] = inputs[i].data() + r * R::kInputs[i].stride(n);
    for (size_t i = 0; i < kOutputs; ++i) row.outputs[i] = outputs[i].data() + r * R::kOutputs[i].stride(n);
    op(PlainLoops<C>(), row);
  }
  for (size_t i = 0; i < kOutputs; ++i) {
    Output<C> out(call, static_cast<int>(i));
    for (size_t e = 0; e < outputs[i].size(); ++e) out[static_cast<int64_t>(e)] = outputs[i][e];
    out.store();
  }
}

template <typename C>
void weight_gradient(const OpCall& call) {
  const bool with_mean = call.inputs.size() > 3;
  const TensorView& x_view = call.inputs[1];
  const std::vector<C> g = widen<C>(call.inputs[0]), x = widen<C>(x_view);
  const std::vector<C> means = widen<C>(call.inputs[2]), inverses = widen<C>(call.inputs[with_mean ? 3 : 2]);
  const int64_t n = x_view.shape[x_view.rank - 1], rows = n > 0 ? x_view.size() / n : 0;
  Output<C> weight(call, 0);
  for (int64_t c = 0; c < n; ++c) {
    weight[c] = ordered_sum<C>(rows, [&](int64_t r) {
      const auto row = static_cast<size_t>(r), at = static_cast<size_t>(r * n + c);
      return lanes::WeightTerms(with_mean ? means[row] : 0, inverses[row])(g[at], x[at]);
    });
  }
  weight.store();
  if (call.outputs.size() < 2) return;
  // The terms of a sum lie in the memory order of its tensor.
  const TensorView& g_view = call.inputs[0];
  const auto offsets = offsets_of(g_view, dimensions_in_memory_order(g_view, (1u << (g_view.rank - 1)) - 1));
  Output<C> bias(call, 1);
  for (int64_t c = 0; c < n; ++c) {
    bias[c] = ordered_sum<C>(
        rows, [&](int64_t r) { return load<C>(g_view, offsets[static_cast<size_t>(r)] + c * g_view.strides[g_view.rank - 1]); });
  }
  bias.store();
}

template <class R>
void capture_row(Capture& capture) {
  if constexpr (R::kByPlace) {
    capture::places(capture, R::kInputs, R::kOutputs);
  } else {
    capture::rows(capture, R::kInputs);
  }
}

template <class... R>
void add_row_ops(lanes::RowOpList<R...>, std::vector<NamedKernel>& kernels) {
  (kernels.push_back({R::kName, row_op<R, float>, row_op<R, double>, capture_row<R>}), ...);
}

}  // namespace

std::vector<NamedKernel> row_kernels() {
  std::vector<NamedKernel> kernels{
      {"layer_norm_backward_weight", weight_gradient<float>, weight_gradient<double>, capture::normalization_weight},
      {"rms_norm_backward_weight", weight_gradient<float>, weight_gradient<double>, capture::normalization_weight}};
  add_row_ops(lanes::RowOps{}, kernels);
  return kernels;
}

}  // namespace ulpscope::plain
