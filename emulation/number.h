// Numbers taken apart, and put together again with one rounding. All of emulation's conversions and arithmetic pass here.
// Everything is integer arithmetic, so the CPU's rounding and flush-to-zero modes do not matter, and host, compiler and device give
// equal bits.
#pragma once

#include <cstdint>

#include "ulpscope/emulation/format.h"

namespace ulpscope {

enum class RoundingMode : uint8_t {
  nearest_even,  // to the nearest number, of two the one with an even significand
  nearest_away,  // of two the one that is farther from zero
  toward_zero,
  up,          // towards +Inf
  down,        // towards -Inf
  to_odd,      // what is not exact goes to the neighbour with an odd significand, so that a second rounding does no harm
  stochastic,  // up or down, with a probability proportional to the distance from the other neighbour
};
inline constexpr int kRoundingModes = 7;

// Modes in which a finite number may stay below the largest one however large it is.
constexpr bool is_directed(RoundingMode mode) {
  return mode == RoundingMode::toward_zero || mode == RoundingMode::up || mode == RoundingMode::down ||
         mode == RoundingMode::to_odd;
}

// What becomes of results beyond the largest finite number.
enum class Overflow : uint8_t {
  // Inf, or NaN in formats without it; modes that round towards zero there give the largest finite number. Formats that have
  // neither
  // saturate.
  ieee,
  saturate,  // the largest finite number, for Inf as well
};

// What becomes of results below the smallest normal number, after rounding. Formats without exponent bits have no normal numbers,
// and keep theirs.
enum class SubnormalResults : uint8_t {
  keep,
  flush,  // zero of their sign
};

struct Rounding {
  RoundingMode mode = RoundingMode::nearest_even;
  Overflow overflow = Overflow::ieee;
  SubnormalResults subnormals = SubnormalResults::keep;
  // Of each stochastic rounding: probabilities are multiples of 2^-random_bits, rounded down. 1 to 24; the scalar functions do not
  // check that.
  int random_bits = 24;
};

// (-1)^negative * significand * 2^exponent, or zero, Inf or NaN. `sticky`: the magnitude is more than that, by less than
// 2^exponent; the significand then has at least two bits more than any format that it is rounded to. Of NaN the significand is the
// fraction, aligned to the left, so that the quiet bit is bit 63.
struct Number {
  enum class Kind : uint8_t { zero, finite, infinite, nan };
  Kind kind = Kind::zero;
  bool negative = false;
  bool sticky = false;
  int exponent = 0;
  uint64_t significand = 0;
};

// What an encoding stands for; bits above the format's are ignored.
constexpr Number decode(const FloatFormat& format, uint64_t encoding) {
  Number number;
  number.negative = (encoding & format.sign_bit()) != 0;
  const uint64_t magnitude = encoding & format.last_magnitude();
  const uint64_t fraction = magnitude & ((uint64_t{1} << format.fraction_bits) - 1);
  const int field = static_cast<int>(magnitude >> format.fraction_bits);
  const bool negative_zero_is_nan = format.special_values == SpecialValues::negative_zero && number.negative && magnitude == 0;
  if (magnitude > format.largest_encoding() || negative_zero_is_nan) {
    if (format.has_infinity() && magnitude == format.infinity_encoding()) {
      number.kind = Number::Kind::infinite;
      return number;
    }
    number.kind = Number::Kind::nan;
    // Formats with a single NaN have a quiet one.
    number.significand = format.has_infinity() ? fraction << (64 - format.fraction_bits) : uint64_t{1} << 63;
    return number;
  }
  const bool is_normal = field > 0 || format.zero_field == ZeroField::normal;
  if (!is_normal && (fraction == 0 || format.zero_field == ZeroField::zero)) return number;
  number.kind = Number::Kind::finite;
  number.significand = fraction | (is_normal ? uint64_t{1} << format.fraction_bits : 0);
  number.exponent = (field > 0 || format.zero_field == ZeroField::normal ? field : 1) - format.bias - format.fraction_bits;
  return number;
}

namespace detail {

// A significand of so many steps, and what lies between it and the next.
struct Steps {
  uint64_t whole = 0;
  uint64_t rest = 0;    // in units of 2^-64 of a step
  bool sticky = false;  // more than that, by less than a unit
};

// significand / 2^shift.
constexpr Steps steps_of(uint64_t significand, int shift, bool sticky) {
  if (shift <= 0) return {significand << -shift, 0, sticky};
  if (shift < 64) return {significand >> shift, significand << (64 - shift), sticky};
  if (shift == 64) return {0, significand, sticky};
  if (shift < 128) return {0, significand >> (shift - 64), sticky || (significand << (128 - shift)) != 0};
  return {0, 0, sticky || significand != 0};
}

constexpr bool rounds_up(const Steps& steps, bool negative, const Rounding& rounding, uint32_t random) {
  constexpr uint64_t kHalf = uint64_t{1} << 63;
  const bool inexact = steps.rest != 0 || steps.sticky;
  switch (rounding.mode) {
    case RoundingMode::nearest_even:
      return steps.rest > kHalf || (steps.rest == kHalf && (steps.sticky || (steps.whole & 1) != 0));
    case RoundingMode::nearest_away:
      return steps.rest >= kHalf;
    case RoundingMode::toward_zero:
      return false;
    case RoundingMode::up:
      return inexact && !negative;
    case RoundingMode::down:
      return inexact && negative;
    case RoundingMode::to_odd:
      return inexact && (steps.whole & 1) == 0;
    case RoundingMode::stochastic:
      return (((steps.rest >> (64 - rounding.random_bits)) + (random >> (32 - rounding.random_bits))) >> rounding.random_bits) != 0;
  }
  return false;
}

constexpr bool stays_finite(bool negative, const Rounding& rounding) {
  return rounding.overflow == Overflow::saturate || rounding.mode == RoundingMode::toward_zero ||
         rounding.mode == RoundingMode::to_odd || rounding.mode == (negative ? RoundingMode::up : RoundingMode::down);
}

constexpr uint64_t encode_nan(const FloatFormat& format, const Number& nan) {
  if (!format.has_nan()) return format.largest_encoding();
  if (!format.has_infinity()) return format.nan_encoding() | (nan.negative ? format.sign_bit() : 0);
  // The quiet bit keeps a NaN whose leading payload bits are zero from becoming an Inf.
  return format.nan_encoding() | (nan.negative ? format.sign_bit() : 0) | (nan.significand >> (64 - format.fraction_bits));
}

// Of a finite number beyond the largest one.
constexpr uint64_t encode_overflow(const FloatFormat& format, bool negative, const Rounding& rounding) {
  const uint64_t sign = negative ? format.sign_bit() : 0;
  if (stays_finite(negative, rounding) || !format.has_nan()) return sign | format.largest_encoding();
  if (format.has_infinity()) return sign | format.infinity_encoding();
  return encode_nan(format, {.kind = Number::Kind::nan, .negative = negative});
}

// Of what is not zero. Not std::countl_zero, of which nvcc makes, without a word, the constant 64 in device code.
constexpr int leading_zeros(uint64_t significand) {
  static_assert(sizeof(unsigned long long) == sizeof(uint64_t));
  return __builtin_clzll(significand);
}

}  // namespace detail

// The encoding of a number in `format`, rounded once. NaN stays NaN, quiet, with its sign and its leading payload bits where the
// format has them; formats without NaN give +largest. Zero keeps its sign where the format has it. Without a zero, what is below
// the smallest number becomes that. Formats without a sign drop it. `random`: uniform bits, for stochastic rounding.
constexpr uint64_t encode(const FloatFormat& format, const Number& number, const Rounding& rounding = {}, uint32_t random = 0) {
  if (number.kind == Number::Kind::nan) return detail::encode_nan(format, number);
  const uint64_t sign = number.negative ? format.sign_bit() : 0;
  const bool keeps_zero_sign = format.special_values != SpecialValues::negative_zero;
  if (number.kind == Number::Kind::infinite) {
    if (rounding.overflow == Overflow::saturate || !format.has_nan()) return sign | format.largest_encoding();
    return format.has_infinity() ? sign | format.infinity_encoding() : detail::encode_nan(format, number);
  }
  if (number.kind == Number::Kind::zero) return keeps_zero_sign ? sign : 0;

  // Of the leading bit, and of the step between numbers there.
  const int leading = number.exponent + 63 - detail::leading_zeros(number.significand);
  if (leading > format.largest_exponent()) return detail::encode_overflow(format, number.negative, rounding);
  const int normal = format.smallest_normal_exponent();
  const bool below_normal = leading < normal;
  const int fraction_bits = below_normal && format.zero_field == ZeroField::zero ? 0 : format.fraction_bits;
  const int step_exponent = (below_normal ? normal : leading) - fraction_bits;
  const detail::Steps steps = detail::steps_of(number.significand, step_exponent - number.exponent, number.sticky);
  const uint64_t rounded = steps.whole + (detail::rounds_up(steps, number.negative, rounding, random) ? 1 : 0);

  // A normal significand's leading one counts as one in the exponent field, as does a carry out of the fraction.
  const uint64_t normal_begin = (format.zero_field == ZeroField::normal ? 0 : uint64_t{1}) << format.fraction_bits;
  uint64_t magnitude = 0;
  if (!below_normal) {
    magnitude =
        (static_cast<uint64_t>(leading - normal) << fraction_bits) + (rounded - (uint64_t{1} << fraction_bits)) + normal_begin;
  } else if (format.zero_field == ZeroField::subnormals) {
    magnitude = rounded;
  } else {
    magnitude = rounded == 0 ? 0 : normal_begin;
  }
  if (magnitude > format.largest_encoding()) return detail::encode_overflow(format, number.negative, rounding);
  if (rounding.subnormals == SubnormalResults::flush && magnitude < normal_begin && format.exponent_bits > 0) magnitude = 0;
  return magnitude == 0 && !keeps_zero_sign ? 0 : sign | magnitude;
}

// From one format into another, with one rounding.
constexpr uint64_t convert(const FloatFormat& from, const FloatFormat& to, uint64_t encoding, const Rounding& rounding = {},
                           uint32_t random = 0) {
  return encode(to, decode(from, encoding), rounding, random);
}

}  // namespace ulpscope
