// Counts what became of a block of an update, compiled for every SIMD target, beside whatever made the update.
#pragma once

#include <cstdint>

#include "ulpscope/kernels/update_sums.h"

namespace ulpscope {

// The elements of a block, all in FP32 or all in FP64. `gradient`: nullptr where it is not known, and products with it are 0 then.
template <typename Number>
struct UpdatedBlock {
  const Number *before, *after, *gradient, *update;
  int64_t n;
};
// Adds them, but for decay, of which a caller that has no rule knows nothing.
void add_update(const UpdatedBlock<float>& block, UpdateSums& sums, UpdateTallies& tallies);
void add_update(const UpdatedBlock<double>& block, UpdateSums& sums, UpdateTallies& tallies);

// The sum of squares in FP64, in the order of sum_order.h.
double sum_of_squares(const float* values, int64_t n);
double sum_of_squares(const double* values, int64_t n);

}  // namespace ulpscope
