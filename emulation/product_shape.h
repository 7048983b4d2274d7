// The matrix product that an op computes, M x K by K x N, and what tensor cores make of its extents: they multiply 16-bit numbers
// in tiles whose sides are multiples of 8, so other extents are padded with zeros, which are multiplied as well. FP8 factors have
// to have extents that are multiples of 16 (cuBLAS, "Using the cublasLtMatmul() API": matrices begin at multiples of 16 bytes, in
// forward and, transposed, in backward; Transformer Engine): libraries refuse others, and callers pad.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ulpscope/emulation/format.h"

namespace ulpscope {

// Which of the inputs' and the output's extents are M, N and K.
enum class ProductKind : uint8_t {
  none,
  linear,                  // x [..., K] by weight [N, K]
  matmul,                  // a [..., M, K] by b [..., K, N]
  convolution,             // weight [out, in of a group, window...]; each output pixel is a row of M
  transposed_convolution,  // weight [in, out of a group, window...]; each input pixel is
};

struct ProductShape {
  int64_t m = 0, n = 0, k = 0;
  int64_t batch = 1;        // products of this shape
  bool m_is_padded = true;  // false: M counts pixels, which tiles are cut from as it suits them
  int64_t multiple = 8;     // of what M, N and K are padded to: multiple_for() of the factors

  static constexpr int64_t kUnknown = -1;  // of k only

  // As traces have it, where K is known: m, n, k, batch, 1 where M is padded, and the multiple, which may be missing and is 8 then;
  // and back, nothing where the numbers are no product.
  std::vector<int64_t> numbers() const;
  static std::optional<ProductShape> of(std::span<const int64_t> numbers);

  // Multiply-adds, twice counted; of a K that is not known, as if it were 1.
  double flop() const;
  // What a GPU multiplies over what was asked for, at least 1.
  double padded_over_real() const;
  bool is_aligned() const { return padded_over_real() == 1; }
  // "N 10 -> 16, K 100 -> 104", or "".
  std::string padding() const;

  auto operator<=>(const ProductShape&) const = default;
};

// Of the extents of a product: 8 of factors of 16 bits, 16 of narrower ones. Of wider ones what it would be in 16 bits.
constexpr int64_t multiple_for(const FloatFormat& factors) { return factors.storage_bits() <= 8 ? 16 : 8; }

// The product of a forward op, by the shapes of its first two inputs and its output, as one of 16 bits. `a` and `b` may be empty
// where they are not known. Nothing: the op is no product, the shapes do not tell which, or the output is empty.
std::optional<ProductShape> product_shape(ProductKind kind, std::span<const int64_t> a, std::span<const int64_t> b,
                                          std::span<const int64_t> output);

}  // namespace ulpscope
