// The order in which reductions add: that of sum_order.h, the terms in the memory order of the reduced dimensions, in blocks of
// kReductionBlock.
#pragma once

#include <cstdint>

#include "ulpscope/kernels/sum_order.h"

namespace ulpscope {

inline constexpr int64_t kReductionBlock = 512;

// What a block of values contributes to a mean and a variance, and how two such parts become one (Chan, Golub and LeVeque).
struct Moments {
  double count, mean, squares;  // squares: the sum of (x - mean)^2

  // From a mean of the block, rounded to its type, and the sums of x - center and (x - center)^2.
  static constexpr Moments about(double center, double n, double deviations, double squared_deviations) {
    const double squares = squared_deviations - deviations * deviations / n;
    return {n, center + deviations / n, squares < 0 ? 0 : squares};
  }
  static constexpr Moments merge(const Moments& a, const Moments& b) {
    const double n = a.count + b.count, delta = b.mean - a.mean;
    return {n, a.mean + delta * (b.count / n), a.squares + b.squares + delta * delta * (a.count * (b.count / n))};
  }
};

}  // namespace ulpscope
