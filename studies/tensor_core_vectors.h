// Sums that tell how a matrix instruction adds: what each does to them differs with the width of its accumulator, its blocks, its
// roundings.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "ulpscope/kernels/matrix_instructions.h"

namespace ulpscope {

// c + the sum of a[row][k] b[column][k], k ascending.
struct ProbedProduct {
  int64_t rows = 0, columns = 0, terms = 0;  // terms: a multiple of the instruction's terms_of_step(), zeros behind the last
  std::vector<uint32_t> a, b;                // encodings, [rows][terms] and [columns][terms]
  std::vector<uint32_t> c;                   // of the type of the sums, [rows][columns]
  // Of sums that are made for something: what the sum of row i and column i shows. Empty: all sums are random.
  std::vector<std::string_view> shows = {};

  std::span<const uint32_t> a_of(int64_t row) const;
  std::span<const uint32_t> b_of(int64_t column) const;
};

// The sums that show something, each of them short.
std::vector<ProbedProduct> made_products(const MatrixInstruction& instruction);

// Number `index` of an endless sequence of products of numbers of all magnitudes, of which no partial sum overflows: 256 sums of up
// to 129 terms of one number and magnitude, alike or far apart in magnitude, with zeros and subnormals among them, some of which
// cancel or nearly do, from +0 or from numbers of all magnitudes on.
ProbedProduct random_product(const MatrixInstruction& instruction, uint64_t seed, uint64_t index);

}  // namespace ulpscope
