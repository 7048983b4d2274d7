// The one order in which reductions add, whatever the SIMD width and the number of threads: the terms, in the memory order of the
// reduced dimensions, fall into blocks of kReductionBlock; within a block term i goes to lane i mod kReductionLanes; the lanes are
// added by a tree that halves them, the blocks by a tree that adds neighbours.
#pragma once

#include <array>
#include <cstdint>
#include <utility>

#include "ulpscope/kernels/view.h"

namespace ulpscope {

inline constexpr int64_t kReductionBlock = 512;
inline constexpr int kReductionLanes = 16;

template <typename T>
T add_lanes(std::array<T, kReductionLanes> lanes) {
  for (int width = kReductionLanes / 2; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  }
  return lanes[0];
}

// Merges values[0], ..., values[n - 1] into values[0]: neighbours first, an odd one out moves up unmerged.
template <typename T, typename Merge>
void merge_by_tree(T* values, int64_t n, Merge merge) {
  while (n > 1) {
    const int64_t pairs = n / 2;
    for (int64_t i = 0; i < pairs; ++i) values[i] = merge(values[2 * i], values[2 * i + 1]);
    if (n % 2 != 0) values[pairs] = values[n - 1];
    n = pairs + n % 2;
  }
}

// What a block of values contributes to a mean and a variance, and how two such parts become one (Chan, Golub and LeVeque).
struct Moments {
  double count = 0, mean = 0, squares = 0;  // squares: the sum of (x - mean)^2

  // From a mean of the block, rounded to its type, and the sums of x - center and (x - center)^2.
  static Moments about(double center, double n, double deviations, double squared_deviations) {
    const double squares = squared_deviations - deviations * deviations / n;
    return {n, center + deviations / n, squares < 0 ? 0 : squares};
  }
  static Moments merge(const Moments& a, const Moments& b) {
    const double n = a.count + b.count, delta = b.mean - a.mean;
    return {n, a.mean + delta * (b.count / n), a.squares + b.squares + delta * delta * (a.count * (b.count / n))};
  }
};

// The dimensions of `view` that are set in `mask`, in memory order: largest stride first, equal ones by position.
struct DimensionList {
  std::array<int, kMaxRank> dimensions{};
  int count = 0;
};
inline DimensionList dimensions_in_memory_order(const TensorView& view, unsigned mask = ~0u) {
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

}  // namespace ulpscope
