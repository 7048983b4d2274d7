// Rounding by definition, in exact rational arithmetic: a value lies between two multiples of the step of its binade, and the mode
// says which it becomes. Nothing of number.h is used. For tests of formats with zero and subnormals.
#pragma once

#include <boost/multiprecision/cpp_int.hpp>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "ulpscope/emulation/rounding.h"

namespace ulpscope {

using Rational = boost::multiprecision::cpp_rational;
using Integer = boost::multiprecision::cpp_int;

inline Rational power_of_two(int exponent) {
  const Rational power(Integer(1) << std::abs(exponent));
  return exponent < 0 ? 1 / power : power;
}

// The value of a finite encoding, by the definition of the format's fields.
inline Rational exact_value(const FloatFormat& format, uint64_t encoding) {
  const uint64_t fraction = encoding & ((uint64_t{1} << format.fraction_bits) - 1);
  const int field = static_cast<int>((encoding >> format.fraction_bits) & ((1u << format.exponent_bits) - 1));
  const Rational significand(Integer(fraction | (field > 0 ? uint64_t{1} << format.fraction_bits : 0)));
  const Rational magnitude = significand * power_of_two(std::max(field, 1) - format.bias - format.fraction_bits);
  return (encoding & format.sign_bit()) != 0 ? Rational(-magnitude) : magnitude;
}

inline Integer floor_of(const Rational& value) { return numerator(value) / denominator(value); }  // of what is not below zero

// A real number above zero, as the power 1 or 1/2 of a rational one.
struct RationalOrRoot {
  Rational value;
  bool is_root = false;

  // Of this real number over a rational one.
  std::strong_ordering compare(const Rational& other) const {
    const int sign = value.compare(is_root ? Rational(other * other) : other);
    return sign < 0 ? std::strong_ordering::less : sign > 0 ? std::strong_ordering::greater : std::strong_ordering::equal;
  }
  Integer steps(const Rational& step) const {
    return is_root ? Integer(sqrt(floor_of(value / (step * step)))) : floor_of(value / step);
  }
};

// The encoding of (-1)^negative times a real number above zero. Formats with subnormals, without stochastic rounding.
inline uint64_t rounded_encoding(const FloatFormat& format, bool negative, const RationalOrRoot& magnitude,
                                 const Rounding& rounding) {
  const int normal = 1 - format.bias;
  int low = normal - 1, high = format.largest_exponent() + 1;  // the leading bit's exponent lies in (low, high], or below
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (magnitude.compare(power_of_two(middle)) < 0 ? high : low) = middle;
  }
  const int leading = std::max(low, normal);
  const Rational step = power_of_two(leading - format.fraction_bits);
  Integer steps = magnitude.steps(step);
  const auto against_low = magnitude.compare(steps * step);
  const auto against_middle = magnitude.compare((2 * steps + 1) * step / 2);
  const bool is_odd = (steps & 1) != 0;
  bool up = false;
  switch (rounding.mode) {
    case RoundingMode::nearest_even:
      up = against_middle > 0 || (against_middle == 0 && is_odd);
      break;
    case RoundingMode::nearest_away:
      up = against_middle >= 0;
      break;
    case RoundingMode::up:
      up = against_low > 0 && !negative;
      break;
    case RoundingMode::down:
      up = against_low > 0 && negative;
      break;
    case RoundingMode::to_odd:
      up = against_low > 0 && !is_odd;
      break;
    case RoundingMode::toward_zero:
    case RoundingMode::stochastic:
      break;
  }
  if (up) ++steps;
  const uint64_t sign = negative ? format.sign_bit() : 0;
  const Rational result = steps * step;
  if (result > exact_value(format, format.largest_encoding())) {
    const bool inwards = rounding.mode == RoundingMode::toward_zero || rounding.mode == RoundingMode::to_odd ||
                         rounding.mode == (negative ? RoundingMode::up : RoundingMode::down);
    if (inwards || rounding.overflow == Overflow::saturate || !format.has_nan()) return sign | format.largest_encoding();
    return sign | (format.has_infinity() ? format.infinity_encoding() : format.nan_encoding());
  }
  // Where the step counts came from a binade's begin, a carry moves on into the next one by itself.
  const auto count = static_cast<uint64_t>(steps);
  const uint64_t encoding = count + (static_cast<uint64_t>(leading - normal) << format.fraction_bits);
  if (rounding.subnormals == SubnormalResults::flush && encoding < (uint64_t{1} << format.fraction_bits)) return sign;
  return sign | encoding;
}

// The same of a rational number; of zero the sign is that of a cancelled sum.
inline uint64_t rounded_encoding(const FloatFormat& format, const Rational& value, const Rounding& rounding) {
  if (value == 0) return rounding.mode == RoundingMode::down ? format.sign_bit() : 0;
  return rounded_encoding(format, value < 0, RationalOrRoot{abs(value)}, rounding);
}

// All but the stochastic one.
inline std::vector<Rounding> deterministic_roundings() {
  std::vector<Rounding> all;
  for (const RoundingModeName& mode : rounding_modes())
    if (mode.mode != RoundingMode::stochastic) all.push_back({mode.mode});
  return all;
}

}  // namespace ulpscope
