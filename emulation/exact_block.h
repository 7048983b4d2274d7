// Exact sums of blocks of FP64 terms, with SIMD: error-free extraction as in S. M. Rump, T. Ogita and S. Oishi, "Accurate
// floating-point summation" (SIAM J. Sci. Comput. 2008). Every term is cut at a common bit, so that the leading parts of a block
// add up exactly in FP64; what is left is cut again, until nothing is left.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ulpscope {

inline constexpr size_t kExactBlock = 1024;  // terms, at most
// A sum of 1024 = 2^10 leading parts, each at most 2^(e + 1), is exact if they are multiples of 2^(e + 11 - 53).
inline constexpr int kExtractedBits = 42;

// Of what is left of numbers up to 2^(exponent + 1): at most half a unit, 2^(exponent - 43).
constexpr int lower_exponent(int exponent) { return exponent - kExtractedBits - 2; }

// Writes a[i] b[i], which FP64 holds exactly, to `terms`, and zeros up to a multiple of kExactPadding; returns the largest
// magnitude's bits, as of IEEE numbers, so that of a NaN is the largest. `b` may be nullptr: then a[i].
inline constexpr size_t kExactPadding = 16;
uint64_t make_terms(const float* a, const float* b, size_t count, double* terms);

// The exact sums of the leading parts of `terms`, which are at most 2^(exponent + 1), cut at 2^(exponent - 42), and of the leading
// parts of what is left then. Leaves the rest of both in `terms`; returns whether it is not all zero.
struct ExtractedSums {
  double upper, lower;
};
bool extract(double* terms, size_t count, int exponent, ExtractedSums& sums);

}  // namespace ulpscope
