// The matrix product that an op computes, M x K by K x N, and what tensor cores make of its extents: they multiply 16-bit numbers
// in tiles whose sides are multiples of 8, so other extents are padded with zeros, which are multiplied as well.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace ulpscope {

struct ProductShape {
  int64_t m = 0, n = 0, k = 0;  // each at least 1, or 0: not known
  int64_t batch = 1;            // products of this shape
  bool m_is_padded = true;      // false: M counts pixels, which tiles are cut from as it suits them

  // Multiply-adds, twice counted; of an extent that is not known, as if it were 1.
  double flop() const;
  // What a GPU multiplies over what was asked for, at least 1.
  double padded_over_real() const;
  bool is_aligned() const { return padded_over_real() == 1; }
  // "N 10 -> 16, K 100 -> 104", or "".
  std::string padding() const;
};

// The product of a forward op, by the shapes of its first two inputs and its output. `a` and `b` may be empty where they are not
// known. Nothing: the op is no product, or the shapes do not tell which.
std::optional<ProductShape> product_shape(std::string_view op, std::span<const int64_t> a, std::span<const int64_t> b,
                                          std::span<const int64_t> output);

}  // namespace ulpscope
