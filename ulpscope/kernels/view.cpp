#include "ulpscope/kernels/view.h"

#include <utility>

namespace ulpscope {

namespace {

// The dimensions of more than one element, from the largest stride to the smallest.
struct OrderedDimensions {
  std::array<int, kMaxRank> dimension{};
  int count = 0;

  explicit OrderedDimensions(const TensorView& view) {
    for (int i = 0; i < view.rank; ++i) {
      if (view.shape[i] != 1) dimension[count++] = i;
    }
    // By insertion: std::stable_sort allocates.
    for (int i = 1; i < count; ++i) {
      for (int k = i; k > 0 && view.strides[dimension[k]] > view.strides[dimension[k - 1]]; --k)
        std::swap(dimension[k], dimension[k - 1]);
    }
  }
};

}  // namespace

bool is_dense(const TensorView& view) {
  if (view.size() == 0) return true;
  const OrderedDimensions order(view);
  int64_t expected = 1;
  for (int i = order.count - 1; i >= 0; --i) {
    if (view.strides[order.dimension[i]] != expected) return false;
    expected *= view.shape[order.dimension[i]];
  }
  return true;
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

int64_t offset_of(const TensorView& view, int64_t index) {
  int64_t offset = 0;
  for (int i = view.rank - 1; i >= 0; --i) {
    offset += index % view.shape[i] * view.strides[i];
    index /= view.shape[i];
  }
  return offset;
}

int64_t index_at(const TensorView& view, int64_t offset) {
  const OrderedDimensions order(view);
  Extents position{};
  for (int i = 0; i < order.count; ++i) {
    const int dimension = order.dimension[i];
    position[dimension] = offset / view.strides[dimension];
    offset %= view.strides[dimension];
  }
  int64_t index = 0;
  for (int i = 0; i < view.rank; ++i) index = index * view.shape[i] + position[i];
  return index;
}

}  // namespace ulpscope
