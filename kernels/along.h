// An index along one dimension of a tensor, and the elements before and after it.
#pragma once

#include <cstdint>

#include "ulpscope/kernels/view.h"

namespace ulpscope {

struct Along {
  int64_t extent, inner = 1;

  Along(const TensorView& view, int dim) : extent(view.shape[dim]) {
    for (int i = dim + 1; i < view.rank; ++i) inner *= view.shape[i];
  }
  constexpr int64_t at(int64_t e) const { return e / inner % extent; }
  // The element of a tensor that differs in this dimension alone, where e has its index there as `index`.
  constexpr int64_t moved(int64_t e, const Along& to, int64_t index) const {
    return (e / (inner * extent) * to.extent + index) * inner + e % inner;
  }
};

// The part of `view` from `start` on along a dimension, every step-th element of it.
inline TensorView part_of(TensorView view, int dim, int64_t start, int64_t extent, int64_t step = 1) {
  view.data = view.as<char>() + start * view.strides[dim] * static_cast<int64_t>(info(view.dtype).size);
  view.shape[dim] = extent;
  view.strides[dim] *= step;
  return view;
}

}  // namespace ulpscope
