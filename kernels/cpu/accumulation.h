// Dot products of a row with columns that are kept in a 16-bit format after every term, on vectors.
#pragma once

#include <cstdint>

#include "ulpscope/emulation/format.h"

namespace ulpscope::cpu {

// Columns are padded to a multiple of this.
inline constexpr int64_t kAccumulatedColumns = 8;

// sums[j] = a[0] b[0][j], then + a[l] b[l][j] for l = 1, ..., terms - 1, each rounded once to the format's numbers, to nearest
// even; b[l] begins at b + l * columns. `terms` is at least 1.
void accumulate_in(const FloatFormat& format, const float* a, const float* b, int64_t terms, int64_t columns, float* sums);

}  // namespace ulpscope::cpu
