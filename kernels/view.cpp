#include "ulpscope/kernels/view.h"

#include <utility>

namespace ulpscope {

namespace {

// A mask of the dimensions of more than one element.
unsigned extended_dimensions(const TensorView& view) {
  unsigned mask = 0;
  for (int i = 0; i < view.rank; ++i) mask |= static_cast<unsigned>(view.shape[i] != 1) << i;
  return mask;
}

}  // namespace

DimensionList dimensions_in_memory_order(const TensorView& view, unsigned mask) {
  DimensionList list;
  for (int i = 0; i < view.rank; ++i) {
    if ((mask >> i) & 1) list.dimensions[list.count++] = i;
  }
  // By insertion: std::stable_sort allocates.
  for (int i = 1; i < list.count; ++i) {
    for (int k = i; k > 0 && view.strides[list.dimensions[k - 1]] < view.strides[list.dimensions[k]]; --k)
      std::swap(list.dimensions[k - 1], list.dimensions[k]);
  }
  return list;
}

bool is_dense(const TensorView& view) {
  if (view.size() == 0) return true;
  const DimensionList order = dimensions_in_memory_order(view, extended_dimensions(view));
  int64_t expected = 1;
  for (int i = order.count - 1; i >= 0; --i) {
    if (view.strides[order.dimensions[i]] != expected) return false;
    expected *= view.shape[order.dimensions[i]];
  }
  return true;
}

TensorView contiguous(TensorView view) {
  int64_t stride = 1;
  for (int i = view.rank - 1; i >= 0; --i) {
    view.strides[i] = stride;
    stride *= view.shape[i];
  }
  return view;
}

bool is_contiguous(const TensorView& view) {
  if (view.size() == 0) return true;
  int64_t expected = 1;
  for (int i = view.rank - 1; i >= 0; --i) {
    if (view.shape[i] == 1) continue;
    if (view.strides[i] != expected) return false;
    expected *= view.shape[i];
  }
  return true;
}

bool same_layout(const TensorView& a, const TensorView& b) {
  if (a.rank != b.rank) return false;
  for (int i = 0; i < a.rank; ++i) {
    if (a.shape[i] != b.shape[i]) return false;
    if (a.shape[i] != 1 && a.strides[i] != b.strides[i]) return false;
  }
  return true;
}

int64_t span_of(const TensorView& view) {
  if (view.size() == 0) return 0;
  int64_t last = 0;
  for (int i = 0; i < view.rank; ++i) last += (view.shape[i] - 1) * view.strides[i];
  return last + 1;
}

ElementOrder elements_over(const TensorView& view, const DimensionList& list) {
  ElementOrder elements;
  for (int i = 0; i < list.count; ++i) {
    const int64_t extent = view.shape[list.dimensions[i]], stride = view.strides[list.dimensions[i]];
    if (extent == 1) continue;
    if (elements.rank > 0 && elements.strides[elements.rank - 1] == stride * extent) {
      elements.shape[elements.rank - 1] *= extent;
      elements.strides[elements.rank - 1] = stride;
    } else {
      elements.shape[elements.rank] = extent;
      elements.strides[elements.rank++] = stride;
    }
  }
  return elements;
}

ElementOrder elements_in_order(const TensorView& view, const TensorView& order) {
  if (view.rank == 0 || view.size() == 1) return {};
  return elements_over(view, dimensions_in_memory_order(order));
}

int64_t offset_of(const TensorView& view, int64_t index) {
  int64_t offset = 0;
  for (int i = view.rank - 1; i >= 0; --i) {
    offset += index % view.shape[i] * view.strides[i];
    index /= view.shape[i];
  }
  return offset;
}

int64_t index_at(const TensorView& view, int64_t offset) {
  const DimensionList order = dimensions_in_memory_order(view, extended_dimensions(view));
  Extents position{};
  for (int i = 0; i < order.count; ++i) {
    const int dimension = order.dimensions[i];
    position[dimension] = offset / view.strides[dimension];
    offset %= view.strides[dimension];
  }
  int64_t index = 0;
  for (int i = 0; i < view.rank; ++i) index = index * view.shape[i] + position[i];
  return index;
}

}  // namespace ulpscope
