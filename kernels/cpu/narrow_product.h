// Products with a few columns, for which oneDNN's blocks are too wide (four times slower for one column): dot products along k in
// 16 lanes, added by the tree.
#pragma once

#include <cstdint>

namespace ulpscope::cpu {

inline constexpr int64_t kNarrowColumns = 4;

// c (m x n, dense) = a b + bias. Row i of a begins at a + i * a_row and lies together; column j of b lies together at b + j * k.
// `bias`: n values or nullptr.
struct NarrowProduct {
  const float* a;
  int64_t a_row;
  const float *b, *bias;
  int64_t m, n, k;
  float* c;
};
void narrow_product(const NarrowProduct& product);

}  // namespace ulpscope::cpu
