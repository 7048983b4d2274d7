// The fused sums of tensor_core.h for 16 columns at a time. Internal to emulation/.
#pragma once

#include <cstdint>

#include "ulpscope/emulation/tensor_core.h"

namespace ulpscope {

inline constexpr int64_t kPanel = 16;  // columns, whatever the width of vectors

// The exponent of a zero: below that of any product.
inline constexpr int32_t kExponentOfZero = -(1 << 20);

// Whether FP32 holds all products, and what sum_blocks makes of them, as normal numbers. Then factors are values; else they are
// significands, in [1, 2) or less, that their exponents belong to.
bool takes_values(const TensorCore& core);

// A row of A and a panel of B, with the exponents that factors' fields stand for. An element of B has the index
// kPanel * position + column.
struct LaneFactors {
  const float* a;
  const int32_t* a_exponents;
  const float* b;
  const int32_t* b_exponents;
  // The same with NaN and Inf, which `a` and `b` have as +0; nullptr: there are none on either side.
  const float* a_special;
  const float* b_special;
};

// Rows that are summed side by side: each has to wait for its own results only.
inline constexpr int kLaneRows = 2;

// `blocks` fused sums after one another, of 1 to kLaneRows rows, for models without groups. `accumulators`: kPanel encodings of the
// output for each row, replaced by the results.
void sum_blocks(const TensorCore& core, const LaneFactors* rows, int count, int64_t blocks, uint32_t* accumulators);

// ---- models that add groups (mxfp4, nvfp4)

// A row of A or, of kPanel columns side by side, a panel of B. Elements are pairs of consecutive ones, a pair of each column next
// to that of the next; scales are significands in [1, 2) or less, or NaN, that their exponents belong to.
struct LaneGroups {
  const int16_t* elements;  // in whole units of the format's smallest subnormal
  const float* scales;
  const int32_t* exponents;  // of a scale of zero kExponentOfZero
  const uint32_t* nonzero;   // a bit for each element of a group
};

// The same of one row.
void sum_groups(const TensorCore& core, const LaneGroups& a, const LaneGroups& b, int64_t blocks, uint32_t* accumulators);

}  // namespace ulpscope
