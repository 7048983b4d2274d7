// Ops that move elements: joining, cutting out, and looking up by index.
#include "ulpscope/kernels/reference/plain_access.h"

namespace ulpscope::plain {
namespace {

// Extents before and after dimension `dim`, multiplied.
struct Around {
  int64_t outer = 1, inner = 1;
  Around(const TensorView& view, int dim) {
    for (int i = 0; i < dim; ++i) outer *= view.shape[i];
    for (int i = dim + 1; i < view.rank; ++i) inner *= view.shape[i];
  }
};

template <typename C>
void cat(const OpCall& call) {
  const auto dim = static_cast<int>(call.attribute("dim"));
  const int64_t extent = call.outputs[0].shape[dim];
  const Around around(call.outputs[0], dim);
  Output<C> out(call, 0);
  int64_t start = 0;
  for (const TensorView& x : call.inputs) {
    const int64_t n = x.shape[dim] * around.inner;
    for (int64_t i = 0; i < x.size(); ++i) out[(i / n) * extent * around.inner + start * around.inner + i % n] = at<C>(x, i);
    start += x.shape[dim];
  }
  out.store();
}

template <typename C>
void slice_backward(const OpCall& call) {
  const auto dim = static_cast<int>(call.attribute("dim"));
  const auto start = static_cast<int64_t>(call.attribute("start")), step = static_cast<int64_t>(call.attribute("step"));
  const TensorView& g = call.inputs[0];
  const int64_t extent = call.outputs[0].shape[dim];
  const Around around(g, dim);
  Output<C> out(call, 0);
  for (int64_t i = 0; i < g.size(); ++i) {
    const int64_t inner = i % around.inner, place = i / around.inner % g.shape[dim], outer = i / around.inner / g.shape[dim];
    out[(outer * extent + start + place * step) * around.inner + inner] = at<C>(g, i);
  }
  out.store();
}

int64_t checked_index(const OpCall& call, const TensorView& indices, int64_t position, int64_t rows) {
  const auto index = at<int64_t>(indices, position);
  if (index < 0 || index >= rows) {
    throw failed_error("{}: index {} at element {} is not one of {} rows", call.op, index, position, rows);
  }
  return index;
}

// body(i, at): element i of the indices, and the element of `x` that it names, which is at its place but for dimension dim.
template <typename Body>
void for_each_indexed(const OpCall& call, const TensorView& x, const TensorView& indices, Body body) {
  const auto dim = static_cast<int>(call.attribute("dim"));
  for (int64_t i = 0; i < indices.size(); ++i) {
    std::array<int64_t, kMaxRank> place{};
    int64_t rest = i;
    for (int d = indices.rank - 1; d >= 0; --d) {
      place[d] = rest % indices.shape[d];
      rest /= indices.shape[d];
    }
    place[dim] = checked_index(call, indices, i, x.shape[dim]);
    int64_t element = 0;
    for (int d = 0; d < x.rank; ++d) element = element * x.shape[d] + place[d];
    body(i, element);
  }
}

template <typename C>
void gather(const OpCall& call) {
  Output<C> out(call, 0);
  for_each_indexed(call, call.inputs[0], call.inputs[1], [&](int64_t i, int64_t from) { out[i] = at<C>(call.inputs[0], from); });
  out.store();
}

// Terms are added in the order of the indices.
template <typename C>
void gather_backward(const OpCall& call) {
  Output<C> out(call, 0);
  for_each_indexed(call, call.outputs[0], call.inputs[1], [&](int64_t i, int64_t to) { out[to] += at<C>(call.inputs[0], i); });
  out.store();
}

template <typename C>
void scatter_add(const OpCall& call) {
  const TensorView& x = call.inputs[0];
  Output<C> out(call, 0);
  for (int64_t i = 0; i < x.size(); ++i) out[i] = at<C>(x, i);
  // The values may have elements beyond those of the indices; they are left out.
  const TensorView& values = call.inputs[2];
  TensorView used = values;
  for (int d = 0; d < used.rank; ++d) used.shape[d] = call.inputs[1].shape[d];
  for_each_indexed(call, x, call.inputs[1], [&](int64_t i, int64_t to) { out[to] += at<C>(used, i); });
  out.store();
}

template <typename C>
void embedding(const OpCall& call) {
  const TensorView &weight = call.inputs[0], &indices = call.inputs[1];
  const int64_t n = weight.shape[1];
  Output<C> out(call, 0);
  for (int64_t i = 0; i < indices.size(); ++i) {
    const int64_t row = checked_index(call, indices, i, weight.shape[0]);
    for (int64_t c = 0; c < n; ++c) out[i * n + c] = at<C>(weight, row * n + c);
  }
  out.store();
}

// The gradients of a row are added in the order of the indices.
template <typename C>
void embedding_backward(const OpCall& call) {
  const TensorView &g = call.inputs[0], &indices = call.inputs[1];
  const int64_t rows = call.outputs[0].shape[0], n = call.outputs[0].shape[1];
  Output<C> out(call, 0);
  for (int64_t i = 0; i < indices.size(); ++i) {
    const int64_t row = checked_index(call, indices, i, rows);
    for (int64_t c = 0; c < n; ++c) out[row * n + c] += at<C>(g, i * n + c);
  }
  out.store();
}

}  // namespace

std::vector<NamedKernel> indexing_kernels() {
  return {{"cat", cat<float>, cat<double>, capture::cat},
          {"slice_backward", slice_backward<float>, slice_backward<double>, capture::slice_backward},
          {"embedding", embedding<float>, embedding<double>, capture::embedding},
          {"embedding_backward", embedding_backward<float>, embedding_backward<double>, capture::embedding_backward},
          {"gather", gather<float>, gather<double>, capture::gather},
          {"gather_backward", gather_backward<float>, gather_backward<double>, capture::gather_backward},
          {"scatter_add", scatter_add<float>, scatter_add<double>, capture::scatter_add}};
}

}  // namespace ulpscope::plain
