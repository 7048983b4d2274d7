// Arithmetic in a format: against exact rational arithmetic, against FP64 where that is exact or cannot mislead, against the CPU,
// and the tables of what is no ordinary number.
#include "ulpscope/emulation/arithmetic.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/emulation/neighbours.h"
#include "tests/emulation/rational_rounding.h"
#include "ulpscope/base/philox.h"

namespace ulpscope {
namespace {

std::string describe_sum(const FloatFormat& format, const Rounding& rounding, uint64_t a, uint64_t b, uint64_t c = 0) {
  char text[80];
  std::snprintf(text, sizeof text, " %llx %llx %llx", static_cast<unsigned long long>(a), static_cast<unsigned long long>(b),
                static_cast<unsigned long long>(c));
  return std::string(format.name) + ' ' + std::string(name_of(rounding.mode)) + text;
}

// Magnitudes at which something changes: zero, subnormals, powers of two and their neighbours, few and many fraction bits, the end.
std::vector<uint64_t> boundary_values(const FloatFormat& format) {
  const uint64_t one = uint64_t{static_cast<unsigned>(format.bias)} << format.fraction_bits;
  const uint64_t binade = uint64_t{1} << format.fraction_bits;
  const uint64_t largest = format.largest_encoding();
  std::vector<uint64_t> magnitudes{1,
                                   2,
                                   3,
                                   binade / 2,
                                   binade - 1,
                                   binade,
                                   one - 1,
                                   one,
                                   one + 1,
                                   one + 2,
                                   one + binade / 2,
                                   one + binade / 2 + 1,
                                   one + 3,
                                   largest,
                                   largest - 1,
                                   largest / 2,
                                   one + 3 * binade,
                                   one + binade - 1,
                                   2 * binade,
                                   2 * binade + 1,
                                   one - binade,
                                   one - binade + 1,
                                   largest - binade,
                                   largest - 2 * binade + 1,
                                   one + binade * static_cast<unsigned>(format.fraction_bits),
                                   one - binade * static_cast<unsigned>(format.fraction_bits + 1),
                                   one + binade * static_cast<unsigned>(format.fraction_bits + 1) + 1,
                                   one - binade * 2 + 0x55 % binade};
  std::vector<uint64_t> both;
  for (const uint64_t magnitude : magnitudes) {
    both.push_back(magnitude);
    both.push_back(magnitude | format.sign_bit());
  }
  return both;
}

// All operations on a and b, and the fused one with `c`, in every mode. None of them is zero, Inf or NaN.
void check_against_rationals(const FloatFormat& format, uint64_t a, uint64_t b, uint64_t c,
                             const std::vector<Rounding>& roundings) {
  const Rational x = exact_value(format, a), y = exact_value(format, b), z = exact_value(format, c);
  const Rational sum = x + y, difference = x - y, product = x * y, quotient = x / y, fused = product + z;
  for (const Rounding& rounding : roundings) {
    ASSERT_EQ(add(format, a, b, rounding), rounded_encoding(format, sum, rounding)) << describe_sum(format, rounding, a, b);
    ASSERT_EQ(subtract(format, a, b, rounding), rounded_encoding(format, difference, rounding))
        << describe_sum(format, rounding, a, b);
    ASSERT_EQ(multiply(format, a, b, rounding), rounded_encoding(format, product, rounding))
        << describe_sum(format, rounding, a, b);
    ASSERT_EQ(divide(format, a, b, rounding), rounded_encoding(format, quotient, rounding)) << describe_sum(format, rounding, a, b);
    ASSERT_EQ(fused_multiply_add(format, a, b, c, rounding), rounded_encoding(format, fused, rounding))
        << describe_sum(format, rounding, a, b, c);
  }
}

void check_root(const FloatFormat& format, uint64_t a, const std::vector<Rounding>& roundings) {
  for (const Rounding& rounding : roundings)
    ASSERT_EQ(square_root(format, a, rounding),
              rounded_encoding(format, false, RationalOrRoot{exact_value(format, a), true}, rounding))
        << describe_sum(format, rounding, a, 0);
}

TEST(Arithmetic, OfBoundaryValuesInF16IsRoundedRightInEveryMode) {
  const std::vector<uint64_t> values = boundary_values(binary16);
  const std::vector<Rounding> roundings = deterministic_roundings();
  size_t third = 0;
  for (const uint64_t a : values) {
    for (const uint64_t b : values) {
      third = (third + 7) % values.size();
      check_against_rationals(binary16, a, b, values[third], roundings);
      if (HasFatalFailure()) return;
    }
    if ((a & 0x8000) == 0) check_root(binary16, a, roundings);
  }
}

// Each addend next to where it decides a tie or is lost beside the product.
TEST(Arithmetic, FusedMultiplyAddOfBoundaryValuesInF16IsRoundedRight) {
  const std::vector<uint64_t> values = boundary_values(binary16);
  const Philox random(11, 1);
  const std::vector<Rounding> roundings = deterministic_roundings();
  for (uint64_t draw = 0; draw < 6000; ++draw) {
    const auto pick = [&](uint64_t i) { return values[random.below(4 * draw + i, static_cast<uint32_t>(values.size()))]; };
    const uint64_t a = pick(0), b = pick(1), c = pick(2);
    const Rational exact = exact_value(binary16, a) * exact_value(binary16, b) + exact_value(binary16, c);
    for (const Rounding& rounding : roundings)
      ASSERT_EQ(fused_multiply_add(binary16, a, b, c, rounding), rounded_encoding(binary16, exact, rounding))
          << describe_sum(binary16, rounding, a, b, c);
  }
}

// Random operands near enough to each other to meet, in formats up to FP64, where intermediate results fill all bits.
TEST(Arithmetic, OfRandomNumbersIsRoundedRightUpToFp64) {
  const Philox random(12, 2);
  const std::vector<Rounding> roundings = deterministic_roundings();
  uint64_t draw = 0;
  for (const FloatFormat* format : {&binary64, &binary32, &bfloat16, &tensor_float32, &e5m2, &parse_format("e6m5")}) {
    for (int i = 0; i < 400; ++i) {
      const auto pick = [&] {
        const uint64_t bits = (uint64_t{random.bits(draw)} << 32 | random.bits(draw + 1)) &
                              ~uint64_t{0} << random.below(draw + 2, static_cast<uint32_t>(format->fraction_bits));
        const uint32_t field = random.below(draw + 3, 4) == 0
                                   ? random.below(draw + 4, 1u << format->exponent_bits)
                                   : static_cast<uint32_t>(format->bias) - 60 + random.below(draw + 4, 120);
        draw += 5;
        const uint64_t fraction = bits & ((uint64_t{1} << format->fraction_bits) - 1);
        const uint64_t magnitude = uint64_t{field} << format->fraction_bits | fraction;
        const uint64_t kept = 1 + magnitude % format->largest_encoding();
        return kept | (bits >> 63 != 0 ? format->sign_bit() : 0);
      };
      const uint64_t a = pick(), b = pick(), c = pick();
      check_against_rationals(*format, a, b, c, roundings);
      check_root(*format, a & ~format->sign_bit(), roundings);
      if (HasFatalFailure()) return;
    }
  }
}

// Sums whose smaller term lies far below the larger one's last place decide ties and directed roundings nevertheless.
TEST(Arithmetic, NothingIsTooSmallToMatter) {
  const std::vector<Rounding> roundings = deterministic_roundings();
  for (const FloatFormat* format : {&binary64, &binary32, &binary16, &bfloat16}) {
    const uint64_t one = uint64_t{static_cast<unsigned>(format->bias)} << format->fraction_bits;
    for (const uint64_t large : {one, one + 1, one - 1, one | format->sign_bit(), format->largest_encoding()})
      for (const uint64_t small : {uint64_t{1}, 1 | format->sign_bit(), uint64_t{2}})
        for (const uint64_t middle : {one - (static_cast<uint64_t>(format->fraction_bits + 1) << format->fraction_bits), one + 2})
          check_against_rationals(*format, large, middle, small, roundings);
  }
}

// What FP64 computes of operands with at most 5 bits is exact, or, for a quotient or a
// root, farther from every number with 6 bits than FP64's error. So the neighbours of its result are those of the true one.
TEST(Arithmetic, OfAllPairsInSmallFormatsIsRoundedRightInEveryMode) {
  std::vector<Rounding> roundings;
  for (const Rounding& rounding : deterministic_roundings())
    for (const Overflow overflow : {Overflow::ieee, Overflow::saturate})
      roundings.push_back({.mode = rounding.mode, .overflow = overflow, .subnormals = SubnormalResults::keep});
  for (const FloatFormat* format : {&e4m3, &e5m2, &e2m1, &e3m2, &e2m3, &e4m3_fnuz}) {
    const Neighbours numbers(*format);
    std::vector<double> values;
    std::vector<uint64_t> encodings;
    for (uint64_t encoding = 0; encoding < uint64_t{1} << format->storage_bits(); ++encoding) {
      const double value = value_of(*format, encoding);
      if (!std::isfinite(value)) continue;
      values.push_back(value);
      encodings.push_back(encoding);
    }
    for (const Rounding& rounding : roundings) {
      const auto expected = [&](double exact) {
        if (exact == 0) return encode(*format, {.negative = std::signbit(exact)});
        if (std::isnan(exact)) return encode(*format, detail::invalid());
        return numbers.rounded(exact, rounding);
      };
      const auto sum = [&](double a, double b) {
        const double exact = a + b;
        const bool cancels = exact == 0 && !(a == 0 && std::signbit(a) == std::signbit(b));
        return cancels && rounding.mode == RoundingMode::down ? -0.0 : exact;
      };
      for (size_t i = 0; i < values.size(); ++i) {
        const uint64_t a = encodings[i];
        const double x = values[i];
        ASSERT_EQ(square_root(*format, a, rounding), expected(std::sqrt(x))) << describe_sum(*format, rounding, a, 0);
        for (size_t j = 0; j < values.size(); ++j) {
          const uint64_t b = encodings[j];
          const double y = values[j];
          ASSERT_EQ(add(*format, a, b, rounding), expected(sum(x, y))) << describe_sum(*format, rounding, a, b);
          ASSERT_EQ(subtract(*format, a, b, rounding), expected(sum(x, -y))) << describe_sum(*format, rounding, a, b);
          ASSERT_EQ(multiply(*format, a, b, rounding), expected(x * y)) << describe_sum(*format, rounding, a, b);
          ASSERT_EQ(divide(*format, a, b, rounding), expected(x / y)) << describe_sum(*format, rounding, a, b);
          const size_t k = (7 * i + 3 * j) % values.size();
          ASSERT_EQ(fused_multiply_add(*format, a, b, encodings[k], rounding), expected(sum(x * y, values[k])))
              << describe_sum(*format, rounding, a, b, encodings[k]);
        }
      }
    }
  }
}

// The trap: in FP32 the fused result lies so near to the middle of two FP16 numbers that it is rounded to the middle, and then to
// even. 0x3C01^2 = 1 + 2^-9 + 2^-20, and 2^-24 is lost beside a product of 2^12.
TEST(Arithmetic, FusedMultiplyAddIsNotRoundedTwice) {
  size_t trapped = 0;
  const Philox random(13, 3);
  for (uint64_t i = 0; i < 400000; ++i) {
    const uint32_t bits = random.bits(2 * i), more = random.bits(2 * i + 1);
    // Products in [1, 4) times 2^10, and addends of few bits far below.
    const uint64_t a = 0x5000 | (bits & 0x3FF), b = 0x5000 | ((bits >> 10) & 0x3FF);
    const uint64_t c = (more & 0x8000) | (more & 0x3FF) | ((more >> 16 & 7) << 10);
    const float x = f16_to_float(static_cast<uint16_t>(a)), y = f16_to_float(static_cast<uint16_t>(b)),
                z = f16_to_float(static_cast<uint16_t>(c));
    // The exact result has at most 46 bits.
    const double exact = static_cast<double>(x) * static_cast<double>(y) + static_cast<double>(z);
    const uint64_t expected = round_to_f16(exact);
    ASSERT_EQ(fused_multiply_add(binary16, a, b, c), expected) << describe_sum(binary16, {}, a, b, c);
    trapped += round_to_f16(std::fma(x, y, z)) != expected;
  }
  EXPECT_GT(trapped, 0u);
}

// Operands and result of different formats: E4M3 by E5M2 into FP32, rounded once.
TEST(Arithmetic, OperandsAndResultMayHaveDifferentFormats) {
  for (uint64_t a = 0; a < 0x7F; ++a) {
    for (uint64_t b = 0; b < 0x7C; ++b) {
      const float c = 0x1.234568p-3f;
      const double exact = value_of(e4m3, a) * value_of(e5m2, b) + static_cast<double>(c);
      const Number fused = fused_multiply_add(decode(e4m3, a), decode(e5m2, b), decode(binary32, encoding_of(c)));
      ASSERT_EQ(encode(binary32, fused), encoding_of(static_cast<float>(exact))) << a << ' ' << b;
    }
  }
}

template <typename T>
T bits_to(uint64_t bits) {
  if constexpr (sizeof(T) == 4) {
    return std::bit_cast<float>(static_cast<uint32_t>(bits));
  } else {
    return std::bit_cast<double>(bits);
  }
}

// Random bit patterns, special ones among them. The CPU's NaN of an invalid operation is negative, ours is positive.
template <typename T>
void check_against_cpu(const FloatFormat& format, uint64_t stream) {
  const Philox random(14, stream);
  const std::vector<uint64_t> special{
      0, format.infinity_encoding(), 1, format.largest_encoding(), format.infinity_encoding() + 1, format.nan_encoding() + 5};
  uint64_t draw = 0;
  const auto pick = [&] {
    const uint64_t bits = uint64_t{random.bits(draw)} << 32 | random.bits(draw + 1);
    const uint32_t choice = random.below(draw + 2, 32);
    draw += 3;
    const uint64_t magnitude = choice < special.size() ? special[choice] : bits & format.last_magnitude();
    return magnitude | (bits >> 63 != 0 ? format.sign_bit() : 0);
  };
  const auto same = [&](uint64_t ours, T cpu, bool has_nan_operand) {
    uint64_t theirs = encoding_of(cpu);
    if (std::isnan(cpu) && !has_nan_operand) theirs &= ~format.sign_bit();
    return ours == theirs;
  };
  for (int i = 0; i < 200000; ++i) {
    const uint64_t a = pick(), b = pick(), c = pick();
    const volatile T x = bits_to<T>(a), y = bits_to<T>(b), z = bits_to<T>(c);
    const bool two_nans = std::isnan(x) && std::isnan(y);  // the compiler may exchange the operands of a sum or product
    const bool nan = std::isnan(x) || std::isnan(y);
    if (!two_nans) {
      ASSERT_TRUE(same(add(format, a, b), x + y, nan)) << describe_sum(format, {}, a, b);
      ASSERT_TRUE(same(multiply(format, a, b), x * y, nan)) << describe_sum(format, {}, a, b);
      ASSERT_TRUE(same(subtract(format, a, b), x - y, nan)) << describe_sum(format, {}, a, b);
    }
    ASSERT_TRUE(same(divide(format, a, b), x / y, nan)) << describe_sum(format, {}, a, b);
    ASSERT_TRUE(same(square_root(format, a), std::sqrt(x), std::isnan(x))) << describe_sum(format, {}, a, 0);
    if (!nan && !std::isnan(z)) {
      ASSERT_TRUE(same(fused_multiply_add(format, a, b, c), std::fma(x, y, z), false)) << describe_sum(format, {}, a, b, c);
    }
  }
}

TEST(Arithmetic, AgreesWithTheCpuInFp32) { check_against_cpu<float>(binary32, 4); }
TEST(Arithmetic, AgreesWithTheCpuInFp64) { check_against_cpu<double>(binary64, 5); }

TEST(Arithmetic, ZerosHaveTheSignsOfTheStandard) {
  constexpr uint64_t kZero = 0, kMinusZero = 0x8000, kOne = 0x3C00, kMinusOne = 0xBC00, kTiny = 1, kMinusTiny = 0x8001;
  for (const Rounding& rounding : deterministic_roundings()) {
    const uint64_t cancelled = rounding.mode == RoundingMode::down ? kMinusZero : kZero;
    EXPECT_EQ(subtract(binary16, kOne, kOne, rounding), cancelled);
    EXPECT_EQ(add(binary16, kMinusOne, kOne, rounding), cancelled);
    EXPECT_EQ(add(binary16, kZero, kZero, rounding), kZero);
    EXPECT_EQ(add(binary16, kMinusZero, kMinusZero, rounding), kMinusZero);
    EXPECT_EQ(add(binary16, kZero, kMinusZero, rounding), cancelled);
    EXPECT_EQ(subtract(binary16, kMinusZero, kZero, rounding), kMinusZero);
    EXPECT_EQ(multiply(binary16, kZero, kMinusOne, rounding), kMinusZero);
    EXPECT_EQ(divide(binary16, kMinusZero, kMinusOne, rounding), kZero);
    EXPECT_EQ(square_root(binary16, kMinusZero, rounding), kMinusZero);
    EXPECT_EQ(fused_multiply_add(binary16, kOne, kOne, kMinusOne, rounding), cancelled);
    EXPECT_EQ(fused_multiply_add(binary16, kZero, kMinusOne, kZero, rounding), cancelled);
    EXPECT_EQ(fused_multiply_add(binary16, kZero, kMinusOne, kMinusZero, rounding), kMinusZero);
    EXPECT_EQ(fused_multiply_add(binary16, kZero, kMinusOne, kOne, rounding), kOne);
    // A product that is too small keeps its sign.
    const bool away = rounding.mode == RoundingMode::to_odd;
    EXPECT_EQ(multiply(binary16, kTiny, kMinusTiny, rounding),
              away || rounding.mode == RoundingMode::down ? kMinusTiny : kMinusZero);
    EXPECT_EQ(multiply(binary16, kTiny, kTiny, rounding), away || rounding.mode == RoundingMode::up ? kTiny : kZero);
  }
}

TEST(Arithmetic, InfinitiesAndInvalidOperationsFollowTheStandard) {
  constexpr uint64_t kInf = 0x7C00, kMinusInf = 0xFC00, kNan = 0x7E00, kOne = 0x3C00, kMinusOne = 0xBC00;
  for (const Rounding& rounding : deterministic_roundings()) {
    EXPECT_EQ(add(binary16, kInf, kMinusInf, rounding), kNan);
    EXPECT_EQ(subtract(binary16, kInf, kInf, rounding), kNan);
    EXPECT_EQ(multiply(binary16, 0, kMinusInf, rounding), kNan);
    EXPECT_EQ(divide(binary16, 0, 0x8000, rounding), kNan);
    EXPECT_EQ(divide(binary16, kInf, kMinusInf, rounding), kNan);
    EXPECT_EQ(square_root(binary16, kMinusOne, rounding), kNan);
    EXPECT_EQ(square_root(binary16, kMinusInf, rounding), kNan);
    EXPECT_EQ(fused_multiply_add(binary16, kInf, 0, kOne, rounding), kNan);
    EXPECT_EQ(fused_multiply_add(binary16, kInf, kOne, kMinusInf, rounding), kNan);
    EXPECT_EQ(add(binary16, kInf, kOne, rounding), kInf);
    EXPECT_EQ(subtract(binary16, kOne, kInf, rounding), kMinusInf);
    EXPECT_EQ(multiply(binary16, kInf, kMinusOne, rounding), kMinusInf);
    EXPECT_EQ(divide(binary16, kMinusOne, kInf, rounding), 0x8000u);
    EXPECT_EQ(divide(binary16, kMinusOne, 0, rounding), kMinusInf);  // in every mode: not an overflow
    EXPECT_EQ(square_root(binary16, kInf, rounding), kInf);
    EXPECT_EQ(fused_multiply_add(binary16, kOne, kOne, kMinusInf, rounding), kMinusInf);
  }
  // Formats without Inf: NaN, or the largest number where they have neither or are asked to saturate.
  EXPECT_EQ(divide(e4m3, 0x38, 0), 0x7Fu);
  EXPECT_EQ(divide(e4m3, 0x38, 0x80, {.overflow = Overflow::saturate}), 0xFEu);
  EXPECT_EQ(divide(e2m1, 0x2, 0x8), 0xFu);
}

TEST(Arithmetic, TheFirstNanIsTheResult) {
  constexpr uint64_t kFirst = 0x7E01, kSecond = 0xFE02, kThird = 0x7E03, kSignalling = 0x7C05, kOne = 0x3C00;
  EXPECT_EQ(add(binary16, kFirst, kSecond), kFirst);
  EXPECT_EQ(add(binary16, kSecond, kFirst), kSecond);
  EXPECT_EQ(subtract(binary16, kOne, kFirst), kFirst);
  EXPECT_EQ(multiply(binary16, kSecond, kFirst), kSecond);
  EXPECT_EQ(divide(binary16, 0, kSecond), kSecond);
  EXPECT_EQ(square_root(binary16, kSecond), kSecond);
  EXPECT_EQ(add(binary16, kOne, kSignalling), kSignalling | 0x200);
  EXPECT_EQ(fused_multiply_add(binary16, kOne, kSecond, kFirst), kSecond);
  EXPECT_EQ(fused_multiply_add(binary16, 0, 0x7C00, kThird), kThird);
  // Into another format: the leading bits of the payload.
  EXPECT_EQ(encode(binary32, multiply(decode(binary16, kSecond), decode(e4m3, 0x38))), 0xFFC04000u);
}

TEST(Arithmetic, IsComputedByTheCompilerToo) {
  static_assert(add(binary16, 0x3C00, 0x1400) == 0x3C01);
  static_assert(square_root(binary32, 0x40000000) == 0x3FB504F3);
  static_assert(divide(binary64, 0x3FF0000000000000, 0x4008000000000000) == 0x3FD5555555555555);
}

// 10^8 random pairs in f16, each in one of the modes. Sums and products of FP16 numbers are exact in FP64; quotients and roots are
// farther from every number with 12 bits than FP64's error. A fused result has at most 80 bits, and where it has more than 53
// a rounding to odd in FP64 does no harm.
TEST(ArithmeticSlow, OfRandomPairsInF16IsRoundedRight) {
  const Neighbours numbers(binary16);
  const std::vector<Rounding> roundings = deterministic_roundings();
  const Philox random(15, 6);
  std::vector<double> value(0x10000);
  for (uint32_t encoding = 0; encoding < 0x10000; ++encoding) value[encoding] = value_of(binary16, encoding);
  for (uint64_t block = 0; block < 50'000'000; ++block) {
    const auto bits = random.four_bits(block);
    const Rounding& rounding = roundings[block % roundings.size()];
    for (const size_t half : {size_t{0}, size_t{2}}) {
      const uint32_t a = bits[half] & 0xFFFF, b = bits[half] >> 16, c = bits[half + 1] & 0xFFFF;
      const double x = value[a], y = value[b], z = value[c];
      if (!std::isfinite(x) || !std::isfinite(y) || !std::isfinite(z) || x == 0 || y == 0 || z == 0) continue;
      const auto expected = [&](double exact) {
        if (exact == 0) return rounding.mode == RoundingMode::down ? uint64_t{0x8000} : 0;
        return numbers.rounded(exact, rounding);
      };
      switch (bits[half + 1] >> 16 & 3) {
        case 0:
          ASSERT_EQ(add(binary16, a, b, rounding), expected(x + y)) << describe_sum(binary16, rounding, a, b);
          break;
        case 1:
          ASSERT_EQ(multiply(binary16, a, b, rounding), expected(x * y)) << describe_sum(binary16, rounding, a, b);
          break;
        case 2:
          ASSERT_EQ(divide(binary16, a, b, rounding), expected(x / y)) << describe_sum(binary16, rounding, a, b);
          break;
        default:
          const double product = x * y;
          double fused = product + z;
          // Knuth's two-sum: what the addition lost.
          const double part = fused - product, lost = (product - (fused - part)) + (z - part);
          if (lost != 0 && (std::bit_cast<uint64_t>(fused) & 1) == 0)
            fused = std::nextafter(fused, lost > 0 ? HUGE_VAL : -HUGE_VAL);
          ASSERT_EQ(fused_multiply_add(binary16, a, b, c, rounding), expected(fused)) << describe_sum(binary16, rounding, a, b, c);
      }
    }
  }
}

}  // namespace
}  // namespace ulpscope
