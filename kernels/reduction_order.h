// The order in which reductions add: that of sum_order.h, the terms in the memory order of the reduced dimensions, in blocks of
// kReductionBlock.
#pragma once

#include <cstdint>

#include "ulpscope/kernels/sum_order.h"

namespace ulpscope {

inline constexpr int64_t kReductionBlock = 512;

// What a block of values contributes to a mean and a variance, and how two such parts become one (Chan, Golub and LeVeque).
template <class T>
struct MomentsOf {
  T count, mean, squares;  // squares: the sum of (x - mean)^2

  // From a mean of the block, rounded to its type, and the sums of x - center and (x - center)^2.
  static constexpr MomentsOf about(T center, T n, T deviations, T squared_deviations) {
    const T squares = squared_deviations - deviations * deviations / n;
    return {n, center + deviations / n, squares < 0 ? T(0) : squares};
  }
  static constexpr MomentsOf merge(const MomentsOf& a, const MomentsOf& b) {
    const T n = a.count + b.count, delta = b.mean - a.mean;
    return {n, a.mean + delta * (b.count / n), a.squares + b.squares + delta * delta * (a.count * (b.count / n))};
  }
};
using Moments = MomentsOf<double>;

}  // namespace ulpscope
