#include "ulpscope/emulation/rounding.h"

#include <algorithm>
#include <bit>

namespace ulpscope {

namespace {

constexpr uint64_t low_bits(int n) { return (uint64_t{1} << n) - 1; }

// The encoding in `to` of the value that `bits` encodes in `from`; `to` is no wider than `from`.
constexpr uint64_t convert(const FloatFormat& from, const FloatFormat& to, uint64_t bits) {
  const int narrower = from.fraction_bits - to.fraction_bits;
  const uint64_t sign = (bits >> (from.storage_bits() - 1)) << (to.storage_bits() - 1);
  const uint64_t fraction = bits & low_bits(from.fraction_bits);
  const auto field = static_cast<int>((bits >> from.fraction_bits) & low_bits(from.exponent_bits));
  const uint64_t infinity = low_bits(to.exponent_bits) << to.fraction_bits;
  if (field == static_cast<int>(low_bits(from.exponent_bits))) {
    if (fraction == 0) return sign | infinity;
    // The quiet bit keeps a NaN whose leading payload bits are zero from becoming an Inf.
    return sign | infinity | (uint64_t{1} << (to.fraction_bits - 1)) | (fraction >> narrower);
  }
  // The value is significand * 2^(exponent - from.fraction_bits).
  const int exponent = std::max(field, 1) - from.bias;
  const uint64_t significand = fraction | (field > 0 ? uint64_t{1} << from.fraction_bits : 0);
  // The result is a multiple of 2^(result_exponent - to.fraction_bits); below the smallest normal value that step stays the same.
  const int result_exponent = std::max(exponent, to.smallest_normal_exponent());
  const int shift = narrower + result_exponent - exponent;
  uint64_t rounded = 0;
  // A significand has at most fraction_bits + 1 bits: shifted by more than that plus one it is below half a step.
  if (shift == 0) {
    rounded = significand;
  } else if (shift <= from.fraction_bits + 1) {
    const uint64_t kept = significand >> shift;
    const uint64_t lost = significand & low_bits(shift);
    const uint64_t half = uint64_t{1} << (shift - 1);
    rounded = kept + (lost > half || (lost == half && (kept & 1)));
  }
  // The leading one of a normal significand adds one to the exponent field, as does a carry out of the fraction.
  const uint64_t magnitude = (static_cast<uint64_t>(result_exponent + to.bias - 1) << to.fraction_bits) + rounded;
  return sign | std::min(magnitude, infinity);
}

// The FP64 encoding of the value that `bits` encodes in `from`, which FP64 can hold.
constexpr uint64_t widen(const FloatFormat& from, uint64_t bits) {
  const uint64_t sign = (bits >> (from.storage_bits() - 1)) << 63;
  const uint64_t fraction = bits & low_bits(from.fraction_bits);
  const auto field = static_cast<int>((bits >> from.fraction_bits) & low_bits(from.exponent_bits));
  const uint64_t infinity = low_bits(binary64.exponent_bits) << binary64.fraction_bits;
  const int wider = binary64.fraction_bits - from.fraction_bits;
  if (field == static_cast<int>(low_bits(from.exponent_bits))) return sign | infinity | (fraction << wider);
  if (field > 0)
    return sign | (static_cast<uint64_t>(field - from.bias + binary64.bias) << binary64.fraction_bits) | (fraction << wider);
  if (fraction == 0) return sign;
  // fraction * 2^smallest, its leading bit at `leading`.
  const int smallest = from.smallest_subnormal_exponent();
  const int leading = 63 - std::countl_zero(fraction);
  if (smallest + leading < binary64.smallest_normal_exponent()) {
    return sign | (fraction << (smallest - binary64.smallest_subnormal_exponent()));
  }
  const uint64_t normalised = (fraction << (binary64.fraction_bits - leading)) & low_bits(binary64.fraction_bits);
  return sign | (static_cast<uint64_t>(smallest + leading + binary64.bias) << binary64.fraction_bits) | normalised;
}

}  // namespace

uint16_t round_to_f16(float value) { return static_cast<uint16_t>(convert(binary32, binary16, std::bit_cast<uint32_t>(value))); }
uint16_t round_to_bf16(float value) { return static_cast<uint16_t>(convert(binary32, bfloat16, std::bit_cast<uint32_t>(value))); }
uint16_t round_to_f16(double value) { return static_cast<uint16_t>(convert(binary64, binary16, std::bit_cast<uint64_t>(value))); }
uint16_t round_to_bf16(double value) { return static_cast<uint16_t>(convert(binary64, bfloat16, std::bit_cast<uint64_t>(value))); }

float round_to_f32(double value) {
  return std::bit_cast<float>(static_cast<uint32_t>(convert(binary64, binary32, std::bit_cast<uint64_t>(value))));
}

double f32_to_double(float value) { return std::bit_cast<double>(widen(binary32, std::bit_cast<uint32_t>(value))); }

float f16_to_float(uint16_t bits) {
  const uint32_t sign = uint32_t{bits & 0x8000u} << 16;
  const uint32_t magnitude = bits & 0x7FFFu;
  if (magnitude >= 0x7C00) {
    const uint32_t quiet = magnitude > 0x7C00 ? 0x400000u : 0;
    return std::bit_cast<float>(sign | 0x7F800000u | quiet | ((magnitude & 0x3FFu) << 13));
  }
  // Exponents differ by the biases: 127 - 15.
  if (magnitude >= 0x400) return std::bit_cast<float>(sign | ((magnitude << 13) + (112u << 23)));
  if (magnitude == 0) return std::bit_cast<float>(sign);
  // magnitude * 2^-24; its leading bit becomes the implicit one.
  const int leading = 31 - std::countl_zero(magnitude);
  return std::bit_cast<float>(sign | (static_cast<uint32_t>(leading - 24 + 127) << 23) |
                              ((magnitude << (23 - leading)) & 0x7FFFFFu));
}

float bf16_to_float(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

double round_to_format(const FloatFormat& format, double value) {
  return std::bit_cast<double>(widen(format, convert(binary64, format, std::bit_cast<uint64_t>(value))));
}

}  // namespace ulpscope
