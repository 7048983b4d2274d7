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

// Where the random bits of a stochastic rounding come from: element i of an array has those of number first + i of this seed and
// stream (random_bits_of), whatever the CPU and however the work is shared out.
struct RandomStream {
  uint64_t seed = 0, stream = 0, first = 0;
};

// 32 bits for the `element`th rounding to `format`, of which the rounding takes the leading ones. Where it needs no more than 16,
// two elements share a number of Philox: formats with the exponents of FP32 need as many as they discard.
uint32_t random_bits_of(const FloatFormat& format, const Rounding& rounding, const Philox& philox, uint64_t element);

// To values that stay in the type that they have, which has to hold the format's: FP32 holds those of all formats but fp64. `in`
// and `out` may be the same array, and must not overlap otherwise.
void round_values(const FloatFormat& format, const Rounding& rounding, ConstValues in, Values out, const RandomStream& random = {});

// To encodings, in elements that are wide enough. The arrays must not overlap.
void round_encodings(const FloatFormat& format, const Rounding& rounding, ConstValues in, Encodings out,
                     const RandomStream& random = {});

}  // namespace ulpscope
