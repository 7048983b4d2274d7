// Roundings of FP64 values to any format, against exact rational arithmetic.
#include <gtest/gtest.h>

#include <bit>
#include <boost/multiprecision/cpp_int.hpp>
#include <cmath>
#include <limits>

#include "ulpscope/base/philox.h"
#include "ulpscope/emulation/rounding.h"

namespace ulpscope {
namespace {

using Rational = boost::multiprecision::cpp_rational;
using Integer = boost::multiprecision::cpp_int;

Rational power_of_two(int exponent) {
  const Rational power(Integer(1) << std::abs(exponent));
  return exponent < 0 ? 1 / power : power;
}

// The value of a finite, nonnegative FP64 number, from its bits.
Rational exact(double value) {
  const auto bits = std::bit_cast<uint64_t>(value);
  const int field = static_cast<int>(bits >> 52);
  const uint64_t fraction = bits & ((uint64_t{1} << 52) - 1);
  return Rational(Integer(fraction | (field > 0 ? uint64_t{1} << 52 : 0))) * power_of_two(std::max(field, 1) - 1075);
}

// The nearest multiple of the step of `format` at `value`, the even one of two; a negative number for Inf.
Rational nearest(const FloatFormat& format, const Rational& value) {
  int exponent = format.smallest_normal_exponent();
  while (exponent <= format.largest_exponent() && value >= power_of_two(exponent + 1)) ++exponent;
  const Rational step = power_of_two(exponent - format.fraction_bits);
  const Rational steps = value / step;
  Integer whole = numerator(steps) / denominator(steps);
  const Rational rest = steps - whole;
  if (rest > Rational(1, 2) || (rest == Rational(1, 2) && (whole & 1) == 1)) ++whole;
  const Rational rounded = whole * step;
  return rounded >= power_of_two(format.largest_exponent() + 1) ? Rational(-1) : rounded;
}

void check(const FloatFormat& format, double value) {
  const Rational expected = nearest(format, exact(value));
  const double rounded = round_to_format(format, value);
  if (expected < 0) {
    ASSERT_EQ(rounded, HUGE_VAL) << format.name << " " << value;
  } else {
    ASSERT_TRUE(std::isfinite(rounded)) << format.name << " " << value;
    ASSERT_EQ(exact(rounded), expected) << format.name << " " << value;
  }
  const double negative = round_to_format(format, -value);
  ASSERT_EQ(std::bit_cast<uint64_t>(negative), std::bit_cast<uint64_t>(-rounded)) << format.name << " " << value;
  if (&format == &binary32) {
    ASSERT_EQ(f32_to_double(round_to_f32(value)), rounded) << value;
  }
}

constexpr FloatFormat kFewFractionBits{"e11m3", 11, 3, 1023};
const FloatFormat* const kIeeeFormats[] = {&binary16, &bfloat16, &binary32, &tensor_float32, &e5m2, &e4m3_ieee, &kFewFractionBits};

TEST(RoundToFormat, IsExactForRandomDoubles) {
  const Philox random(7, 8);
  uint64_t draw = 0;
  for (const FloatFormat* format : kIeeeFormats) {
    // Exponents from below the flush threshold to above the overflow threshold, as far as FP64 has them.
    const int lowest = std::max(format->smallest_exponent() - 3, -1074);
    const int highest = std::min(format->largest_exponent() + 2, 1023);
    for (int i = 0; i < 3000; ++i, draw += 4) {
      const uint64_t fraction = (uint64_t{random.bits(draw)} << 20) ^ random.bits(draw + 1);
      // Few set bits make midpoints and exact values likely.
      const uint64_t mask = ~uint64_t{0} << random.below(draw + 2, 53);
      const double significand = 1 + std::ldexp(static_cast<double>(fraction & mask & ((uint64_t{1} << 52) - 1)), -52);
      check(*format, std::ldexp(significand, lowest + static_cast<int>(random.below(draw + 3, highest - lowest + 1))));
    }
  }
}

TEST(RoundToFormat, IsExactNextToItsThresholds) {
  for (const FloatFormat* format : kIeeeFormats) {
    for (const double threshold :
         {format->flush_threshold(), format->smallest_positive(), format->smallest_normal(),
          format->smallest_normal() - format->flush_threshold(), format->largest_finite(), format->overflow_threshold()}) {
      if (!std::isfinite(threshold)) continue;  // e11m3 overflows where FP64 does
      check(*format, threshold);
      check(*format, std::nextafter(threshold, 0.0));
      if (threshold < std::numeric_limits<double>::max()) check(*format, std::nextafter(threshold, HUGE_VAL));
    }
  }
}

TEST(RoundToFormat, KeepsWhatIsNotANumber) {
  for (const FloatFormat* format : kIeeeFormats) {
    EXPECT_EQ(round_to_format(*format, -HUGE_VAL), -HUGE_VAL);
    const double nan = round_to_format(*format, std::bit_cast<double>(0xFFF0000000000001));
    EXPECT_TRUE(std::isnan(nan) && std::signbit(nan)) << format->name;
  }
  EXPECT_EQ(round_to_format(binary64, std::numeric_limits<double>::denorm_min()), std::numeric_limits<double>::denorm_min());
}

TEST(RoundToF32, AgreesWithTheCpu) {
  const Philox random(9, 10);
  for (uint64_t i = 0; i < 200000; ++i) {
    const double value = std::bit_cast<double>(uint64_t{random.bits(2 * i)} << 32 | random.bits(2 * i + 1));
    if (std::isnan(value)) continue;
    ASSERT_EQ(std::bit_cast<uint32_t>(round_to_f32(value)), std::bit_cast<uint32_t>(static_cast<float>(value))) << value;
  }
}

}  // namespace
}  // namespace ulpscope
