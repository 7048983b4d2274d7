// Exact sums of numbers and of products, of any length, by a long accumulator: a fixed-point number that holds every product of two
// FP64 numbers (U. Kulisch, "Computer Arithmetic and Validity", 2008; the lazy carries are those of R. Neal's small
// superaccumulator, arXiv 1505.05571). So a total does not depend on the order of its terms, and is rounded once, when it is asked
// for.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "ulpscope/emulation/arithmetic.h"
#include "ulpscope/emulation/number.h"

namespace ulpscope {

class ExactSum {
 public:
  // Numbers as decode() makes them. A sum may have 2^63 terms.
  void add(const Number& term);
  void add(double term) { add(decode(binary64, std::bit_cast<uint64_t>(term))); }
  void add_product(const Number& a, const Number& b);
  // Of FP32 numbers, whole arrays at once: the sum of `terms`, and the dot product of `a` and `b`. Throw a usage Error where
  // lengths differ, and for a null pointer with a length.
  void add(std::span<const float> terms);
  void add_products(std::span<const float> a, std::span<const float> b);
  // The terms of another sum: parts may be summed apart, in any order.
  ExactSum& operator+=(const ExactSum& other);

  // For encode(). NaN and Inf are those of IEEE 754's addition, but a NaN is always the positive quiet one without a payload,
  // since no term is the first. A total of zero is -0 where all terms were, or, in mode `down`, where any was or others cancelled.
  Number total(RoundingMode mode = RoundingMode::nearest_even) const;

 private:
  static constexpr int kChunkBits = 32;
  // The least bit of a product of FP64 subnormals is 2^-2148; products end below 2^2048, and 2^63 of them below 2^2111.
  static constexpr int kLowest = -2176;
  static constexpr int kChunks = (2112 - kLowest) / kChunkBits + 4;
  // An addition changes a chunk by less than 2^32, and a chunk has 63 bits and a sign.
  static constexpr uint32_t kMostPending = 1u << 30;

  void add_bits(bool negative, detail::uint128 significand, int exponent);
  void note(const Number& term);
  template <bool kProducts>
  void add_blocks(const float* a, const float* b, size_t count);
  void carry();

  std::array<int64_t, kChunks> chunks_{};  // chunk i counts 2^(32 i + kLowest)
  uint32_t pending_ = 0;                   // additions since the last carry
  bool has_nan_ = false, has_infinity_ = false, has_negative_infinity_ = false;
  bool has_zero_ = false, has_negative_zero_ = false, has_finite_ = false;
};

}  // namespace ulpscope
