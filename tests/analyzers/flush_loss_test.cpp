// The bound on the norm that flushing takes away, against the norms themselves.
#include "ulpscope/analyzers/totals/flush_loss.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "synthetic_trace.h"
#include "ulpscope/emulation/rounding.h"

namespace ulpscope::analyzers_test {
namespace {

struct Lost {
  double norm;  // of the values that round to zero, over that of all
  uint64_t elements;
};

Lost flushed(const std::vector<double>& values, const FloatFormat& format, const Rounding& rounding = {}, uint32_t random = 0) {
  Lost flushed{0, 0};
  double lost = 0, all = 0;
  for (const double value : as_floats(values)) {
    all += value * value;
    if (round_to_format(format, value, rounding, random) != 0) continue;
    lost += value * value;
    ++flushed.elements;
  }
  flushed.norm = std::sqrt(lost / all);
  return flushed;
}

TEST(FlushLoss, TheBoundHoldsWithAndWithoutMagnitudes) {
  for (const int spread : {2, 10, 30}) {
    std::vector<double> values;
    for (int i = 0; i < 500; ++i) values.push_back(std::ldexp(1.0 + (i * 37 % 101) / 101.0, -28 + i * 61 % spread));
    const double truth = flushed(values, binary16).norm;
    ASSERT_GT(truth, 0);
    const double known = flushed_norm_bound(make_row(values, DType::f16), binary16);
    const double counted = flushed_norm_bound(make_health_row(values, DType::f16), binary16);
    EXPECT_LE(truth, known * (1 + 0x1p-40));
    EXPECT_LE(known, 2 * truth);  // a bin's magnitudes are a factor of two apart
    EXPECT_LE(known, counted * (1 + 0x1p-40));
    EXPECT_LE(counted, 1.0);
  }
  EXPECT_EQ(flushed_norm_bound(make_row({1.0, 2.0}, DType::f16), binary16), 0);
  EXPECT_EQ(flushed_norm_bound(make_row({1e-9, 1e-10}, DType::f16), binary16), 1);  // all of it
  EXPECT_EQ(flushed_norm_bound(make_health_row({1e-9, 1e-10}, DType::f16), binary16), 1);
  // One tie among one normal value of 1: 2^-25 of sqrt(1 + 2^-50).
  EXPECT_DOUBLE_EQ(flushed_norm_bound(make_row({0x1p-25, 1.0}, DType::f16), binary16), 0x1p-25);
}

// What lies below the threshold of a mode that goes by sign or random bits is flushed, or may be.
TEST(FlushLoss, TheBoundHoldsInEveryMode) {
  std::mt19937 random(2);
  for (const RoundingModeName& mode : rounding_modes()) {
    for (const SubnormalResults subnormals : {SubnormalResults::keep, SubnormalResults::flush}) {
      const Rounding rounding{.mode = mode.mode, .subnormals = subnormals};
      for (const uint32_t bits : {0u, ~0u}) {
        const std::vector<double> values = lognormal(random, subnormals == SubnormalResults::keep ? -22 : -12, 3, 200);
        const Lost truth = flushed(values, binary16, rounding, bits);
        TensorRow row = make_row(values, DType::f16);
        row.rounding.flushed = truth.elements;
        EXPECT_LE(truth.norm, flushed_norm_bound(row, binary16, rounding) * (1 + 0x1p-40)) << mode.name;
        EXPECT_EQ(truth.elements == 0, flushed_norm_bound(row, binary16, rounding) == 0) << mode.name;
      }
    }
  }
}

TEST(FlushLoss, IsFeltAboveAHundredthOfTheNormInMoreThanATenthOfTheRows) {
  // One flushed element beside one of 2^-19 is 2^-6 of the norm; beside 2^-18 it is 2^-7, less than a hundredth.
  for (const auto& [other, felt] : {std::pair{0x1p-18, 0}, {0x1p-19, 1}}) {
    FlushLoss loss;
    loss.add(make_row({0x1p-25, other}, DType::f16), binary16);
    EXPECT_EQ(loss.felt, felt);
    for (int i = 0; i < 9; ++i) {
      EXPECT_EQ(loss.matters(), felt == 1);
      loss.add(make_row({1.0}, DType::f16), binary16);
      loss.add(make_row({0.0}, DType::f16), binary16);  // nothing to lose: no row
    }
    EXPECT_EQ(loss.rows, 10u);
    EXPECT_FALSE(loss.matters());
  }
}

}  // namespace
}  // namespace ulpscope::analyzers_test
