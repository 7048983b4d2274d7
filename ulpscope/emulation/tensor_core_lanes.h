// The fused sums of tensor_core.h for 16 columns at a time. Internal to emulation/.
#pragma once

#include <cstdint>

#include "ulpscope/emulation/tensor_core.h"

namespace ulpscope {

inline constexpr int64_t kPanel = 16;  // columns, whatever the width of vectors

// The exponent of a zero: below that of any product.
inline constexpr int32_t kExponentOfZero = -(1 << 20);

// A row of A and a panel of B. A factor is significand * 2^exponent; an element of B has the index kPanel * position + column.
struct LaneFactors {
  const float* a;
  const int32_t* a_exponents;
  const float* b;
  const int32_t* b_exponents;
  // The significands with NaN and Inf, which `a` and `b` have as +0; nullptr: there are none on either side.
  const float* a_special;
  const float* b_special;
};

// `blocks` fused sums after one another, for rows without groups. `accumulators`: kPanel encodings of the output, replaced by the
// results.
void sum_blocks(const TensorCoreModel& model, const LaneFactors& factors, int64_t blocks, uint32_t* accumulators);

}  // namespace ulpscope
