// Roundings of whole arrays to any format in any mode, bit for bit as number.h defines them, with the widest SIMD instructions that
// the CPU has. Formats whose numbers are no ordinary FP32 numbers, and those without subnormals, go one by one.
//
// Arrays are spans. Throws a usage Error where their lengths differ, where elements have another size than the format's encodings,
// and for numbers of random bits that are not 1 to 24.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "ulpscope/base/philox.h"
#include "ulpscope/emulation/format.h"
#include "ulpscope/emulation/number.h"

namespace ulpscope {

// Where the random bits of a stochastic rounding come from: element i of an array has those of number first + i of this seed and
// stream (random_bits_of), whatever the CPU and however the work is shared out.
struct RandomStream {
  uint64_t seed = 0, stream = 0, first = 0;
};

// 32 bits for the `element`th rounding to `format`, of which the rounding takes the leading ones. Where it needs no more than 16,
// two elements share a number of Philox: formats with the exponents of FP32 need as many as they discard.
uint32_t random_bits_of(const FloatFormat& format, const Rounding& rounding, const Philox& philox, uint64_t element);

// To values that stay in FP32. `in` and `out` may be the same array, and must not overlap otherwise. Not to fp64.
void round_values(const FloatFormat& format, const Rounding& rounding, std::span<const float> in, std::span<float> out,
                  const RandomStream& random = {});

// To encodings, of formats of at most 8, 16 and 32 bits. The arrays must not overlap.
void round_encodings(const FloatFormat& format, const Rounding& rounding, std::span<const float> in, std::span<uint8_t> out,
                     const RandomStream& random = {});
void round_encodings(const FloatFormat& format, const Rounding& rounding, std::span<const float> in, std::span<uint16_t> out,
                     const RandomStream& random = {});
void round_encodings(const FloatFormat& format, const Rounding& rounding, std::span<const float> in, std::span<uint32_t> out,
                     const RandomStream& random = {});

}  // namespace ulpscope
