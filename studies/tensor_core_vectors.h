// Sums that tell how a matrix unit adds: what each does to them differs with the width of its accumulator, its blocks, its
// roundings.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "ulpscope/emulation/format.h"

namespace ulpscope {

// Factors that matrix units take for sums in FP32.
struct ProbedFactors {
  const FloatFormat* format;  // that they multiply
  const FloatFormat* stored;  // that the encodings are in: FP32 for TF32
  DType dtype;
};
std::span<const ProbedFactors> probed_factors();

// Sums from +0: of a[row][k] b[column][k], k ascending.
struct ProbedProduct {
  int64_t rows = 0, columns = 0, terms = 0;
  std::vector<uint32_t> a, b;  // encodings, [rows][terms] and [columns][terms]
  // Of sums that are made for something: what the sum of row i and column i shows. Empty: all sums are random.
  std::vector<std::string_view> shows = {};

  std::span<const uint32_t> a_of(int64_t row) const;
  std::span<const uint32_t> b_of(int64_t column) const;
};

// The sums that show something, each of them short.
std::vector<ProbedProduct> made_products(const ProbedFactors& factors);

// Number `index` of an endless sequence of products of numbers of all magnitudes, of which no partial sum overflows: up to 129
// terms, alike or far apart in magnitude, with zeros and subnormals among them, some of which cancel or nearly do.
ProbedProduct random_product(const ProbedFactors& factors, uint64_t seed, uint64_t index);

}  // namespace ulpscope
