#include "ulpscope/emulation/error_measures.h"

#include <gtest/gtest.h>
#include <xmmintrin.h>

#include <cmath>
#include <vector>

#include "tests/emulation/neighbours.h"
#include "ulpscope/base/error.h"

namespace ulpscope {
namespace {

ErrorMeasures measure(const std::vector<double>& computed, const std::vector<double>& reference,
                      const FloatFormat& format = binary16) {
  return measure_errors(EncodedArray(std::span(computed)), EncodedArray(std::span(reference)), format);
}

// Of every number, and between it and the next: their distance.
TEST(Ulp, IsTheDistanceOfNeighbours) {
  for (const FloatFormat* format : {&binary16, &bfloat16, &e4m3, &e5m2, &e2m1, &e8m0, &parse_format("e4m2:subnormals=no")}) {
    const Neighbours numbers(*format);
    const std::vector<double>& values = numbers.values();
    for (size_t i = 0; i + 1 < values.size(); ++i) {
      const double distance = values[i + 1] - values[i], middle = (values[i] + values[i + 1]) / 2;
      ASSERT_EQ(ulp(*format, middle), distance) << format->name << ' ' << middle;
      ASSERT_EQ(ulp(*format, -values[i]), distance) << format->name << ' ' << values[i];
    }
    EXPECT_EQ(ulp(*format, values.back() * 8), numbers.beyond() - values.back()) << format->name;
  }
  EXPECT_EQ(ulp(binary64, 0), 0x1p-1074);
  EXPECT_EQ(ulp(binary32, 1), 0x1p-23);
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | 0x8040);  // subnormals are zero
  const double flushing = ulp(binary64, 0x1p-1040), smallest = binary64.smallest_positive();
  _mm_setcsr(before);
  EXPECT_EQ(flushing, 0x1p-1074);
  EXPECT_EQ(smallest, 0x1p-1074);
}

TEST(ErrorMeasures, AreThoseOfTheirDefinitions) {
  // Errors of 2^-11, 0 and 4 where the ulp is 2^-10, 2^-24 and 2; relative ones of 2^-11, 0 and 4/2048.
  const ErrorMeasures measures = measure({1 + 0x1p-11, 0, -2044}, {1, 0, -2048});
  EXPECT_EQ(measures.count, 3u);
  EXPECT_EQ(measures.exact, 1u);
  EXPECT_EQ(measures.mismatched, 0u);
  EXPECT_EQ(measures.largest_ulp, 2);
  EXPECT_EQ(measures.mean_ulp(), 2.5 / 3);
  EXPECT_EQ(measures.largest_absolute, 4);
  EXPECT_EQ(measures.largest_relative, 0x1p-9);
  EXPECT_EQ(measures.signal, 1 + 2048.0 * 2048.0);
  EXPECT_EQ(measures.noise, 16 + 0x1p-22);
  EXPECT_EQ(measure({11}, {10}).signal_to_noise(), 20);
  EXPECT_EQ(measure({10}, {10}).signal_to_noise(), HUGE_VAL);
  EXPECT_EQ(measure({1}, {0}).largest_relative, HUGE_VAL);
  EXPECT_EQ(measure({1}, {0}).signal_to_noise(), -HUGE_VAL);
  EXPECT_EQ(measure({}, {}).mean_ulp(), 0);
}

TEST(ErrorMeasures, NanAndInfAreRightOnlyWhereTheReferenceHasThem) {
  const ErrorMeasures same = measure({NAN, HUGE_VAL, 1}, {-NAN, HUGE_VAL, 1});
  EXPECT_EQ(same.exact, 3u);
  EXPECT_EQ(same.largest_ulp, 0);
  for (const double x : {static_cast<double>(NAN), HUGE_VAL, -HUGE_VAL}) {
    for (const auto& [computed, reference] : {std::pair{x, 1.0}, std::pair{1.0, x}, std::pair{x, std::isnan(x) ? HUGE_VAL : -x}}) {
      const ErrorMeasures measures = measure({computed}, {reference});
      EXPECT_EQ(measures.mismatched, 1u);
      EXPECT_EQ(measures.largest_ulp, HUGE_VAL);
      EXPECT_EQ(measures.mean_ulp(), HUGE_VAL);
      EXPECT_EQ(measures.largest_absolute, HUGE_VAL);
      EXPECT_EQ(measures.largest_relative, HUGE_VAL);
      EXPECT_EQ(measures.signal_to_noise(), -HUGE_VAL);
    }
  }
}

TEST(ErrorMeasures, OfArraysOfDifferentLengthsAreAnError) {
  try {
    measure({1, 2}, {1});
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_STREQ(error.what(), "errors in fp16: 2 numbers, but 1 references");
  }
}

}  // namespace
}  // namespace ulpscope
