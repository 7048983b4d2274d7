// Real numbers beside rational ones, beside 400 bits of Boost, and beside what IEEE 754 makes of Inf, NaN and zeros.
#include "ulpscope/emulation/real.h"

#include <gtest/gtest.h>

#include <boost/multiprecision/cpp_bin_float.hpp>
#include <boost/multiprecision/cpp_int.hpp>
#include <cmath>
#include <limits>

#include "ulpscope/base/philox.h"
#include "ulpscope/emulation/ball.h"

namespace ulpscope {
namespace {

using Rational = boost::multiprecision::cpp_rational;
using Bits400 = boost::multiprecision::number<
    boost::multiprecision::cpp_bin_float<400, boost::multiprecision::digit_base_2, void, int32_t, -1000000, 1000000>,
    boost::multiprecision::et_off>;

template <typename T>
T two_to(int exponent) {
  T power = 1;
  for (int i = 0; i < std::abs(exponent); ++i) power *= 2;
  return exponent < 0 ? T(1 / power) : power;
}

// Whether the number lies in the ball of `real`, and the ball is as small as its bits promise beside `scale`.
template <typename T>
void expect_enclosed(const Real& real, const T& number, const T& scale) {
  const T middle = T(real.ball().middle) * two_to<T>(real.ball().exponent);
  const T radius = T(real.ball().radius) * two_to<T>(real.ball().exponent);
  const T distance = middle > number ? T(middle - number) : T(number - middle);
  EXPECT_LE(distance, radius) << real.value();
  EXPECT_LE(radius, scale * two_to<T>(-140)) << real.value();
  EXPECT_NEAR(real.value(), static_cast<double>(number), 0x1p-51 * std::fabs(static_cast<double>(number)));
  EXPECT_GE(real.radius(), static_cast<double>(radius) * (1 - 0x1p-50));
}

double random_double(const Philox& random, uint64_t at) {
  const double size = std::ldexp(0.5 + random.uniform(2 * at), static_cast<int>(random.below(2 * at + 1, 41)) - 20);
  return random.below(3 * at + 7, 2) == 0 ? size : -size;
}

TEST(Real, ArithmeticEnclosesRationalNumbers) {
  const Philox random(1, 2);
  for (uint64_t i = 0; i < 300; ++i) {
    const double a = random_double(random, 4 * i), b = random_double(random, 4 * i + 1), c = random_double(random, 4 * i + 2);
    const Rational of_a(a), of_b(b), of_c(c);
    // A quotient is no binary number, so that what follows works on inexact ones.
    const Rational quotient = of_a / of_b, scale = abs(quotient) + abs(of_c);
    expect_enclosed<Rational>(Real(a) / Real(b), quotient, abs(quotient));
    expect_enclosed<Rational>(Real(a) / Real(b) - Real(c), quotient - of_c, scale);
    expect_enclosed<Rational>((Real(a) / Real(b) + Real(c)) * Real(c), (quotient + of_c) * of_c, scale * abs(of_c));
    EXPECT_TRUE((Real(a) * Real(b) + Real(c)).is_exact());
    EXPECT_EQ(compare(Real(a), Real(b)), a < b ? -1 : a > b ? 1 : 0);
  }
}

TEST(Real, FunctionsEncloseThoseOfInexactNumbers) {
  const Philox random(3, 4);
  for (uint64_t i = 0; i < 40; ++i) {
    const double a = std::ldexp(0.5 + random.uniform(2 * i), static_cast<int>(i % 8) - 4);
    const Bits400 x = Bits400(a) / 3;
    const Real third = Real(a) / Real(3.0);
    const auto expect = [&](ElementaryFunction function, const Bits400& value) {
      expect_enclosed<Bits400>(evaluate(function, third), value, Bits400(abs(value) + abs(x) + 1));
    };
    expect(ElementaryFunction::exp, exp(x));
    expect(ElementaryFunction::log, log(x));
    expect(ElementaryFunction::log1p, log(1 + x));
    expect(ElementaryFunction::tanh, tanh(x));
    expect(ElementaryFunction::softplus, log(1 + exp(x)));
    expect_enclosed<Bits400>(square_root(third), sqrt(x), sqrt(x));
    expect_enclosed<Bits400>(power(third, Real(a)), pow(x, Bits400(a)), Bits400(pow(x, Bits400(a)) * 64 + 1));
    expect_enclosed<Bits400>(power(-third, Real(3.0)), -x * x * x, Bits400(abs(x * x * x) + 1));
  }
}

TEST(Real, InfNanAndZeroAreThoseOfIeee) {
  const double values[] = {0, -0.0, 1, -2, HUGE_VAL, -HUGE_VAL, std::numeric_limits<double>::quiet_NaN()};
  const auto expect_same = [](const Real& got, double expected, double a, double b) {
    const bool same = got.value() == expected && std::signbit(got.value()) == std::signbit(expected);
    EXPECT_TRUE(same || (got.is_nan() && std::isnan(expected))) << got.value() << " of " << a << " and " << b;
  };
  for (const double a : values) {
    for (const double b : values) {
      expect_same(Real(a) + Real(b), a + b, a, b);
      expect_same(Real(a) - Real(b), a - b, a, b);
      expect_same(Real(a) * Real(b), a * b, a, b);
      expect_same(Real(a) / Real(b), a / b, a, b);
      expect_same(power(Real(a), Real(b)), std::pow(a, b), a, b);
    }
    expect_same(square_root(Real(a)), std::sqrt(a), a, 0);
    expect_same(evaluate(ElementaryFunction::exp, Real(a)), std::exp(a), a, 0);
    expect_same(evaluate(ElementaryFunction::tanh, Real(a)), std::tanh(a), a, 0);
    expect_same(evaluate(ElementaryFunction::log, Real(a)), std::log(a), a, 0);
  }
  EXPECT_TRUE(evaluate(ElementaryFunction::log, Real(-1.0) / Real(3.0)).is_nan());
}

TEST(Real, KnowsWhichNumbersAFormatHas) {
  EXPECT_TRUE(Real(65504.0).is_in(binary16));
  EXPECT_FALSE(Real(65520.0).is_in(binary16));
  EXPECT_TRUE(Real(0x1p-24).is_in(binary16));
  EXPECT_FALSE(Real(0x1.8p-24).is_in(binary16));
  EXPECT_TRUE(Real(1 + 0x1p-10).is_in(binary16));
  EXPECT_FALSE(Real(1 + 0x1p-11).is_in(binary16));
  EXPECT_FALSE((Real(1.0) / Real(3.0)).is_in(binary64));
  EXPECT_TRUE(Real().is_in(bfloat16));
}

}  // namespace
}  // namespace ulpscope
