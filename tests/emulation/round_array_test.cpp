// Arrays against one value at a time (number.h, which every_format_test.cpp holds to the definitions): the same bits in every
// format and mode on every SIMD target, over random bit patterns and over what is next to every number of a format.
#include "ulpscope/emulation/round_array.h"

#include <gmock/gmock.h>
#include <xmmintrin.h>

#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/support/simd_targets.h"
#include "tests/support/usage_error.h"
#include "ulpscope/base/philox.h"
#include "ulpscope/emulation/rounding.h"

namespace ulpscope {
namespace {

using testing::HasSubstr;

std::vector<const FloatFormat*> formats() {
  std::vector<const FloatFormat*> all;
  for (const FloatFormat* format : kFormats)
    if (format != &binary64) all.push_back(format);
  // Beside the rows: other exponents and fractions on either core, and what goes one by one.
  for (const char* text : {"e6m9", "e7m22", "e8m1", "e8m22", "e5m0fn", "e8m0fn", "e1m2finite", "e4m3fn:largest=240",
                           "e4m2:subnormals=no", "e7m3:bias=100", "e3m20fnuz", "e2m5finite", "e1m5", "e4m3fn:largest=0.01171875"})
    all.push_back(&parse_format(text));
  return all;
}

std::vector<Rounding> roundings() {
  std::vector<Rounding> all;
  for (const RoundingModeName& mode : rounding_modes())
    for (const Overflow overflow : {Overflow::ieee, Overflow::saturate})
      for (const SubnormalResults subnormals : {SubnormalResults::keep, SubnormalResults::flush})
        for (const int random_bits : {24, 11})
          if (random_bits == 24 || mode.mode == RoundingMode::stochastic)
            all.push_back({mode.mode, overflow, subnormals, random_bits});
  return all;
}

// Random bits; random numbers within the format's range, some with few bits so that they are numbers of it and midpoints; its ends.
std::vector<float> values_for(const FloatFormat& format, size_t count) {
  const Philox random(3, 4);
  std::vector<float> values;
  const int lowest = std::max(format.smallest_exponent() - 3, -149), highest = std::min(format.largest_exponent() + 2, 127);
  for (uint64_t i = 0; i < count; ++i) {
    const uint32_t bits = random.bits(3 * i), more = random.bits(3 * i + 1);
    if (i % 2 == 0) {
      values.push_back(std::bit_cast<float>(bits));
      continue;
    }
    const uint32_t fraction = bits & 0x7FFFFF & (i % 4 == 1 ? ~0u << (more % 24) : ~0u);
    const int exponent = lowest + static_cast<int>(random.below(3 * i + 2, static_cast<uint32_t>(highest - lowest + 1)));
    const double value = std::ldexp(1 + std::ldexp(fraction, -23), exponent);
    values.push_back(static_cast<float>(more >> 31 ? -value : value));
  }
  for (const double end :
       {format.largest_finite(), format.overflow_threshold(), format.smallest_normal(), format.smallest_positive(),
        format.flush_threshold(), format.smallest_normal() - format.flush_threshold(), 0.0,
        static_cast<double>(std::numeric_limits<float>::infinity()), 0x1p-149}) {
    const auto at = static_cast<float>(end);
    for (const float value : {at, std::nextafter(at, 0.0f), std::nextafter(at, HUGE_VALF)}) {
      values.push_back(value);
      values.push_back(-value);
    }
  }
  for (const uint32_t payload : {1u, 0x3FFFFFu, 0x400000u, 0x7FFFFFu, 0x2000u})
    for (const uint32_t sign : {0u, 0x80000000u}) values.push_back(std::bit_cast<float>(sign | 0x7F800000u | payload));
  return values;
}

std::string describe(const FloatFormat& format, const Rounding& rounding, const std::string& target, float value) {
  char text[40];
  std::snprintf(text, sizeof text, " %a", static_cast<double>(value));
  return std::string(format.name) + ' ' + std::string(name_of(rounding.mode)) +
         (rounding.overflow == Overflow::saturate ? " saturate" : "") +
         (rounding.subnormals == SubnormalResults::flush ? " flush " : " ") + target + text;
}

template <typename Out>
void check_encodings(const FloatFormat& format, const Rounding& rounding, const std::vector<float>& values,
                     const std::vector<uint64_t>& expected, const RandomStream& random, const std::string& target) {
  if (format.storage_bits() > static_cast<int>(8 * sizeof(Out))) return;
  std::vector<Out> encodings(values.size());
  round_encodings(format, rounding, values, encodings, random);
  for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(encodings[i], expected[i]) << describe(format, rounding, target, values[i]);
}

TEST(RoundArray, GivesTheBitsOfOneAtATimeOnEveryTarget) {
  for (const FloatFormat* format : formats()) {
    const std::vector<float> values = values_for(*format, 3000);
    for (const Rounding& rounding : roundings()) {
      const RandomStream random{11, 12, 1000003};
      std::vector<uint64_t> encodings;
      std::vector<uint32_t> expected;
      for (size_t i = 0; i < values.size(); ++i) {
        const uint32_t bits = random_bits_of(random, i);
        encodings.push_back(round_to_encoding(*format, values[i], rounding, bits));
        expected.push_back(std::bit_cast<uint32_t>(round_to_format(*format, values[i], rounding, bits)));
      }
      on_every_target([&](const std::string& target) {
        std::vector<float> in_place = values;
        round_values(*format, rounding, in_place, in_place, random);
        for (size_t i = 0; i < values.size(); ++i)
          ASSERT_EQ(std::bit_cast<uint32_t>(in_place[i]), expected[i]) << describe(*format, rounding, target, values[i]);
        check_encodings<uint8_t>(*format, rounding, values, encodings, random, target);
        check_encodings<uint16_t>(*format, rounding, values, encodings, random, target);
        check_encodings<uint32_t>(*format, rounding, values, encodings, random, target);
      });
    }
  }
}

// Values whose distance from the neighbour below, in steps, has the 16 leading bits that the first half of their random number
// lacks to all ones, so that the bits after these decide.
TEST(RoundArray, GoesOnWhereTheFirstHalfOfARandomNumberDoesNotDecide) {
  const RandomStream random{21, 22, 640};
  for (const FloatFormat* format : {&e4m3, &e5m2, &e2m1, &parse_format("e8m2")}) {
    const int discarded = 23 - format->fraction_bits;
    for (const double subnormal : {1.0, 0.5}) {
      std::vector<float> values;
      for (uint64_t i = 0; i < 4000; ++i) {
        const uint32_t first = random_bits_of(random, i) >> 16, rest = static_cast<uint32_t>(i) % (1u << (discarded - 16));
        const uint32_t below = (0xFFFF - first) << (discarded - 16) | rest;
        // 1 + below / 2^23 with a step of 2^-fraction_bits; or, below the normal numbers, 1/2 + below / 2^24 of the smallest
        // normal.
        const double value = std::ldexp(1 + below * 0x1p-23, subnormal == 1 ? 0 : format->smallest_normal_exponent());
        values.push_back(static_cast<float>(subnormal == 1 ? value : value - format->smallest_normal() / 2));
      }
      int up = 0;
      on_every_target([&](const std::string& target) {
        std::vector<float> rounded(values.size());
        round_values(*format, {.mode = RoundingMode::stochastic}, values, rounded, random);
        for (size_t i = 0; i < values.size(); ++i) {
          const float expected = round_to_format(*format, values[i], {.mode = RoundingMode::stochastic}, random_bits_of(random, i));
          ASSERT_EQ(rounded[i], expected) << format->name << ' ' << target << ' ' << values[i];
          up += expected > values[i];
        }
      });
      EXPECT_GT(up, 0);
    }
  }
}

TEST(RoundArray, OfFp64RoundsOnce) {
  const Philox random(8, 9);
  std::vector<double> values;
  for (uint64_t i = 0; i < 2000; ++i) {
    // Next to numbers and midpoints of FP16 and FP32, where a rounding to FP32 first would decide otherwise.
    const auto near = static_cast<double>(std::bit_cast<float>((random.bits(i) & 0x8000FFFF) << 12 | 0x38000800));
    values.push_back(std::nextafter(near, random.bits(i) & 0x10000 ? 0 : HUGE_VAL));
  }
  for (const FloatFormat* format : {&binary16, &bfloat16, &binary32, &e5m2}) {
    for (const Rounding& rounding : roundings()) {
      const RandomStream stream{1, 2, 3};
      std::vector<double> rounded(values.size());
      std::vector<uint32_t> encodings(values.size());
      round_values(*format, rounding, values, rounded, stream);
      round_encodings(*format, rounding, values, encodings, stream);
      for (size_t i = 0; i < values.size(); ++i) {
        const uint32_t bits = random_bits_of(stream, i);
        ASSERT_EQ(encodings[i], round_to_encoding(*format, values[i], rounding, bits)) << format->name << ' ' << values[i];
        ASSERT_EQ(rounded[i], value_of(*format, encodings[i]));
      }
    }
  }
  std::vector<float> once(values.size());
  std::vector<uint32_t> encodings(values.size());
  round_encodings(binary32, {}, values, encodings);
  for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(std::bit_cast<float>(encodings[i]), static_cast<float>(values[i]));
}

TEST(RoundArray, OfAnyLengthAndPartGivesTheSameStochasticResults) {
  const std::vector<float> values = values_for(binary16, 1200);
  const Rounding rounding{.mode = RoundingMode::stochastic};
  for (const FloatFormat* format : {&binary16, &bfloat16, &e5m2}) {
    std::vector<float> whole(values.size());
    round_values(*format, rounding, values, whole, {5, 6, 7});
    on_every_target([&](const std::string& target) {
      for (const size_t share : {size_t{1}, size_t{13}, size_t{64}, size_t{200}, size_t{777}}) {
        std::vector<float> parts(values.size() + 1, 42.0f);
        for (size_t begin = 0; begin < values.size(); begin += share) {
          const size_t count = std::min(share, values.size() - begin);
          round_values(*format, rounding, std::span(values).subspan(begin, count), std::span(parts).subspan(begin, count),
                       {5, 6, 7 + begin});
        }
        EXPECT_EQ(parts.back(), 42.0f);
        for (size_t i = 0; i < values.size(); ++i)
          ASSERT_EQ(std::bit_cast<uint32_t>(parts[i]), std::bit_cast<uint32_t>(whole[i]))
              << format->name << ' ' << target << ' ' << i;
      }
    });
  }
}

// Of n roundings of a value that is a share p of the way up, the number of those that go up has the mean n p and the variance
// n p (1 - p).
TEST(StochasticRounding, IsUnbiasedOnEveryInterval) {
  constexpr size_t kCount = 200000;
  uint64_t stream = 0;
  for (const FloatFormat* format : {&binary16, &bfloat16, &e4m3, &e5m2, &e2m1, &tensor_float32}) {
    const double step = std::ldexp(1.0, format->smallest_exponent());
    for (const double at : {1.0, 3.0, format->smallest_normal(), step, 0.0}) {
      const double unit = at >= format->smallest_normal() ? std::ldexp(format->epsilon(), std::ilogb(at)) : step;
      for (const double share : {0.5, 0.25, 0.9375, 1.0 / 1024, 0.3}) {
        const auto value = static_cast<float>(at + share * unit);
        const double exact = (static_cast<double>(value) - at) / unit;  // FP32 may not hold the share
        if (exact <= 0 || exact >= 1 || std::fpclassify(value) == FP_SUBNORMAL) continue;
        const std::vector<float> values(kCount, value);
        std::vector<float> rounded(kCount);
        round_values(*format, {.mode = RoundingMode::stochastic}, values, rounded, {17, ++stream, 0});
        double up = 0;
        for (const float result : rounded) {
          ASSERT_TRUE(static_cast<double>(result) == at || static_cast<double>(result) == at + unit)
              << format->name << ' ' << value;
          up += static_cast<double>(result) > at;
        }
        const double mean = kCount * exact, deviation = std::sqrt(kCount * exact * (1 - exact));
        EXPECT_LE(std::abs(up - mean), 5 * deviation) << format->name << ' ' << at << " + " << exact << " of a step";
      }
    }
  }
}

// Whatever the caller has set: here upwards, with subnormal numbers as zeros. It is found as it was.
TEST(RoundArray, DoesNotDependOnTheModesOfTheCpu) {
  const unsigned before = _mm_getcsr();
  const std::vector<float> values = values_for(binary16, 500);
  for (const FloatFormat* format : {&binary16, &bfloat16, &e4m3, &tensor_float32}) {
    for (const Rounding& rounding : roundings()) {
      std::vector<float> expected(values.size()), found(values.size());
      round_values(*format, rounding, values, expected);
      constexpr unsigned kUpFlushing = 0x1F80 | 0x4000 | 0x8040;
      _mm_setcsr(kUpFlushing);
      round_values(*format, rounding, values, found);
      const unsigned after = _mm_getcsr();
      _mm_setcsr(before);
      EXPECT_EQ(after, kUpFlushing);
      for (size_t i = 0; i < values.size(); ++i)
        ASSERT_EQ(std::bit_cast<uint32_t>(found[i]), std::bit_cast<uint32_t>(expected[i]))
            << describe(*format, rounding, "", values[i]);
    }
  }
}

TEST(RoundArray, RefusesWhatDoesNotFit) {
  std::vector<float> values(4), more(5);
  std::vector<uint8_t> bytes(4);
  EXPECT_THAT(usage_error_of([&] { round_values(binary16, {}, values, more); }),
              HasSubstr("rounding to fp16: 4 values, but room for 5"));
  EXPECT_THAT(usage_error_of([&] { round_encodings(binary16, {}, values, bytes); }), HasSubstr("16 bits, expected at most 8"));
  EXPECT_THAT(usage_error_of([&] { round_values(binary64, {}, values, values); }),
              HasSubstr("rounding to fp64: its encodings have 64 bits, expected at most 32"));
  std::vector<double> doubles(4);
  EXPECT_THAT(usage_error_of([&] { round_values(e4m3, {}, values, doubles); }),
              HasSubstr("values in FP32 and in FP64, expected one type"));
  EXPECT_THAT(usage_error_of([&] { round_values(e4m3, {.mode = RoundingMode::stochastic, .random_bits = 25}, values, values); }),
              HasSubstr("expected 1 to 24 random bits, got 25"));
  EXPECT_THAT(
      usage_error_of([&] { round_values(e4m3, {}, std::span<const float>(static_cast<const float*>(nullptr), 4), values); }),
      HasSubstr("got a null pointer"));
  EXPECT_EQ(usage_error_of([&] { round_values(e4m3, {}, std::span<const float>(), std::span<float>()); }), "no error");
}

}  // namespace
}  // namespace ulpscope
