// Exact sums and dot products, against exact rational arithmetic, on every SIMD target.
#include "ulpscope/emulation/exact_sum.h"

#include <gtest/gtest.h>
#include <xmmintrin.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/emulation/rational_rounding.h"
#include "tests/support/simd_targets.h"
#include "ulpscope/base/philox.h"
#include "ulpscope/emulation/summation.h"

namespace ulpscope {
namespace {

constexpr Summation exact_into(const FloatFormat& format, RoundingMode mode = RoundingMode::nearest_even) {
  return {.order = SumOrder::exact, .accumulator = &format, .rounding = {.mode = mode}};
}

// Finite encodings. `spread`: how many binades their exponents span, at most.
std::vector<uint64_t> random_encodings(const FloatFormat& format, size_t count, uint64_t stream, uint32_t spread) {
  const Philox random(21, stream);
  std::vector<uint64_t> result(count);
  const uint32_t fields = static_cast<uint32_t>(format.largest_encoding() >> format.fraction_bits) + 1;
  const uint32_t span = std::min(spread, fields), first = (fields - span) / 2;
  for (size_t i = 0; i < count; ++i) {
    const uint64_t field = first + random.below(4 * i, span);
    const uint64_t fraction = (uint64_t{random.bits(4 * i + 1)} << 32 | random.bits(4 * i + 2)) >> (64 - format.fraction_bits);
    const uint64_t magnitude = std::min(field << format.fraction_bits | fraction, format.largest_encoding());
    result[i] = magnitude | ((random.bits(4 * i + 3) & 1) != 0 ? format.sign_bit() : 0);
  }
  return result;
}

template <typename T>
std::vector<T> narrowed(const std::vector<uint64_t>& in) {
  return std::vector<T>(in.begin(), in.end());
}

Rational exact_dot(const FloatFormat& format, const std::vector<uint64_t>& a, const std::vector<uint64_t>& b) {
  Integer total = 0;  // in units of the smallest product
  const Rational unit = power_of_two(format.smallest_exponent());
  for (size_t i = 0; i < a.size(); ++i)
    total += numerator(Rational(exact_value(format, a[i]) / unit)) * numerator(Rational(exact_value(format, b[i]) / unit));
  return Rational(total) * unit * unit;
}

template <typename T>
void check_dot(const FloatFormat& format, size_t count, uint32_t spread, bool cancels) {
  std::vector<uint64_t> a = random_encodings(format, count, 2 * count + spread, spread);
  std::vector<uint64_t> b = random_encodings(format, count, 2 * count + spread + 1, spread);
  if (cancels) {  // what is left is the last pair, whatever came before
    const size_t half = (count - 1) / 2;
    for (size_t i = 0; i < half; ++i) {
      a[half + i] = a[half - 1 - i] ^ format.sign_bit();
      b[half + i] = b[half - 1 - i];
    }
    a[count - 1] = 1;
    b[count - 1] = 3;
    if (count % 2 == 0) a[count - 2] = b[count - 2] = 1;
  }
  const Rational expected = exact_dot(format, a, b);
  const std::vector<T> left = narrowed<T>(a), right = narrowed<T>(b);
  const EncodedArray x(format, std::span<const T>(left)), y(format, std::span<const T>(right));
  for (const FloatFormat* to : {&binary64, &binary32, &binary16, &format}) {
    for (const Rounding& rounding : deterministic_roundings()) {
      ASSERT_EQ(dot(x, y, exact_into(*to, rounding.mode)), rounded_encoding(*to, expected, rounding))
          << format.name << ' ' << count << ' ' << spread << " to " << to->name << ' ' << name_of(rounding.mode);
    }
  }
}

template <typename T>
void check_dots(const FloatFormat& format) {
  for (const uint32_t spread : {3u, 30u, 2000u})
    for (const size_t count : {1u, 2u, 3u, 15u, 17u, 100u, 1023u, 1024u, 1025u, 2500u})
      for (const bool cancels : {false, true}) check_dot<T>(format, count, spread, cancels && count > 4);
}

TEST(ExactDot, OfFp16IsRoundedRight) {
  on_every_target([](const std::string& target) {
    SCOPED_TRACE(target);
    check_dots<uint16_t>(binary16);
  });
}
TEST(ExactDot, OfBf16IsRoundedRight) {
  on_every_target([](const std::string& target) {
    SCOPED_TRACE(target);
    check_dots<uint16_t>(bfloat16);
  });
}
TEST(ExactDot, OfFp32IsRoundedRight) {
  on_every_target([](const std::string& target) {
    SCOPED_TRACE(target);
    check_dots<uint32_t>(binary32);
  });
}
TEST(ExactDot, OfFp64IsRoundedRight) { check_dots<uint64_t>(binary64); }
TEST(ExactDot, OfNarrowFormatsIsRoundedRight) {
  check_dots<uint8_t>(e4m3);
  check_dots<uint8_t>(e5m2);
  check_dots<uint32_t>(tensor_float32);
  check_dots<uint16_t>(parse_format("e6m7"));
}

TEST(ExactDot, OfDifferentFormatsIsRoundedRight) {
  const std::vector<uint64_t> a = random_encodings(e4m3, 300, 1, 20), b = random_encodings(binary64, 300, 2, 200);
  const std::vector<uint8_t> left = narrowed<uint8_t>(a);
  Rational expected = 0;
  for (size_t i = 0; i < a.size(); ++i) expected += exact_value(e4m3, a[i]) * exact_value(binary64, b[i]);
  EXPECT_EQ(dot(EncodedArray(e4m3, std::span<const uint8_t>(left)), EncodedArray(binary64, std::span<const uint64_t>(b)),
                exact_into(binary32)),
            rounded_encoding(binary32, expected, {}));
}

TEST(ExactSum, OfEachFormatIsRoundedRight) {
  on_every_target([](const std::string& target) {
    SCOPED_TRACE(target);
    for (const FloatFormat* format : {&binary16, &bfloat16, &binary32, &binary64, &e5m2, &e4m3}) {
      for (const size_t count : {1u, 40u, 1500u}) {
        const std::vector<uint64_t> terms = random_encodings(*format, count, count, 2000);
        Rational expected = 0;
        for (const uint64_t term : terms) expected += exact_value(*format, term);
        for (const Rounding& rounding : deterministic_roundings())
          ASSERT_EQ(sum(EncodedArray(*format, std::span<const uint64_t>(terms)), exact_into(*format, rounding.mode)),
                    rounded_encoding(*format, expected, rounding))
              << format->name << ' ' << count << ' ' << name_of(rounding.mode);
      }
    }
  });
}

// 2^-149 and 2^127 in one block, in each order, with their negatives: only the smallest remains.
TEST(ExactSum, LosesNothingBetweenTheEndsOfFp32) {
  std::vector<float> terms;
  for (int exponent = -149; exponent < 128; ++exponent) terms.push_back(std::ldexp(1.0f, exponent));
  for (int exponent = 127; exponent > -149; --exponent) terms.push_back(-std::ldexp(1.0f, exponent));
  on_every_target([&](const std::string& target) {
    SCOPED_TRACE(target);
    const EncodedArray array{std::span<const float>(terms)};
    EXPECT_EQ(sum(array, exact_into(binary32)), 1u);
    EXPECT_EQ(dot(array, array, exact_into(binary64)) >> 52, 1023u + 254 + 1);  // 2 (4^127 + ...), of both signs: 8/3 4^127
  });
}

TEST(ExactSum, DependsNeitherOnOrderNorOnParts) {
  std::vector<uint64_t> encodings = random_encodings(binary32, 5000, 5, 2000);
  std::vector<float> a;
  for (const uint64_t encoding : encodings) a.push_back(std::bit_cast<float>(static_cast<uint32_t>(encoding)));
  const std::vector<float> b(a.rbegin(), a.rend());
  ExactSum whole;
  whole.add_products(a, b);
  const uint64_t expected = encode(binary64, whole.total());
  ExactSum parts, one_by_one;
  for (size_t begin = 0; begin < a.size(); begin += 777) {
    ExactSum part;
    const size_t count = std::min<size_t>(777, a.size() - begin);
    part.add_products(std::span(a).subspan(begin, count), std::span(b).subspan(begin, count));
    parts += part;
  }
  for (size_t i = a.size(); i-- > 0;)
    one_by_one.add_product(decode(binary32, encoding_of(a[i])), decode(binary32, encoding_of(b[i])));
  EXPECT_EQ(encode(binary64, parts.total()), expected);
  EXPECT_EQ(encode(binary64, one_by_one.total()), expected);
}

// More additions of chunks full of ones than chunks have room for: carries are propagated in time.
TEST(ExactSumSlow, CarriesBeforeChunksOverflow) {
  ExactSum total;
  constexpr uint64_t kCount = (uint64_t{1} << 31) + 3, kTerm = (uint64_t{1} << 53) - 1;
  const Number term{.kind = Number::Kind::finite, .significand = kTerm};
  for (uint64_t i = 0; i < kCount; ++i) total.add_product(term, term);
  const Rational expected = Rational(Integer(kTerm) * kTerm * kCount);
  EXPECT_EQ(encode(binary64, total.total()), rounded_encoding(binary64, expected, {}));
}

// Flush-to-zero, denormals-are-zero and directed modes, as a caller may have set them. All terms are subnormal, or next to it.
TEST(ExactSum, DoesNotDependOnTheModeOfTheCpu) {
  std::vector<float> terms;
  for (uint32_t i = 0; i < 3000; ++i) terms.push_back(std::bit_cast<float>(1 + i * 2654435761u % 0x1000000));
  const EncodedArray array{std::span<const float>(terms)};
  const uint64_t total = sum(array, exact_into(binary64)), product = dot(array, array, exact_into(binary64));
  const unsigned before = _mm_getcsr();
  for (const unsigned mode : {0x8040u, 0x8040u | 0x6000u, 0x2000u, 0x4000u}) {
    _mm_setcsr(before | mode);
    const uint64_t other_total = sum(array, exact_into(binary64)), other_product = dot(array, array, exact_into(binary64));
    const unsigned after = _mm_getcsr() & ~0x3Fu;
    _mm_setcsr(before);
    EXPECT_EQ(after, (before | mode) & ~0x3Fu);
    EXPECT_EQ(other_total, total) << mode;
    EXPECT_EQ(other_product, product) << mode;
  }
}

// Full blocks of one sign, all in one binade, with bits down to the last: the leading parts of a block fill FP64 then. What all but
// the last bits add up to is taken away at the end.
TEST(ExactSum, OfFullBlocksIsExact) {
  const std::vector<uint64_t> fractions = random_encodings(binary32, 4096, 9, 1);
  std::vector<float> a, b;
  for (size_t i = 0; i < fractions.size(); ++i) {
    const float value = std::bit_cast<float>(0x3FE00000u | static_cast<uint32_t>(fractions[i] & 0x1FFFFF));
    (i % 2 == 0 ? a : b).push_back(value);
  }
  Rational expected = 0;
  for (size_t i = 0; i < a.size(); ++i)
    expected += exact_value(binary32, encoding_of(a[i])) * exact_value(binary32, encoding_of(b[i]));
  on_every_target([&](const std::string& target) {
    ExactSum total;
    total.add_products(a, b);
    const uint64_t leading = encode(binary64, total.total(), {RoundingMode::toward_zero});
    ASSERT_EQ(leading, rounded_encoding(binary64, expected, {RoundingMode::toward_zero})) << target;
    total.add(decode(binary64, leading ^ binary64.sign_bit()));
    EXPECT_EQ(encode(binary64, total.total()), rounded_encoding(binary64, expected - exact_value(binary64, leading), {})) << target;
  });
}

TEST(ExactSum, ZerosInfinitiesAndNansFollowTheStandard) {
  constexpr uint64_t kInf = 0x7F800000, kMinusInf = 0xFF800000, kNan = 0x7FC00000, kMinusZero = 0x80000000, kOne = 0x3F800000,
                     kMinusOne = 0xBF800000;
  struct Case {
    std::vector<uint32_t> terms;
    uint64_t nearest, down;
  };
  const Case cases[] = {{{}, 0, 0},
                        {{0, 0}, 0, 0},
                        {{kMinusZero}, kMinusZero, kMinusZero},
                        {{kMinusZero, kMinusZero}, kMinusZero, kMinusZero},
                        {{kMinusZero, 0}, 0, kMinusZero},
                        {{kOne, kMinusOne}, 0, kMinusZero},
                        {{kOne, kMinusZero}, kOne, kOne},
                        {{kInf, kOne, kInf}, kInf, kInf},
                        {{kOne, kMinusInf}, kMinusInf, kMinusInf},
                        {{kInf, kMinusInf}, kNan, kNan},
                        {{0xFFC12345, kOne, kInf}, kNan, kNan},
                        {{0x7F7FFFFF, 0x7F7FFFFF}, kInf, 0x7F7FFFFF}};
  on_every_target([&](const std::string& target) {
    SCOPED_TRACE(target);
    for (const Case& c : cases) {
      // Terms alone, and as products with 1 in both formats' paths.
      const std::vector<float> ones(c.terms.size(), 1.0f);
      const std::vector<double> wide_ones(c.terms.size(), 1.0);
      const EncodedArray terms(binary32, std::span<const uint32_t>(c.terms));
      for (const RoundingMode mode : {RoundingMode::nearest_even, RoundingMode::down}) {
        const uint64_t expected = mode == RoundingMode::down ? c.down : c.nearest;
        const Summation exact = exact_into(binary32, mode);
        EXPECT_EQ(sum(terms, exact), expected);
        EXPECT_EQ(dot(terms, EncodedArray(std::span<const float>(ones)), exact), expected);
        EXPECT_EQ(dot(terms, EncodedArray(std::span<const double>(wide_ones)), exact), expected);
      }
    }
    // 0 * Inf, between finite products.
    const std::vector<float> a{1, 0, 2}, b{3, HUGE_VALF, 4};
    EXPECT_EQ(dot(EncodedArray(std::span<const float>(a)), EncodedArray(std::span<const float>(b)), exact_into(binary32)), kNan);
  });
}

}  // namespace
}  // namespace ulpscope
