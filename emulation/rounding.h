// Rounding of FP32 and FP64 values into other formats, and the values of encodings. number.h says how; simd_rounding.h and
// round_array.h have the fast functions for arrays, which give the same bits.
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <string_view>

#include "ulpscope/emulation/format.h"
#include "ulpscope/emulation/number.h"

namespace ulpscope {

constexpr uint64_t encoding_of(float value) { return std::bit_cast<uint32_t>(value); }
constexpr uint64_t encoding_of(double value) { return std::bit_cast<uint64_t>(value); }

// Formats are copied below, since device code has no address of the host's.

// The encoding of a value in `format`. `random`: uniform bits, for stochastic rounding.
constexpr uint64_t round_to_encoding(const FloatFormat& format, float value, const Rounding& rounding = {}, uint32_t random = 0) {
  constexpr FloatFormat kFrom = binary32;
  return convert(kFrom, format, encoding_of(value), rounding, random);
}
constexpr uint64_t round_to_encoding(const FloatFormat& format, double value, const Rounding& rounding = {}, uint32_t random = 0) {
  constexpr FloatFormat kFrom = binary64;
  return convert(kFrom, format, encoding_of(value), rounding, random);
}

// The value of an encoding, exact for every format up to FP64. A signalling NaN becomes a quiet one.
constexpr double value_of(const FloatFormat& format, uint64_t encoding) {
  constexpr FloatFormat kTo = binary64;
  return std::bit_cast<double>(convert(format, kTo, encoding));
}

// The value that `value` has after rounding to `format`, in its own type, which has to hold the format's values (FP32 holds those
// of all formats but fp64).
constexpr double round_to_format(const FloatFormat& format, double value, const Rounding& rounding = {}, uint32_t random = 0) {
  return value_of(format, round_to_encoding(format, value, rounding, random));
}
constexpr float round_to_format(const FloatFormat& format, float value, const Rounding& rounding = {}, uint32_t random = 0) {
  constexpr FloatFormat kTo = binary32;
  return std::bit_cast<float>(static_cast<uint32_t>(convert(format, kTo, round_to_encoding(format, value, rounding, random))));
}

// To nearest even with Inf and subnormals: what networks are trained with.
constexpr uint16_t round_to_f16(float value) { return static_cast<uint16_t>(round_to_encoding(binary16, value)); }
constexpr uint16_t round_to_bf16(float value) { return static_cast<uint16_t>(round_to_encoding(bfloat16, value)); }
constexpr uint16_t round_to_f16(double value) { return static_cast<uint16_t>(round_to_encoding(binary16, value)); }
constexpr uint16_t round_to_bf16(double value) { return static_cast<uint16_t>(round_to_encoding(bfloat16, value)); }
constexpr float round_to_f32(double value) {
  return std::bit_cast<float>(static_cast<uint32_t>(round_to_encoding(binary32, value)));
}

// Without rounding, and without the CPU's modes.
constexpr double f32_to_double(float value) { return value_of(binary32, encoding_of(value)); }
// Exact values of encodings. A signalling NaN is made quiet by f16_to_float, as the CPU's instruction does, and kept by the other.
float f16_to_float(uint16_t bits);
constexpr float bf16_to_float(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

// Modes by the names that the literature has for them: rne, rna, rz, ru, rd, ro, sr.
struct RoundingModeName {
  std::string_view name;
  RoundingMode mode;
  std::string_view meaning;
};
std::span<const RoundingModeName> rounding_modes();
// Throws a usage Error that names all of them for another name.
RoundingMode parse_rounding_mode(std::string_view name);
std::string_view name_of(RoundingMode mode);

}  // namespace ulpscope
