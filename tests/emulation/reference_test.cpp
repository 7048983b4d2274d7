// Elementary functions: against long double's of the C library where those decide the rounding, and against Boost's functions with
// 800 bits, or series of other kinds, where they do not.
#include "ulpscope/emulation/reference.h"

#include <gtest/gtest.h>

#include <boost/multiprecision/cpp_bin_float.hpp>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/emulation/neighbours.h"
#include "tests/emulation/rational_rounding.h"
#include "ulpscope/base/error.h"
#include "ulpscope/base/philox.h"

namespace ulpscope {
namespace {

using Big = boost::multiprecision::number<
    boost::multiprecision::cpp_bin_float<800, boost::multiprecision::digit_base_2, void, int32_t, -1000000, 1000000>,
    boost::multiprecision::et_off>;

long double library_value(ElementaryFunction function, long double x) {
  switch (function) {
    case ElementaryFunction::exp:
      return std::exp(x);
    case ElementaryFunction::exp2:
      return std::exp2(x);
    case ElementaryFunction::expm1:
      return std::expm1(x);
    case ElementaryFunction::log:
      return std::log(x);
    case ElementaryFunction::log2:
      return std::log2(x);
    case ElementaryFunction::log10:
      return std::log10(x);
    case ElementaryFunction::log1p:
      return std::log1p(x);
    case ElementaryFunction::sqrt:
      return std::sqrt(x);
    case ElementaryFunction::rsqrt:
      return 1 / std::sqrt(x);
    case ElementaryFunction::sin:
      return std::sin(x);
    case ElementaryFunction::cos:
      return std::cos(x);
    case ElementaryFunction::tan:
      return std::tan(x);
    case ElementaryFunction::asin:
      return std::asin(x);
    case ElementaryFunction::acos:
      return std::acos(x);
    case ElementaryFunction::atan:
      return std::atan(x);
    case ElementaryFunction::sinh:
      return std::sinh(x);
    case ElementaryFunction::cosh:
      return std::cosh(x);
    case ElementaryFunction::tanh:
      return std::tanh(x);
    case ElementaryFunction::asinh:
      return std::asinh(x);
    case ElementaryFunction::acosh:
      return std::acosh(x);
    case ElementaryFunction::atanh:
      return std::atanh(x);
    case ElementaryFunction::sigmoid:
      return 1 / (1 + std::exp(-x));
    case ElementaryFunction::silu:
      return x == -HUGE_VALL ? -0.0L : x / (1 + std::exp(-x));
    case ElementaryFunction::softplus:
      return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x));
    case ElementaryFunction::erf:
      return std::erf(x);
    case ElementaryFunction::erfc:
      return std::erfc(x);
    case ElementaryFunction::gelu:
      return x == -HUGE_VALL ? -0.0L : x / 2 * std::erfc(-x / std::sqrt(2.0L));
  }
  return 0;
}

// Alternating, unlike the library's.
Big big_erf(const Big& x) {
  Big term = x, sum = x;
  for (int n = 1; n < 4000; ++n) {
    term = -term * x * x / n;
    const Big next = sum + term / (2 * n + 1);
    if (next == sum) break;
    sum = next;
  }
  return 2 * sum / sqrt(4 * atan(Big(1)));
}

Big big_value(ElementaryFunction function, const Big& x) {
  switch (function) {
    case ElementaryFunction::exp:
      return exp(x);
    case ElementaryFunction::exp2:
      return exp(x * log(Big(2)));
    case ElementaryFunction::expm1:
      return exp(x) - 1;
    case ElementaryFunction::log:
      return log(x);
    case ElementaryFunction::log2:
      return log(x) / log(Big(2));
    case ElementaryFunction::log10:
      return log(x) / log(Big(10));
    case ElementaryFunction::log1p:
      return log(1 + x);
    case ElementaryFunction::sqrt:
      return sqrt(x);
    case ElementaryFunction::rsqrt:
      return 1 / sqrt(x);
    case ElementaryFunction::sin:
      return sin(x);
    case ElementaryFunction::cos:
      return cos(x);
    case ElementaryFunction::tan:
      return sin(x) / cos(x);
    case ElementaryFunction::asin:
      return asin(x);
    case ElementaryFunction::acos:
      return acos(x);
    case ElementaryFunction::atan:
      return atan(x);
    case ElementaryFunction::sinh:
      return (exp(x) - exp(-x)) / 2;
    case ElementaryFunction::cosh:
      return (exp(x) + exp(-x)) / 2;
    case ElementaryFunction::tanh:
      return (exp(2 * x) - 1) / (exp(2 * x) + 1);
    case ElementaryFunction::asinh:
      return log(x + sqrt(x * x + 1));
    case ElementaryFunction::acosh:
      return log(x + sqrt(x * x - 1));
    case ElementaryFunction::atanh:
      return (log(1 + x) - log(1 - x)) / 2;
    case ElementaryFunction::sigmoid:
      return 1 / (1 + exp(-x));
    case ElementaryFunction::silu:
      return x / (1 + exp(-x));
    case ElementaryFunction::softplus:
      return log(1 + exp(x));
    case ElementaryFunction::erf:
      return big_erf(x);
    case ElementaryFunction::erfc:
      return 1 - big_erf(x);
    case ElementaryFunction::gelu:
      return x / 2 * (1 + big_erf(x / sqrt(Big(2))));
  }
  return 0;
}

bool is_in_domain(ElementaryFunction function, double x) {
  switch (function) {
    case ElementaryFunction::log:
    case ElementaryFunction::log2:
    case ElementaryFunction::log10:
    case ElementaryFunction::sqrt:
    case ElementaryFunction::rsqrt:
      return x > 0;
    case ElementaryFunction::log1p:
      return x > -1;
    case ElementaryFunction::asin:
    case ElementaryFunction::acos:
      return std::fabs(x) <= 1;
    case ElementaryFunction::acosh:
      return x >= 1;
    case ElementaryFunction::atanh:
      return std::fabs(x) < 1;
    default:
      return true;
  }
}

// What differs from a number of 60 bits by less than 2^-700 of it is taken for that: log2(8) comes as no integer. The least that
// an irrational result here differs by is cos(2^-133) - 1, 2^-267.
Rational rational_of(const Big& value) {
  int exponent = 0;
  const Big fraction = frexp(value, &exponent), few = ldexp(round(ldexp(fraction, 60)), -60);
  const bool is_exact = abs(fraction - few) < ldexp(Big(1), -700);
  return Rational(Integer(ldexp(is_exact ? few : fraction, 800))) * power_of_two(exponent - 800);
}

// All encodings, every `stride`th, to nearest: the C library's long double is off by some units of 2^-63 of the result.
void check_against_library(const FloatFormat& format, uint64_t stride) {
  const Neighbours numbers(format);
  for (const ElementaryFunctionName& row : elementary_functions()) {
    size_t undecided = 0;
    for (uint64_t encoding = 0; encoding < uint64_t{1} << format.storage_bits(); encoding += stride) {
      const double x = value_of(format, encoding);
      if (!std::isfinite(x) || x == 0 || !is_in_domain(row.function, x)) continue;
      const long double value = library_value(row.function, static_cast<long double>(x));
      const auto low = static_cast<double>(value * (1 - 0x1p-50L)), high = static_cast<double>(value * (1 + 0x1p-50L));
      const bool is_exact = static_cast<long double>(static_cast<float>(value)) == value;  // or so near that nearest is this
      // x / 2 (1 + x / 2 + ...) is a little more than x / 2, which may be in the middle of two numbers.
      const bool is_half =
          std::fabs(x) < 0x1p-60 && (row.function == ElementaryFunction::silu || row.function == ElementaryFunction::gelu);
      const double nearest = is_half ? std::max(low, high) : static_cast<double>(value);
      const uint64_t expected = numbers.rounded(is_exact ? nearest : low, {});
      if (!is_exact && expected != numbers.rounded(high, {})) {
        ++undecided;
        continue;
      }
      ASSERT_EQ(evaluate(row.function, decode(format, encoding), format), expected) << format.name << ' ' << row.name << ' ' << x;
    }
    EXPECT_LE(undecided, 1u) << row.name;
  }
}

TEST(Reference, AgreesWithTheCLibraryInF16) { check_against_library(binary16, 61); }
TEST(Reference, AgreesWithTheCLibraryInBf16) { check_against_library(bfloat16, 61); }
TEST(Reference, AgreesWithTheCLibraryInFp8) {
  check_against_library(e4m3, 1);
  check_against_library(e5m2, 1);
}
TEST(ReferenceSlow, AgreesWithTheCLibraryForAllNumbersOfF16AndBf16) {
  check_against_library(binary16, 1);
  check_against_library(bfloat16, 1);
}

// In every mode, where results lie as near to a number of the format as they can: 1 - 2^-k, x + x^3, 1 + x.
void check_against_boost(const FloatFormat& format, const std::vector<double>& arguments) {
  for (const ElementaryFunctionName& row : elementary_functions()) {
    for (const double x : arguments) {
      if (x == 0 || !is_in_domain(row.function, x) || value_of(format, round_to_encoding(format, x)) != x) continue;
      const Rational value = rational_of(big_value(row.function, Big(x)));
      if (value == 0) continue;  // log(1)
      for (const Rounding& rounding : deterministic_roundings())
        ASSERT_EQ(evaluate(row.function, decode(binary64, encoding_of(x)), format, rounding),
                  rounded_encoding(format, value, rounding))
            << format.name << ' ' << row.name << ' ' << x << ' ' << name_of(rounding.mode);
    }
  }
}

TEST(Reference, IsRoundedRightInEveryMode) {
  const Philox random(41, 1);
  std::vector<double> arguments{0x1p-24, 0x1p-14, 0x1p-133, 0x1p-126, 1, 2, 3,   10,   100,        1000,      10000,
                                0.5,     0.75,    1.5,      4,        8, 9, 9.5, 1024, 1 - 0x1p-8, 1 + 0x1p-7};
  for (uint64_t i = 0; i < 40; ++i) {
    const double value = random.normal(i) * std::ldexp(1.0, static_cast<int>(random.below(100 + i, 12)) - 8);
    arguments.push_back(round_to_format(binary16, value));
    arguments.push_back(round_to_format(bfloat16, value));
  }
  // With 800 bits 1 - erf(12) = 2^-212 still shows, and the alternating series keeps enough bits of it.
  std::erase_if(arguments, [](double x) { return std::fabs(x) > 12; });
  std::vector<double> both = arguments;
  for (const double x : arguments) both.push_back(-x);
  check_against_boost(binary16, both);
  check_against_boost(bfloat16, both);
  check_against_boost(binary32, {0x1.8p-20, 0.1f, 3.1415927f, -2.7182817f, 1.0000001f, 11.5f});
  check_against_boost(binary64, {0x1p-40, 0.1, 3.141592653589793, -2.718281828459045, 1.0000000000000002, 11.5});
}

// Far out: where results saturate, overflow, vanish, or depend on hundreds of bits of pi.
TEST(Reference, HoldsFarOut) {
  const auto at = [](ElementaryFunction function, double x, RoundingMode mode = RoundingMode::nearest_even) {
    return evaluate(function, decode(binary64, encoding_of(x)), bfloat16, {.mode = mode});
  };
  constexpr uint64_t kOne = 0x3F80, kBelowOne = 0x3F7F, kInf = 0x7F80, kLargest = 0x7F7F, kMinusOne = 0xBF80,
                     kAboveMinusOne = 0xBF7F;
  for (const double x : {100.0, 3e38}) {
    for (const ElementaryFunction function : {ElementaryFunction::tanh, ElementaryFunction::erf, ElementaryFunction::sigmoid}) {
      EXPECT_EQ(at(function, x), kOne);
      EXPECT_EQ(at(function, x, RoundingMode::toward_zero), kBelowOne);
      EXPECT_EQ(at(function, x, RoundingMode::up), kOne);
    }
    EXPECT_EQ(at(ElementaryFunction::tanh, -x, RoundingMode::up), kAboveMinusOne);
    EXPECT_EQ(at(ElementaryFunction::expm1, -x), kMinusOne);
    EXPECT_EQ(at(ElementaryFunction::expm1, -x, RoundingMode::up), kAboveMinusOne);
    EXPECT_EQ(at(ElementaryFunction::exp, x), kInf);
    EXPECT_EQ(at(ElementaryFunction::exp, x, RoundingMode::toward_zero), kLargest);
    EXPECT_EQ(at(ElementaryFunction::exp, -x - 10), 0u);
    EXPECT_EQ(at(ElementaryFunction::exp, -x - 10, RoundingMode::up), 1u);
    EXPECT_EQ(at(ElementaryFunction::sigmoid, -x - 10, RoundingMode::up), 1u);
    EXPECT_EQ(at(ElementaryFunction::sinh, -x), 0xFF80u);
    EXPECT_EQ(at(ElementaryFunction::cosh, -x, RoundingMode::down), kLargest);
  }
  for (const double x : {100.0, 1e30}) {
    const uint64_t rounded = round_to_bf16(x);
    const double number = value_of(bfloat16, rounded);
    EXPECT_EQ(at(ElementaryFunction::erfc, x), 0u);
    EXPECT_EQ(at(ElementaryFunction::erfc, x, RoundingMode::up), 1u);
    EXPECT_EQ(at(ElementaryFunction::erfc, -x), 0x4000u);
    EXPECT_EQ(at(ElementaryFunction::erfc, -x, RoundingMode::down), 0x3FFFu);
    for (const ElementaryFunction function : {ElementaryFunction::silu, ElementaryFunction::gelu}) {
      EXPECT_EQ(at(function, number), rounded);
      EXPECT_EQ(at(function, number, RoundingMode::up), rounded);
      EXPECT_EQ(at(function, number, RoundingMode::down), rounded - 1);
      EXPECT_EQ(at(function, -number - 10), 0x8000u);
      EXPECT_EQ(at(function, -number - 10, RoundingMode::down), 0x8001u);
    }
    EXPECT_EQ(at(ElementaryFunction::softplus, number), rounded);
    EXPECT_EQ(at(ElementaryFunction::softplus, number, RoundingMode::up), rounded + 1);
    EXPECT_EQ(at(ElementaryFunction::softplus, number, RoundingMode::down), rounded);
    EXPECT_EQ(at(ElementaryFunction::softplus, -number, RoundingMode::up), 1u);
  }
  // atan ends at pi / 2, between 0x3FC9 and 0x3FCA; tan does not: pi / 2 as binary64 has it is 6.1e-17 below.
  for (const double x : {1e30, HUGE_VAL}) {
    EXPECT_EQ(at(ElementaryFunction::atan, x), 0x3FC9u);
    EXPECT_EQ(at(ElementaryFunction::atan, x, RoundingMode::up), 0x3FCAu);
    EXPECT_EQ(at(ElementaryFunction::atan, -x, RoundingMode::down), 0xBFCAu);
  }
  EXPECT_EQ(at(ElementaryFunction::tan, 0x1.921fb54442d18p+0), round_to_bf16(std::tan(0x1.921fb54442d18p+0)));
  EXPECT_EQ(at(ElementaryFunction::asin, -1), round_to_bf16(-std::acos(0.0)));
  EXPECT_EQ(at(ElementaryFunction::acos, -1), round_to_bf16(std::acos(-1.0)));
  EXPECT_EQ(at(ElementaryFunction::acos, -0.0), round_to_bf16(std::acos(0.0)));
  EXPECT_EQ(at(ElementaryFunction::softplus, 0), round_to_bf16(std::log(2.0)));
  // sin(2^1023) and cos(2^1023), as the C library's reduction has them.
  const double large = 0x1p1023;
  EXPECT_EQ(at(ElementaryFunction::sin, large), round_to_bf16(std::sin(large)));
  EXPECT_EQ(at(ElementaryFunction::cos, large), round_to_bf16(std::cos(large)));
  // 1 + 2^-1074.
  const double tiny = std::numeric_limits<double>::denorm_min();
  EXPECT_EQ(at(ElementaryFunction::exp, tiny, RoundingMode::up), kOne + 1);
  EXPECT_EQ(at(ElementaryFunction::cos, tiny, RoundingMode::down), kBelowOne);
  const auto log1p_of_tiny = [&](RoundingMode mode) {
    return evaluate(ElementaryFunction::log1p, decode(binary64, 2), binary64, {.mode = mode});
  };
  EXPECT_EQ(log1p_of_tiny(RoundingMode::nearest_even), 2u);
  EXPECT_EQ(log1p_of_tiny(RoundingMode::down), 1u);
}

// Of the least number: what is a little more than it, a little less, and a little more than half of it.
TEST(Reference, HoldsAtTheLeastNumberOfFp64) {
  const double tiny = std::numeric_limits<double>::denorm_min();
  const auto at = [&](ElementaryFunction function, double x, RoundingMode mode) {
    return evaluate(function, decode(binary64, encoding_of(x)), binary64, {.mode = mode});
  };
  constexpr uint64_t kMinus = uint64_t{1} << 63;
  for (const ElementaryFunction function :
       {ElementaryFunction::sin, ElementaryFunction::atan, ElementaryFunction::tanh, ElementaryFunction::asinh,
        ElementaryFunction::tan, ElementaryFunction::asin, ElementaryFunction::sinh, ElementaryFunction::atanh}) {
    const bool is_more = function == ElementaryFunction::tan || function == ElementaryFunction::asin ||
                         function == ElementaryFunction::sinh || function == ElementaryFunction::atanh;
    EXPECT_EQ(at(function, tiny, RoundingMode::nearest_even), 1u);
    EXPECT_EQ(at(function, tiny, RoundingMode::up), is_more ? 2u : 1u);
    EXPECT_EQ(at(function, tiny, RoundingMode::down), is_more ? 1u : 0u);
    EXPECT_EQ(at(function, -tiny, RoundingMode::nearest_even), kMinus | 1);
    EXPECT_EQ(at(function, -tiny, RoundingMode::down), kMinus | (is_more ? 2u : 1u));
  }
  for (const ElementaryFunction function : {ElementaryFunction::silu, ElementaryFunction::gelu}) {
    EXPECT_EQ(at(function, tiny, RoundingMode::nearest_even), 1u);
    EXPECT_EQ(at(function, -tiny, RoundingMode::nearest_even), kMinus);
    EXPECT_EQ(at(function, -tiny, RoundingMode::nearest_away), kMinus);
    EXPECT_EQ(at(function, -tiny, RoundingMode::down), kMinus | 1);
  }
  EXPECT_EQ(value_of(binary64, at(ElementaryFunction::erfc, tiny, RoundingMode::down)), 1 - 0x1p-53);
  EXPECT_EQ(value_of(binary64, at(ElementaryFunction::acosh, 1 + 0x1p-52, RoundingMode::down)), 0x1.6a09e667f3bccp-26);
}

// To nearest, against the C library's long double, which is off by some units of 2^-63 of the result.
TEST(Reference, HoldsAtTheEndsOfFp64) {
  constexpr double kMost = std::numeric_limits<double>::max();
  using Function = ElementaryFunction;
  for (const auto& [function, x] : {std::pair(Function::asinh, kMost),
                                    {Function::asinh, -kMost},
                                    {Function::acosh, kMost},
                                    {Function::atan, kMost},
                                    {Function::atan, 1 - 0x1p-53},
                                    {Function::atan, 1 + 0x1p-52},
                                    {Function::asin, 1 - 0x1p-53},
                                    {Function::acos, 1 - 0x1p-53},
                                    {Function::acos, -1 + 0x1p-53},
                                    {Function::atanh, 1 - 0x1p-53},
                                    {Function::erfc, 26.5},
                                    {Function::erfc, 27.2},
                                    {Function::erfc, -5.5},
                                    {Function::softplus, 64.0},
                                    {Function::softplus, 65.0},
                                    {Function::softplus, -745.0},
                                    {Function::softplus, -36.7},
                                    {Function::silu, 64.5},
                                    {Function::silu, -700.5},
                                    {Function::gelu, 8.25},
                                    {Function::tan, 0x1p1023},
                                    {Function::tan, 1e22}}) {
    const long double value = library_value(function, static_cast<long double>(x));
    const double result = value_of(binary64, evaluate(function, decode(binary64, encoding_of(x)), binary64));
    EXPECT_GE(result, static_cast<double>(value - std::fabs(value) * 0x1p-59L)) << x;
    EXPECT_LE(result, static_cast<double>(value + std::fabs(value) * 0x1p-59L)) << x;
  }
}

// Of 256 random numbers as many round up as the part of a step says that lies below the result.
TEST(Reference, RoundsStochastically) {
  for (const ElementaryFunction function :
       {ElementaryFunction::exp, ElementaryFunction::erfc, ElementaryFunction::gelu, ElementaryFunction::atan}) {
    const long double value = library_value(function, 0.7L);
    const Number x = decode(binary64, encoding_of(0.7));
    const uint64_t low = evaluate(function, x, bfloat16, {.mode = RoundingMode::toward_zero});
    const long double below = value_of(bfloat16, low), step = value_of(bfloat16, low + 1) - below;
    int up = 0;
    for (uint32_t random = 0; random < 256; ++random) {
      const uint64_t rounded = evaluate(function, x, bfloat16, {.mode = RoundingMode::stochastic, .random_bits = 8}, random << 24);
      EXPECT_TRUE(rounded == low || rounded == low + 1);
      up += rounded == low + 1;
    }
    EXPECT_EQ(up, static_cast<int>(std::floor((value - below) / step * 256)));
  }
}

TEST(Reference, ExactResultsAreExactInEveryMode) {
  for (const Rounding& rounding : deterministic_roundings()) {
    const auto at = [&](ElementaryFunction function, double x) {
      return value_of(binary32, evaluate(function, decode(binary64, encoding_of(x)), binary32, rounding));
    };
    for (int k = -149; k < 128; ++k) {
      EXPECT_EQ(at(ElementaryFunction::exp2, k), std::ldexp(1.0, k));
      EXPECT_EQ(at(ElementaryFunction::log2, std::ldexp(1.0, k)), k);
      if (k % 2 == 0 && k > -140) {
        EXPECT_EQ(at(ElementaryFunction::rsqrt, std::ldexp(1.0, k)), std::ldexp(1.0, -k / 2));
      }
    }
    for (int k = 0; k <= 22; ++k) EXPECT_EQ(at(ElementaryFunction::log10, std::pow(10.0, k)), k);
    for (int k = 1; k < 500; ++k) EXPECT_EQ(at(ElementaryFunction::sqrt, k * k), k);
    for (const ElementaryFunction function : {ElementaryFunction::exp, ElementaryFunction::cos, ElementaryFunction::cosh})
      EXPECT_EQ(at(function, -0.0), 1);
    for (const ElementaryFunction function :
         {ElementaryFunction::expm1, ElementaryFunction::log1p, ElementaryFunction::sin, ElementaryFunction::sinh,
          ElementaryFunction::tanh, ElementaryFunction::erf, ElementaryFunction::sqrt, ElementaryFunction::tan,
          ElementaryFunction::asin, ElementaryFunction::atan, ElementaryFunction::asinh, ElementaryFunction::atanh,
          ElementaryFunction::silu, ElementaryFunction::gelu}) {
      EXPECT_TRUE(at(function, -0.0) == 0 && std::signbit(at(function, -0.0)));
      EXPECT_TRUE(at(function, 0.0) == 0 && !std::signbit(at(function, 0.0)));
    }
    EXPECT_EQ(at(ElementaryFunction::sigmoid, 0), 0.5);
    for (const ElementaryFunction function : {ElementaryFunction::log, ElementaryFunction::acos, ElementaryFunction::acosh})
      EXPECT_TRUE(at(function, 1) == 0 && !std::signbit(at(function, 1)));
    EXPECT_EQ(at(ElementaryFunction::erfc, 0), 1);
  }
}

// What the C standard's Annex F says, as the C library has it.
TEST(Reference, SpecialValuesAreThoseOfTheStandard) {
  for (const ElementaryFunctionName& row : elementary_functions()) {
    for (const double x : {HUGE_VAL, -HUGE_VAL, 0.0, -0.0, -1.0, -2.0}) {
      const uint64_t encoding = evaluate(row.function, decode(binary64, encoding_of(x)), binary64);
      const long double expected = library_value(row.function, static_cast<long double>(x));
      if (std::isnan(expected)) {
        EXPECT_EQ(encoding, binary64.nan_encoding()) << row.name << ' ' << x;
      } else if (std::isinf(expected) || expected == 0) {
        EXPECT_EQ(encoding, encoding_of(static_cast<double>(expected))) << row.name << ' ' << x;
      }
    }
    EXPECT_EQ(evaluate(row.function, decode(binary16, 0xFE05), binary16), 0xFE05u) << row.name;
  }
}

TEST(ReferencePow, AgreesWithTheCLibrary) {
  const Neighbours numbers(binary16);
  const Philox random(42, 2);
  size_t undecided = 0, compared = 0;
  for (uint64_t i = 0; i < 6000; ++i) {
    const uint64_t a = random.bits(2 * i) & 0xFFFF, b = 0x2C00 + random.below(2 * i + 1, 0x2800) + ((i & 1) << 15);
    const double x = value_of(binary16, a),
                 y = value_of(binary16, i % 3 == 0 ? round_to_f16(std::nearbyint(value_of(binary16, b))) : b);
    const long double value = std::pow(static_cast<long double>(x), static_cast<long double>(y));
    const uint64_t result = evaluate_pow(decode(binary64, encoding_of(x)), decode(binary64, encoding_of(y)), binary16);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(value_of(binary16, result))) << x << ' ' << y;
      continue;
    }
    const auto low = static_cast<double>(value * (1 - 0x1p-50L)), high = static_cast<double>(value * (1 + 0x1p-50L));
    const uint64_t expected = numbers.rounded(low, {});
    if (expected != numbers.rounded(high, {})) {
      ++undecided;  // a power that is exactly in the middle, perhaps: the next test
      continue;
    }
    ++compared;
    ASSERT_EQ(result, expected) << x << ' ' << y;
  }
  EXPECT_LE(undecided, 20u);
  EXPECT_GT(compared, 3000u);
}

TEST(ReferencePow, OfRationalResultsIsExactInEveryMode) {
  for (const Rounding& rounding : deterministic_roundings()) {
    const auto pow_of = [&](double x, double y) {
      return evaluate_pow(decode(binary64, encoding_of(x)), decode(binary64, encoding_of(y)), binary16, rounding);
    };
    // Integers to integers: representable, between two numbers, exactly in the middle of them.
    for (int base = 1; base < 70; ++base) {
      Rational power = 1;
      for (int exponent = 0; exponent <= 12; ++exponent, power *= base) {
        ASSERT_EQ(pow_of(base, exponent), rounded_encoding(binary16, power, rounding)) << base << ' ' << exponent;
        const Rational negative = exponent % 2 == 0 ? power : Rational(-power);
        ASSERT_EQ(pow_of(-base, exponent), rounded_encoding(binary16, negative, rounding)) << base << ' ' << exponent;
        ASSERT_EQ(pow_of(base, -exponent), rounded_encoding(binary16, 1 / power, rounding)) << base << ' ' << -exponent;
        if (power < Rational(Integer(1) << 53)) {
          const auto square = static_cast<double>(Integer(numerator(power)));
          ASSERT_EQ(pow_of(square * square, 0.5), rounded_encoding(binary16, power, rounding)) << square;
        }
      }
    }
    EXPECT_EQ(value_of(binary16, pow_of(0x1p-8, -1.25)), 1024);
    EXPECT_EQ(value_of(binary16, pow_of(81, 0.75)), 27);
  }
}

TEST(ReferencePow, SpecialValuesAreThoseOfTheCLibrary) {
  const double values[] = {0.0, -0.0, 1, -1, 0.5, -0.5, 2, -2, 3, -3, HUGE_VAL, -HUGE_VAL, 1e300, -1e300, 0x1p-1074, NAN};
  for (const double x : values) {
    for (const double y : values) {
      const double expected = std::pow(x, y);
      const uint64_t result = evaluate_pow(decode(binary64, encoding_of(x)), decode(binary64, encoding_of(y)), binary64);
      if (std::isnan(expected)) {
        EXPECT_TRUE(std::isnan(value_of(binary64, result))) << x << ' ' << y;
      } else {
        EXPECT_EQ(result, encoding_of(expected)) << x << ' ' << y;  // powers of 2, 3 and 1/2, which the library has exactly
      }
    }
  }
}

TEST(Reference, FunctionsAreFoundByTheirNames) {
  for (const ElementaryFunctionName& row : elementary_functions()) EXPECT_EQ(parse_elementary_function(row.name), row.function);
  try {
    parse_elementary_function("sigmiod");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_NE(std::string(error.what()).find("did you mean 'sigmoid'?"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace ulpscope
