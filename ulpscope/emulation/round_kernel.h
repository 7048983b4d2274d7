// What round_array.h's vector loops need of a format and a rounding, worked out once an array by the scalar functions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "hwy/detect_compiler_arch.h"
#include "ulpscope/emulation/number.h"
#include "ulpscope/emulation/round_array.h"

#if HWY_ARCH_X86
#include <xmmintrin.h>
#endif

namespace ulpscope {

// How a vector loop finds the neighbours of a value.
enum class RoundingCore : uint8_t {
  shifted,  // the format has the exponents of FP32: the same bits of every value go away
  carried,  // the same, where overflow needs no thought: a carry out of the largest number gives the bits of Inf, which are wanted
  scaled,   // a power of two is added whose ulp is the format's step at the value, so that the addition rounds
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
  bool halves = false;    // random numbers have 16 bits
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

RoundConstants round_constants(const FloatFormat& format, const Rounding& rounding, bool to_values);

// The CPU's rounding mode and its treatment of subnormals, set for a loop over additions and put back after it.
class CpuRounding {
 public:
#if HWY_ARCH_X86
  explicit CpuRounding(RoundingMode mode) : before_(_mm_getcsr()) {
    constexpr unsigned kAllMasked = 0x1F80, kDown = 0x2000, kUp = 0x4000, kTowardZero = 0x6000;
    const unsigned control = mode == RoundingMode::nearest_even ? 0
                             : mode == RoundingMode::up         ? kUp
                             : mode == RoundingMode::down       ? kDown
                                                                : kTowardZero;
    _mm_setcsr(kAllMasked | control);
  }
  ~CpuRounding() { _mm_setcsr(before_); }

 private:
  unsigned before_;
#else
  explicit CpuRounding(RoundingMode) {}
#endif
};

// Vector loops over `count` elements, with the random numbers first, first + 1, ... of the stream; first is a multiple of
// kRandomBlock where there are any. The CPU rounds as `mode` has it in the scaled core: see CpuRounding.
inline constexpr uint64_t kRandomBlock = 64;
void round_lanes(const RoundConstants& constants, const float* in, float* out, size_t count, const RandomStream& random);
void round_lanes(const RoundConstants& constants, const float* in, uint8_t* out, size_t count, const RandomStream& random);
void round_lanes(const RoundConstants& constants, const float* in, uint16_t* out, size_t count, const RandomStream& random);

}  // namespace ulpscope
