// Sums and dot products of arrays in any format, in a stated order, with a stated accumulator: what an FP16 accumulator, a pairwise
// tree or Kahan's correction makes of the same terms, bit for bit, beside the exact result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "ulpscope/emulation/format.h"
#include "ulpscope/emulation/number.h"
#include "ulpscope/emulation/round_array.h"

namespace ulpscope {

// Encodings of one format in memory, of 1, 2, 4 or 8 bytes each. Bits above the format's are ignored.
class EncodedArray {
 public:
  // Throws a usage Error where the format's encodings need more bytes, and for a null pointer with a length.
  template <typename T>
  requires std::is_unsigned_v<T> EncodedArray(const FloatFormat& format, std::span<const T> encodings)
      : EncodedArray(format, encodings.data(), encodings.size(), sizeof(T)) {}
  explicit EncodedArray(std::span<const float> values) : EncodedArray(binary32, values.data(), values.size(), sizeof(float)) {}
  explicit EncodedArray(std::span<const double> values) : EncodedArray(binary64, values.data(), values.size(), sizeof(double)) {}

  const FloatFormat& format() const { return *format_; }
  size_t size() const { return size_; }
  uint64_t operator[](size_t i) const;
  // The values of elements `begin` to `begin + count`, of which FP32 holds all: where they lie in memory if they are FP32, else in
  // `buffer`. Not of fp64.
  const float* values(size_t begin, size_t count, float* buffer) const;

 private:
  EncodedArray(const FloatFormat& format, const void* data, size_t size, size_t bytes);

  const FloatFormat* format_;
  const std::byte* data_;
  size_t size_, bytes_;
};

enum class SumOrder : uint8_t {
  sequential,   // the first term, then one after the other
  pairwise,     // a tree: the largest power of two of terms that leaves any for the other side, and the rest, each summed so
  compensated,  // sequential, and each addition's error is taken from the next term (W. Kahan, 1965)
  exact,        // no rounding before the last one (exact_sum.h); whatever the order
};

// How terms enter an addition.
enum class Terms : uint8_t {
  exact,    // as they are: a product is fused with the addition. In a pairwise tree two products and their sum are rounded once
  rounded,  // each is rounded to the accumulator's format first
};

struct Summation {
  SumOrder order = SumOrder::sequential;
  const FloatFormat* accumulator = &binary32;  // of every partial result, and of the result
  Terms terms = Terms::exact;
  Rounding rounding = {};
  RandomStream random = {};  // of stochastic rounding: the i-th rounding has those of the i-th element (random_bits_of)
};

// The encoding of the sum of an array, or of the dot product of two, in the accumulator's format; +0 of no terms. The exact
// order's rules of zero and NaN are those of ExactSum, the others' those of arithmetic.h, operation by operation. Throws a usage
// Error where lengths differ, for an accumulator that is no format, and in stochastic rounding for numbers of random bits that are
// not 1 to 24.
uint64_t sum(const EncodedArray& terms, const Summation& summation);
uint64_t dot(const EncodedArray& a, const EncodedArray& b, const Summation& summation);

}  // namespace ulpscope
