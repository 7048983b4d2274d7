// Texts of numbers against Boost's rational arithmetic and the C library's conversions.
#include "ulpscope/emulation/number_text.h"

#include <gmock/gmock.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/emulation/rational_rounding.h"
#include "tests/support/usage_error.h"
#include "ulpscope/base/error.h"
#include "ulpscope/base/philox.h"
#include "ulpscope/emulation/rounding.h"

namespace ulpscope {
namespace {

Rational power_of_ten(int exponent) {
  const Rational power(boost::multiprecision::pow(Integer(10), static_cast<unsigned>(std::abs(exponent))));
  return exponent < 0 ? 1 / power : power;
}

Rational exact_text(const Number& number) { return Rational(Integer(number.significand)) * power_of_two(number.exponent); }

// Of a decimal text without a sign.
Rational exact_text(const std::string& text) {
  const size_t e = text.find('e');
  std::string digits = text.substr(0, e);
  int exponent = e == std::string::npos ? 0 : std::stoi(text.substr(e + 1));
  if (const size_t point = digits.find('.'); point != std::string::npos) {
    exponent -= static_cast<int>(digits.size() - point - 1);
    digits.erase(point, 1);
  }
  digits.erase(0, std::min(digits.find_first_not_of('0'), digits.size() - 1));
  return Rational(Integer(digits)) * power_of_ten(exponent);
}

TEST(NumberText, DecimalsLieWhereTheNumberSays) {
  const Philox random(1, 1);
  std::vector<std::string> texts{"0.1",
                                 "1e-7",
                                 "65519.99999999999999999999999999",
                                 "65520",
                                 "2.5e-8",
                                 "5e-324",
                                 "4.9e-324",
                                 "2.4e-324",
                                 "1e308",
                                 "1.7976931348623157e308",
                                 "3",
                                 ".5",
                                 "7.",
                                 "0001.50",
                                 "1e+2",
                                 "12345678901234567890123",
                                 "9007199254740993",
                                 "2.98023223876953125e-8"};  // 2^-25, a tie of FP16
  for (uint64_t i = 0; i < 2000; ++i)
    texts.push_back(std::to_string(random.bits(3 * i)) + "." + std::to_string(random.bits(3 * i + 1)) + "e" +
                    std::to_string(static_cast<int>(random.below(3 * i + 2, 560)) - 290));
  for (const std::string& text : texts) {
    const Number number = parse_number(text);
    const Rational value = exact_text(text);
    ASSERT_EQ(number.kind, Number::Kind::finite) << text;
    const Rational low = exact_text(number), step = power_of_two(number.exponent);
    ASSERT_TRUE(number.sticky ? low < value && value < low + step : low == value) << text;
    ASSERT_EQ(value_of(binary64, encode(binary64, number)), std::strtod(text.c_str(), nullptr)) << text;
    ASSERT_TRUE(parse_number("-" + text).negative);
  }
}

// Through FP64 these would become a tie, and then go to even.
TEST(NumberText, AreRoundedOnce) {
  EXPECT_EQ(encode(binary16, parse_number("1.00048828125000000000000000000001")), 0x3C01u);  // above 1 + 2^-11
  EXPECT_EQ(encode(binary16, parse_number("1.00146484374999999999999999999999")), 0x3C01u);  // below 1 + 3 * 2^-11
  EXPECT_EQ(encode(binary16, parse_number("0x1.00200000000000000000001p0")), 0x3C01u);
  EXPECT_EQ(encode(binary16, parse_number("65519.999999999999999999999")), 0x7BFFu);
  EXPECT_EQ(encode(binary16, parse_number("65520")), 0x7C00u);
}

TEST(NumberText, BeyondFp64IsBeyondEveryFormat) {
  for (const char* text : {"1e400", "1e999999999999999999999", "0x1p5000", "2e308"}) {
    EXPECT_EQ(encode(binary64, parse_number(text)), binary64.infinity_encoding()) << text;
    EXPECT_EQ(encode(binary16, parse_number(text), {.mode = RoundingMode::toward_zero}), 0x7BFFu) << text;
  }
  for (const char* text : {"1e-400", "1e-999999999999999999999", "0x1p-5000", "2e-324"}) {
    EXPECT_EQ(encode(binary64, parse_number(text)), 0u) << text;
    EXPECT_EQ(encode(binary16, parse_number(text), {.mode = RoundingMode::up}), 1u) << text;
  }
}

// Beyond FP64 as well, they lie where the number says.
TEST(NumberText, NumbersBeyondFp64AreExact) {
  for (const char* text : {"1e400", "123456789e390", "1e-400", "4.5e-1999"}) {
    const Number number = parse_number(text);
    const Rational low = exact_text(number);
    EXPECT_TRUE(number.sticky && low < exact_text(text) && exact_text(text) < low + power_of_two(number.exponent)) << text;
  }
  const Number number = parse_number("0x1.8p-5000");
  EXPECT_FALSE(number.sticky);
  EXPECT_EQ(exact_text(number), 3 * power_of_two(-5001));
  // A long row of zeros moves the point as a power does.
  EXPECT_EQ(encode(binary16, parse_number("0." + std::string(9999, '0') + "15e10000")), encode(binary16, parse_number("1.5")));
  EXPECT_EQ(encode(binary16, parse_number("0x0." + std::string(9999, '0') + "18p39996")),
            encode(binary16, parse_number("0x0.18p0")));
}

// Whether no FP64 number is nearer.
bool is_nearest(double value, const Rational& to) {
  const auto distance = [&](double candidate) -> Rational { return abs(exact_value(binary64, encoding_of(candidate)) - to); };
  return distance(value) <= distance(std::nextafter(value, HUGE_VAL)) &&
         distance(value) <= distance(std::nextafter(value, -HUGE_VAL));
}

TEST(RoundingError, IsThatOfTheText) {
  const Philox random(3, 3);
  const FloatFormat* const formats[] = {&binary16, &bfloat16, &binary32, &binary64, &e4m3};
  for (uint64_t i = 0; i < 400; ++i) {
    const std::string text = std::to_string(random.bits(3 * i)) + "." + std::to_string(random.bits(3 * i + 1)) + "e" +
                             std::to_string(static_cast<int>(random.below(3 * i + 2, 40)) - 30);
    const Rational number = exact_text(text);
    for (const FloatFormat* format : formats) {
      const uint64_t encoding = encode(*format, parse_number(text), {.overflow = Overflow::saturate});
      const double value = value_of(*format, encoding);
      const Rational error = exact_value(*format, encoding) - number;
      const RoundingError found = rounding_error(text, *format, encoding);
      const int exponent =
          value == 0 ? format->smallest_normal_exponent() : std::max(std::ilogb(value), format->smallest_normal_exponent());
      ASSERT_TRUE(found.ulps && is_nearest(*found.ulps, error / power_of_two(exponent - format->fraction_bits)))
          << text << format->name;
      ASSERT_TRUE(found.relative && is_nearest(*found.relative, error / number)) << text << " in " << format->name;
      const uint64_t negative = encode(*format, parse_number("-" + text), {.overflow = Overflow::saturate});
      const RoundingError mirrored = rounding_error("-" + text, *format, negative);
      ASSERT_EQ(mirrored.ulps, -*found.ulps);
      ASSERT_EQ(mirrored.relative, found.relative);
    }
  }
}

TEST(RoundingError, SeesWhatFp64DoesNot) {
  const auto error = [](const char* text, const FloatFormat& format, const Rounding& rounding = {}) {
    return rounding_error(text, format, encode(format, parse_number(text), rounding));
  };
  EXPECT_EQ(error("1.00000000000000000001", binary32).relative, -1e-20);
  EXPECT_EQ(error("0.1", binary64).ulps, 0.4);  // 0.1 * 2^56 = 7205759403792793.6
  EXPECT_EQ(error("0.1", binary64).relative, 0.4 / 7205759403792793.6);
  EXPECT_EQ(error("0.1", binary32).ulps, 0.2);  // 0.1 * 2^27 = 13421772.8
  EXPECT_EQ(error("0x1.8000000000000000001p0", binary16).ulps, -0x1p-66);
  EXPECT_EQ(error("1.5", binary16).ulps, 0);
  EXPECT_EQ(error("1.5", binary16).relative, 0);
  EXPECT_EQ(error("0", binary16).ulps, 0);
  EXPECT_EQ(error("0", binary16).relative, std::nullopt);
  EXPECT_EQ(error("1e400", binary16).ulps, std::nullopt) << "Inf";
  EXPECT_EQ(error("1e400", binary16, {.overflow = Overflow::saturate}).ulps, std::nullopt);
  EXPECT_EQ(error("1e400", binary16, {.overflow = Overflow::saturate}).relative, -1);
  EXPECT_EQ(error("1e300", binary16, {.overflow = Overflow::saturate}).ulps, -1e300 / 32);
  EXPECT_EQ(error("1e-400", binary16).relative, -1);
  EXPECT_EQ(error("1e-400", binary16).ulps, std::nullopt);
  EXPECT_EQ(error("1e-400", binary16, {.mode = RoundingMode::up}).ulps, 1);
  EXPECT_EQ(error("1e-999999999999", binary64, {.mode = RoundingMode::up}).relative, std::nullopt);
  EXPECT_EQ(error("nan", binary16).ulps, std::nullopt);
  EXPECT_THROW(error("0x3C00", binary16), Error);
}

TEST(NumberText, ShortFormsSayThatTheyAre) {
  const auto of = [](double value) { return decode(binary64, encoding_of(value)); };
  EXPECT_EQ(leading_digits(of(0x1p-126), binary32), "1.17549435082...e-38");
  EXPECT_EQ(leading_digits(of(-0x1p-126), bfloat16), "-1.17549435082...e-38");
  EXPECT_EQ(leading_digits(of(0.1), binary64), "0.10000000000000000...");
  EXPECT_EQ(leading_digits(of(123456.1), binary32), "123456.100000...");
  EXPECT_EQ(leading_digits(of(0x1p-24), binary16), "5.9604644775390625e-08") << "it fits";
  EXPECT_EQ(leading_digits(of(1e20), binary64), "100000000000000000000");
  EXPECT_EQ(leading_digits(of(HUGE_VAL), binary64), "inf");
  EXPECT_EQ(power_of_two_text(of(0x1p-24)), "2^-24");
  EXPECT_EQ(power_of_two_text(decode(bfloat16, bfloat16.largest_encoding())), "(2 - 2^-7) * 2^127");
  EXPECT_EQ(power_of_two_text(of(-0.625)), "-5 * 2^-3");
  EXPECT_EQ(power_of_two_text(of(-6)), "-(2 - 2^-1) * 2^2");
  EXPECT_EQ(power_of_two_text(of(0)), "0");
}

TEST(NumberText, SpecialValuesAndHexadecimals) {
  EXPECT_EQ(parse_number("-inf").kind, Number::Kind::infinite);
  EXPECT_TRUE(parse_number("-Infinity").negative);
  EXPECT_EQ(parse_number("NaN").kind, Number::Kind::nan);
  EXPECT_EQ(parse_number("0e5").kind, Number::Kind::zero);
  EXPECT_TRUE(parse_number("-0").negative);
  for (const char* text : {"0x1.8p-3", "0xA.Bp+4", "0x.001p0", "0x1p-1074", "0X1.FFFFFFFFFFFFFp1023"})
    EXPECT_EQ(value_of(binary64, encode(binary64, parse_number(text))), std::strtod(text, nullptr)) << text;
  for (const char* text :
       {"", "-", "e5", "1e", "1e+", "1.2.3", "0x", "0x1.8", "0x1p", "0xp3", "one", "1,5", "--1", "1e5x", "1 ", "1e+-5", "0x1p+-3"})
    EXPECT_THROW(parse_number(text), Error) << text;
  EXPECT_THAT(usage_error_of([] { parse_number("0x3C00"); }), testing::EndsWith("such as 0.1, -6e-8, 0x1.8p-3, inf or nan"));
}

TEST(NumberText, ExactDecimalsAreExact) {
  const Philox random(2, 2);
  for (uint64_t i = 0; i < 3000; ++i) {
    const uint64_t bits = uint64_t{random.bits(2 * i)} << 32 | random.bits(2 * i + 1);
    const Number number = decode(binary64, bits & ~binary64.sign_bit());
    if (number.kind != Number::Kind::finite) continue;
    ASSERT_EQ(exact_text(exact_decimal(number)), exact_text(number)) << hexadecimal(number);
  }
  const auto text = [](double value) { return exact_decimal(decode(binary64, encoding_of(value))); };
  EXPECT_EQ(text(0x1p-24), "5.9604644775390625e-08");
  EXPECT_EQ(text(-65504), "-65504");
  EXPECT_EQ(text(0x1p60), "1152921504606846976");
  EXPECT_EQ(text(0.0999755859375), "0.0999755859375");
  EXPECT_EQ(text(-0.0), "-0");
  EXPECT_EQ(text(-HUGE_VAL), "-inf");
  EXPECT_EQ(hexadecimal(decode(binary16, 0x2E66)), "0x1.998p-4");
}

}  // namespace
}  // namespace ulpscope
