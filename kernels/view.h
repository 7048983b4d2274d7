// A tensor as the kernels see it: an address, a data type, a shape and strides. Owns nothing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "ulpscope/emulation/format.h"

namespace ulpscope {

inline constexpr int kMaxRank = 6;

// Extents or strides, in elements, outermost dimension first.
using Extents = std::array<int64_t, kMaxRank>;

struct TensorView {
  void* data = nullptr;
  DType dtype = DType::f32;
  int rank = 0;
  Extents shape{};
  Extents strides{};  // 0 repeats an element along a dimension; negative strides are not used

  int64_t size() const {
    int64_t count = 1;
    for (int i = 0; i < rank; ++i) count *= shape[i];
    return count;
  }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data);
  }
};

// The dimensions of `view` that are set in `mask`, in memory order: largest stride first, equal ones by position.
struct DimensionList {
  std::array<int, kMaxRank> dimensions{};
  int count = 0;
};
DimensionList dimensions_in_memory_order(const TensorView& view, unsigned mask = ~0u);

// True iff the elements fill one block of memory without gaps or repeats, in any order of dimensions (NCHW and channels-last both
// are).
bool is_dense(const TensorView& view);
// True iff dense with the last dimension fastest.
bool is_contiguous(const TensorView& view);
// The same shape, dense, the last dimension fastest.
TensorView contiguous(TensorView view);
// True iff both have the same shape and put each element at the same offset (strides of extents of 1 do not matter).
bool same_layout(const TensorView& a, const TensorView& b);
// From the first element to the last, gaps included.
int64_t span_of(const TensorView& view);
// Offset, in elements, of the element with the logical (row-major) index `index`.
int64_t offset_of(const TensorView& view, int64_t index);
// The inverse for a dense view: the logical (row-major) index of the element that lies at `offset`.
int64_t index_at(const TensorView& view, int64_t offset);

// Where elements lie that are counted in some order. Dimensions of one element are left out, and those that follow on each other
// are merged.
struct ElementOrder {
  int rank = 0;  // 0: all at the same place
  Extents shape{}, strides{};

  // Offset of element `i`.
  constexpr int64_t offset_of(int64_t i) const {
    if (rank == 0) return 0;
    int64_t offset = 0;
    for (int k = rank - 1; k > 0; --k) {
      offset += i % shape[k] * strides[k];
      i /= shape[k];
    }
    return offset + i * strides[0];
  }
  constexpr bool is_linear() const { return rank == 1 && strides[0] == 1; }  // element i at offset i
};
// Over some dimensions of a view, the others at 0.
ElementOrder elements_over(const TensorView& view, const DimensionList& dimensions);
// Of `view` in the order of the dense tensor `order`, which has its shape; a view of one element stands for all elements.
// Dimensions of one element are left out, and those that follow on each other are merged.
ElementOrder elements_in_order(const TensorView& view, const TensorView& order);

}  // namespace ulpscope
