// What a rounding into a narrower format lost, counted in another way than the kernels do: by rounding with the compiler's
// conversions or midpoint tables, in FP64, one value at a time.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "tests/emulation/midpoints.h"
#include "tests/kernels/statistics_support.h"
#include "ulpscope/emulation/narrow_format.h"
#include "ulpscope/emulation/rounding.h"
#include "ulpscope/kernels/statistics_reference.h"

namespace ulpscope {
namespace {

using namespace testing_support;

// Multiples of the step at `value`, formed in FP64 (exact: scaling by powers of two and rounding to a whole number).
double rounded(const FloatFormat& format, double value) {
  const int exponent = std::max(std::ilogb(value), format.smallest_normal_exponent());
  const double result =
      std::ldexp(std::nearbyint(std::ldexp(value, format.fraction_bits - exponent)), exponent - format.fraction_bits);
  return result > format.largest_finite() ? HUGE_VAL : result;
}

RoundingCounts brute_force(const FloatFormat& format, const std::vector<float>& values, double scale) {
  RoundingCounts counts;
  for (const float value : values) {
    const double before = std::abs(static_cast<double>(value));
    if (!(before > 0 && before < HUGE_VAL)) continue;
    const double after = rounded(format, before);
    counts.flushed += after == 0;
    counts.overflowed += after == HUGE_VAL;
    const bool subnormal = after > 0 && after < format.smallest_normal();
    counts.subnormal += subnormal;
    counts.inexact_subnormal += subnormal && after != before;
    // x / S <= 2^-25 as x <= S * 2^-25, in 64-bit significands: exact.
    counts.rescued += after > 0 && after < HUGE_VAL &&
                      static_cast<long double>(before) <= static_cast<long double>(scale) * format.flush_threshold();
  }
  return counts;
}

OutputRecord round_with_counts(const FloatFormat& format, const std::vector<float>& values, double scale, StatisticsLevel level,
                               std::vector<uint16_t>& out) {
  const auto n = static_cast<int64_t>(values.size());
  out.assign(values.size(), 0);
  const NarrowFormat& narrow = narrow_format(format);
  std::vector<char> encodings(values.size() * narrow.size);
  OutputRecord record = wanting(level, scale);
  StatisticsCollector collector(record, n, &format);
  for (int64_t begin = 0; begin < n; begin += kStatisticsBlock) {
    collector.add_and_encode(begin / kStatisticsBlock, values.data() + begin, std::min(kStatisticsBlock, n - begin),
                             encodings.data() + begin * static_cast<int64_t>(narrow.size));
  }
  for (size_t i = 0; i < values.size(); ++i) std::memcpy(&out[i], encodings.data() + i * narrow.size, narrow.size);
  collector.finish();
  return record;
}

// Log-uniform magnitudes around all thresholds of the format, with zeros and what is not finite.
std::vector<float> around_thresholds(const FloatFormat& format, int64_t n, uint64_t seed) {
  const Philox random(seed, 77);
  const int lowest = std::max(format.smallest_exponent() - 4, -149);
  const int highest = std::min(format.largest_exponent() + 1, 127);
  std::vector<float> values(n);
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t bits = random.bits(3 * i);
    const int exponent = lowest + static_cast<int>(random.below(3 * i + 1, highest - lowest + 1));
    // Few significand bits, so that ties and exact values are frequent.
    const float significand = 1 + std::ldexp(static_cast<float>(bits & 0x7FFFFF & (~0u << random.below(3 * i + 2, 24))), -23);
    values[i] = std::ldexp(bits & 0x80000000 ? -significand : significand, exponent);
    if (bits % 31 == 0) values[i] = bits & 32 ? 0.0f : -0.0f;
    if (bits % 97 == 0) values[i] = bits & 32 ? HUGE_VALF : from_bits(0xFFC00001);
  }
  return values;
}

class RoundingCounting : public testing::TestWithParam<const FloatFormat*> {};
INSTANTIATE_TEST_SUITE_P(Formats, RoundingCounting, testing::Values(&binary16, &bfloat16, &e4m3, &e5m2),
                         [](const testing::TestParamInfo<const FloatFormat*>& format) { return std::string(format.param->name); });

TEST_P(RoundingCounting, EqualsBruteForce) {
  const FloatFormat& format = *GetParam();
  on_every_target([&] {
    for (const double scale : {1.0, 65536.0, 1000.0, 3.7e-3, 0x1p100, 0x1p140, 0x1p270, 0x1p-160}) {
      for (const int64_t n : {1, 63, 64, 200, 8192, 8192 + 4097}) {
        const std::vector<float> values = around_thresholds(format, n, n);
        std::vector<uint16_t> out;
        for (const StatisticsLevel level : {StatisticsLevel::health, StatisticsLevel::values}) {
          const OutputRecord record = round_with_counts(format, values, scale, level, out);
          expect_same(record.rounding, brute_force(format, values, scale));
          EXPECT_TRUE(record.rounding_known);
          EXPECT_TRUE(record.before_rounding);
          EXPECT_EQ(record.known, level);
          EXPECT_EQ(record.statistics.zeros, reference_statistics(values.data(), n).zeros);
        }
        expect_same(reference_rounding(format, values.data(), n, scale), brute_force(format, values, scale));
        for (int64_t i = 0; i < n; ++i) {
          const bool saturates = &format == &e4m3 || &format == &e5m2;
          ASSERT_EQ(out[i], round_to_encoding(format, values[i], {.overflow = saturates ? Overflow::saturate : Overflow::ieee}));
        }
        if (testing::Test::HasFailure()) FAIL() << "scale " << scale << ", " << n << " values";
      }
    }
  });
}

// One value on each side of each threshold, alone in a block of ordinary values: a block must not be passed over for its
// neighbours.
TEST_P(RoundingCounting, SeesASingleValueAtEachThreshold) {
  const FloatFormat& format = *GetParam();
  const double rescue = 8 * format.flush_threshold();
  on_every_target([&] {
    for (const double threshold :
         {format.flush_threshold(), format.smallest_positive(), rescue, format.smallest_normal() - format.flush_threshold(),
          format.smallest_normal(), format.largest_finite(), format.overflow_threshold()}) {
      const auto at = static_cast<float>(threshold);
      for (const float value : {std::nextafter(at, 0.0f), at, std::nextafter(at, HUGE_VALF)}) {
        for (const size_t place : {size_t{0}, size_t{5000}, size_t{8191}, size_t{8200}}) {
          std::vector<float> values = make(Data::normal, 8201);
          values[place] = value;
          std::vector<uint16_t> out;
          for (const StatisticsLevel level : {StatisticsLevel::health, StatisticsLevel::values}) {
            expect_same(round_with_counts(format, values, 8, level, out).rounding, brute_force(format, values, 8));
          }
          if (testing::Test::HasFailure()) FAIL() << value << " at " << place;
        }
      }
    }
  });
}

TEST(RoundingCountsOfFp16, FollowTheThresholdsOfTheDocumentation) {
  // flushed, tie to zero; subnormal and exact; subnormal and inexact; largest that stays subnormal; rounds up to normal; rescued by
  // 1024 as 2^-15 / 1024 = 2^-25; largest finite by rounding; overflows.
  const std::vector<float> values{0x1p-26f, 0x1p-25f,  0x1p-24f, 0x1.4p-24f, 0x1p-14f - 0x1.8p-25f, 0x1p-14f - 0x1p-25f,
                                  0x1p-15f, 65519.99f, -65520.0f};
  std::vector<uint16_t> out;
  const RoundingCounts counts = round_with_counts(binary16, values, 1024, StatisticsLevel::values, out).rounding;
  EXPECT_EQ(counts.flushed, 2u);
  EXPECT_EQ(counts.subnormal, 4u);
  EXPECT_EQ(counts.inexact_subnormal, 2u);
  EXPECT_EQ(counts.overflowed, 1u);
  EXPECT_EQ(counts.rescued, 3u);  // 2^-24, 1.25 * 2^-24 and 2^-15
}

// 70000 / 2^42 would be flushed as well, but Inf is no value that the scale rescued.
TEST(RoundingCountsOfFp16, WhatOverflowsIsNotRescued) {
  const std::vector<float> values{70000.0f, -65520.0f, 65519.0f};
  std::vector<uint16_t> out;
  for (const StatisticsLevel level : {StatisticsLevel::health, StatisticsLevel::values}) {
    const RoundingCounts counts = round_with_counts(binary16, values, 0x1p42, level, out).rounding;
    EXPECT_EQ(counts.overflowed, 2u);
    EXPECT_EQ(counts.rescued, 1u);
  }
  const RoundingCounts plain = reference_rounding(binary16, values.data(), 3, 0x1p42);
  EXPECT_EQ(plain.overflowed, 2u);
  EXPECT_EQ(plain.rescued, 1u);
}

TEST(RoundingCountsOfFp64, CountOneRounding) {
  // Just above the tie at 2^-25: FP32 would make it the tie, and it would be flushed.
  const std::vector<double> values{
      std::nextafter(0x1p-25, 1.0), 0x1p-25, std::nextafter(65520.0, 0.0), 65520.0, 1e300, 1e-300, 0.0, NAN};
  OutputRecord record = wanting(StatisticsLevel::values);
  std::vector<uint16_t> out(values.size());
  StatisticsCollector collector(record, static_cast<int64_t>(values.size()), &binary16);
  collector.add_and_encode(0, values.data(), static_cast<int64_t>(values.size()), out.data());
  collector.finish();
  EXPECT_EQ(record.rounding.flushed, 2u);
  EXPECT_EQ(record.rounding.subnormal, 1u);
  EXPECT_EQ(record.rounding.inexact_subnormal, 1u);
  EXPECT_EQ(record.rounding.overflowed, 2u);
  EXPECT_EQ(out[0], 1);
  EXPECT_EQ(out[2], 0x7BFF);

  OutputRecord wide = wanting(StatisticsLevel::health);
  std::vector<float> floats(values.size());
  StatisticsCollector to_floats(wide, static_cast<int64_t>(values.size()), &binary32);
  to_floats.add_and_round(0, values.data(), static_cast<int64_t>(values.size()), floats.data());
  to_floats.finish();
  EXPECT_EQ(wide.rounding.flushed, 1u);
  EXPECT_EQ(wide.rounding.overflowed, 1u);
  EXPECT_EQ(floats[4], HUGE_VALF);
}

TEST(RoundingCounts, OfAScaleThatIsNoPositiveNumberRescueNothing) {
  const std::vector<float> values = make(Data::normal, 100);
  std::vector<uint16_t> out;
  for (const double scale : {0.0, -1.0, double{NAN}}) {
    EXPECT_EQ(round_with_counts(binary16, values, scale, StatisticsLevel::values, out).rounding.rescued, 0u);
  }
}

}  // namespace
}  // namespace ulpscope
