// matmul and linear: views become matrices.
#include "ulpscope/kernels/cpu/product.h"
#include "ulpscope/kernels/cpu/reader.h"
#include "ulpscope/kernels/plain/plain.h"

namespace ulpscope::cpu {
namespace {

// The matrix of the last two dimensions at batch index `index` (row-major over the others).
Matrix matrix_at(const TensorView& view, int64_t index) {
  const int rank = view.rank;
  const int64_t offset = offset_of(view, index * view.shape[rank - 2] * view.shape[rank - 1]);
  const void* data = view.as<const char>() + offset * static_cast<int64_t>(info(view.dtype).size);
  return Matrix(data, view.dtype, view.shape[rank - 2], view.shape[rank - 1], view.strides[rank - 2], view.strides[rank - 1]);
}

void matmul(Context& context, const OpCall& call) {
  const TensorView &a = call.inputs[0], &b = call.inputs[1], &out = call.outputs[0];
  const int64_t m = a.shape[a.rank - 2], k = a.shape[a.rank - 1], n = b.shape[b.rank - 1];
  if (out.size() == 0 || k == 0 || !is_contiguous(out)) return run_plain(call);
  const int64_t batch = out.size() / (m * n);
  if (batch == 1) return multiply(context, call, matrix_at(a, 0), matrix_at(b, 0), nullptr);
  multiply_batch(
      context, call, batch, [&](int64_t i) { return matrix_at(a, i); }, [&](int64_t i) { return matrix_at(b, i); });
}

void linear(Context& context, const OpCall& call) {
  const TensorView &x = call.inputs[0], &w = call.inputs[1], &out = call.outputs[0];
  const int64_t m = x.shape[0], k = x.shape[1], n = w.shape[0];
  if (out.size() == 0 || k == 0 || !is_contiguous(out)) return run_plain(call);
  const bool with_bias = call.inputs.size() > 2;
  const Scratch bias(context.allocator, bytes_of(with_bias ? n : 0));
  if (with_bias) widen_run(call.inputs[2].data, call.inputs[2].dtype, 0, call.inputs[2].strides[0], n, bias.as<float>());
  Matrix weight(w.data, w.dtype, k, n, w.strides[1], w.strides[0]);
  weight.avoid_aliasing();
  multiply(context, call, Matrix(x.data, x.dtype, m, k, x.strides[0], x.strides[1]), weight,
           with_bias ? bias.as<float>() : nullptr);
}

}  // namespace

std::vector<NamedKernel> product_ops() { return {{"matmul", matmul}, {"linear", linear}}; }

}  // namespace ulpscope::cpu
