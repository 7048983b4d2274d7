// What round_array.h's vector loops need of a format and a rounding, worked out once an array by the scalar functions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ulpscope/base/floating_point_mode.h"
#include "ulpscope/emulation/number.h"
#include "ulpscope/emulation/round_array.h"

namespace ulpscope {

// How a vector loop finds the neighbours of a value.
enum class RoundingCore : uint8_t {
  shifted,    // the format has the exponents of FP32: the same bits of every value go away
  carried,    // the same of 2 to 16 bits, of 16 in stochastic rounding, where overflow needs no thought: a carry out of the largest
              // number gives the bits of Inf, which are wanted
  scaled,     // a power of two is added whose ulp is the format's step at the value, so that the addition rounds
  counted,    // the same of stochastic rounding that discards more than 16 bits
  converted,  // to FP16 and nearest even, which CPUs have an instruction for
  none,       // none of them will do
};

// Results are magnitudes "in units": bits of FP32 values, or encodings.
struct RoundConstants {
  RoundingCore core = RoundingCore::none;
  RoundingMode mode = RoundingMode::nearest_even;
  int discarded = 0;            // bits of FP32's fraction
  uint32_t smallest_field = 0;  // FP32 bits of the smallest normal number
  uint32_t clamp = 0;           // FP32 bits of a magnitude that is beyond the largest number, whatever the mode
  int random_bits = 24;
  // Of stochastic rounding: FP32 bits of the largest number's lower neighbour, and in the shifted core the bits of a sum that are
  // all ones where 16 random bits do not decide; 0: they always do.
  uint32_t usual = 0, undecided = 0;
  bool is_simple = true;  // subnormals and the sign of zero are kept
  // In units.
  uint32_t largest = 0;
  uint32_t over_positive = 0, over_negative = 0;  // instead of finite results beyond it
  uint32_t infinite = 0;                          // instead of Inf
  uint32_t smallest_kept = 0;                     // results below it become zero
  uint32_t zero_sign = 0;                         // all ones: zero keeps its sign
  // NaN becomes (bits >> nan_shift & nan_payload) | nan_set | (sign & nan_sign).
  int nan_shift = 0;
  uint32_t nan_payload = 0, nan_set = 0, nan_sign = 0;
  int sign_shift = 0;  // from the sign bit of FP32 to that of a result, to the right
};

// Of additions that cut off where the mode is neither to nearest nor to one side.
constexpr CpuRounding cpu_rounding(RoundingMode mode) {
  switch (mode) {
    case RoundingMode::nearest_even:
      return CpuRounding::nearest;
    case RoundingMode::up:
      return CpuRounding::up;
    case RoundingMode::down:
      return CpuRounding::down;
    default:
      return CpuRounding::toward_zero;
  }
}

RoundConstants round_constants(const FloatFormat& format, const Rounding& rounding, bool to_values);

// Vector loops over `count` elements, with the random numbers first, first + 1, ... of the stream; first is a multiple of
// kRandomBlock where there are any. In the scaled core the CPU has to round as cpu_rounding() says.
inline constexpr uint64_t kRandomBlock = 64;
void round_lanes(const RoundConstants& constants, const float* in, float* out, size_t count, const RandomStream& random);
void round_lanes(const RoundConstants& constants, const float* in, uint8_t* out, size_t count, const RandomStream& random);
void round_lanes(const RoundConstants& constants, const float* in, uint16_t* out, size_t count, const RandomStream& random);

}  // namespace ulpscope
