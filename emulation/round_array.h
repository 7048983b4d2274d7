// Roundings of whole arrays to any format in any mode, bit for bit as number.h defines them, with the widest SIMD instructions that
// the CPU has. Formats whose numbers are no ordinary FP32 numbers, those without subnormals, and values in FP64 go one by one.
//
// Throws a usage Error where lengths differ, where elements do not hold what comes out, for null pointers with a length, and for
// numbers of random bits that are not 1 to 24.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>

#include "ulpscope/base/philox.h"
#include "ulpscope/emulation/format.h"
#include "ulpscope/emulation/number.h"

namespace ulpscope {

// Arrays of either type; vectors and spans convert to them.
using ConstValues = std::variant<std::span<const float>, std::span<const double>>;
using Values = std::variant<std::span<float>, std::span<double>>;
using Encodings = std::variant<std::span<uint8_t>, std::span<uint16_t>, std::span<uint32_t>>;

// Where the random bits of stochastic rounding come from: element i of an array has those of number first + i of this seed and
// stream (random_bits_of), whatever the CPU and however the work is shared out.
struct RandomStream {
  uint64_t seed = 0, stream = 0, first = 0;
};

// The rounds of Philox4x32 that make them.
inline constexpr int kRandomRounds = 7;

// The 32 bits of element `i` of an array, of which a rounding takes the leading ones. The first 16 decide nearly always, so two
// elements share a word of Philox: with e = first + i, bits 16 to 31 are from word e / 2 (the lower half of it where e is even),
// the others from word 2^63 + e / 2. Word w is that of index w % 4 of the counter w / 4.
constexpr uint32_t random_bits_of(const RandomStream& random, uint64_t i) {
  const uint64_t element = random.first + i;
  const PhiloxStream<kRandomRounds> words(random.seed, random.stream);
  const auto half_of_word = [&](uint64_t word) { return words.bits(word) >> (element % 2 * 16) & 0xFFFF; };
  constexpr uint64_t kFurther = uint64_t{1} << 63;
  return half_of_word(element / 2) << 16 | half_of_word(kFurther + element / 2);
}

// To values that stay in the type that they have, which has to hold the format's: FP32 holds those of all formats but fp64. `in`
// and `out` may be the same array, and must not overlap otherwise.
void round_values(const FloatFormat& format, const Rounding& rounding, ConstValues in, Values out, const RandomStream& random = {});

// To encodings, in elements that are wide enough. The arrays must not overlap.
void round_encodings(const FloatFormat& format, const Rounding& rounding, ConstValues in, Encodings out,
                     const RandomStream& random = {});

}  // namespace ulpscope
