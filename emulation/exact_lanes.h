// The exact sums of exact_product.h for 16 columns at a time. Internal to emulation/.
//
// Terms are cut as in exact_block.h, at units that suit the row and the columns: an accumulator that begins with 1.5 * 2^(52 + u)
// takes of every term what is a multiple of 2^u, rounded to nearest, and leaves the rest, which is exact, to the next one (the
// indexed sums of J. Demmel and H. D. Nguyen, "Parallel reproducible summation", IEEE Trans. Comput. 2015). Their sums are rounded
// once, to odd.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "ulpscope/emulation/exact_product.h"

namespace ulpscope {

inline constexpr int64_t kExactPanel = 16;  // columns, whatever the width of vectors
inline constexpr int kMostAccumulators = 4;

// Of finite numbers that lie `stride` apart.
BitRange bit_range(const float* values, int64_t count, int64_t stride);

// Accumulators that sum terms of a range exactly: what all but the last begin with, 1.5 * 2^(52 + u).
struct ExactAccumulators {
  int count = 1;
  std::array<double, kMostAccumulators - 1> start{};
};

// The fewest for so many terms; nothing: kMostAccumulators are not enough.
std::optional<ExactAccumulators> exact_accumulators(const BitRange& terms, int64_t count);

// sums[j] = a[0] b[0][j] + ... + a[terms - 1] b[terms - 1][j], rounded to odd, for kExactPanel columns; b[l] begins at
// b + l * kExactPanel. With one accumulator it may be NaN or Inf, and is as in FP64 then. The sign of a zero means nothing.
void sum_exactly(const float* a, const float* b, int64_t terms, const ExactAccumulators& accumulators, double* sums);

}  // namespace ulpscope
