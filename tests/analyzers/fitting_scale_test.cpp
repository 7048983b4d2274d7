// Fitting scales against a search that rounds every value at every scale.
#include "ulpscope/analyzers/totals/fitting_scale.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "synthetic_trace.h"
#include "ulpscope/analyzers/totals/followed.h"
#include "ulpscope/emulation/rounding.h"

namespace ulpscope::analyzers_test {
namespace {

constexpr double kFewElements = 0.01;
const Flushing kFlushed = flushing_of(binary16);

struct ScaledRow {
  std::vector<double> values;
  double scale;
};

// The largest k at which no value overflows.
std::optional<int> search_largest(const std::vector<ScaledRow>& rows, const FloatFormat& format) {
  for (int k = 80; k >= -80; --k) {
    bool fits = true, any = false;
    for (const ScaledRow& row : rows) {
      for (const double value : row.values) {
        any = any || value != 0;
        fits = fits && !std::isinf(round_to_format(format, std::ldexp(value, k) / row.scale));
      }
    }
    if (!any) return std::nullopt;
    if (fits) return k;
  }
  return std::nullopt;
}

// What is flushed at 2^k, rounding every value of every row.
struct Flushed {
  uint64_t elements = 0, base = 0, rows_felt = 0, rows = 0;

  bool is_few() const { return static_cast<double>(elements) <= kFewElements * static_cast<double>(base); }
  // In more than a tenth of the rows more than a hundredth of the norm is missing; rounding to E5M2 changes an eighth anyway.
  bool matters() const { return 10 * rows_felt > rows; }
};

Flushed flushed_at(int k, const std::vector<ScaledRow>& recorded, const FloatFormat& format, const Rounding& rounding,
                   uint32_t random) {
  Flushed flushed;
  for (const ScaledRow& row : recorded) {
    double lost = 0, all = 0;
    for (const double value : row.values) {
      if (value == 0) continue;
      ++flushed.base;
      all += value * value;
      if (round_to_format(format, std::ldexp(value, k) / row.scale, rounding, random) != 0) continue;
      ++flushed.elements;
      lost += value * value;
    }
    flushed.rows += all > 0;
    flushed.rows_felt += std::sqrt(lost / all) > (&format == &e5m2 ? 0.125 : 0.01);
  }
  return flushed;
}

// The least k at which few elements of all rows together are flushed, or nothing that matters.
std::optional<int> search_smallest(const std::vector<ScaledRow>& rows, const FloatFormat& format, const Rounding& rounding = {},
                                   uint32_t random = 0) {
  for (int k = -110; k <= 110; ++k) {
    const Flushed flushed = flushed_at(k, rows, format, rounding, random);
    if (flushed.base == 0) return std::nullopt;
    if (flushed.is_few() || !flushed.matters()) return k;
  }
  return std::nullopt;
}

TensorInfo stored_tensor(DType dtype) {
  TensorInfo tensor;
  tensor.dtype = dtype;
  return tensor;
}

std::vector<double> random_values(std::mt19937& random, double center, double spread, int count) {
  std::normal_distribution<double> exponent(center, spread);
  std::vector<double> values;
  for (int i = 0; i < count; ++i) {
    // Every few a power of two, where a threshold lies.
    const double e = exponent(random);
    values.push_back(i % 3 == 0 ? std::exp2(std::floor(e)) : -std::exp2(e));
  }
  return as_floats(values);
}

TEST(FittingScale, LargestIsWhatASearchFinds) {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    const double scale = round % 2 ? 65536.0 : static_cast<float>(1.0 + round);
    const ScaledRow recorded{random_values(random, round % 20 - 10, 3, 40), scale};
    const auto largest = largest_fitting(make_row(recorded.values, DType::f16, scale), stored_tensor(DType::f16), binary16);
    ASSERT_TRUE(largest);
    EXPECT_EQ(largest->lower, largest->upper);
    EXPECT_EQ(largest->upper, search_largest({recorded}, binary16)) << round;
  }
}

// 65520 is the least magnitude that rounds to Inf, so a scale that takes a value there is too large.
TEST(FittingScale, LargestStopsBeforeTheOverflowThresholdItself) {
  for (const double value : {65520.0, 65519.0, 65504.0, 32760.0}) {
    const ScaledRow recorded{{value, 1.0}, 1.0};
    const auto largest = largest_fitting(make_row(recorded.values, DType::f32), stored_tensor(DType::f32), binary16);
    EXPECT_EQ(largest->upper, search_largest({recorded}, binary16)) << value;
    EXPECT_EQ(largest->lower, largest->upper) << value;
  }
}

TEST(FittingScale, LargestOfStoredValuesIsThatOfTheValuesBehindThem) {
  std::mt19937 random(4);
  for (int round = 0; round < 100; ++round) {
    const ScaledRow recorded{random_values(random, -3, 3, 40), 16.0};
    const auto same = largest_fitting(make_stored_row(recorded.values, DType::f16, 16.0), stored_tensor(DType::f16), binary16);
    EXPECT_EQ(same->upper, search_largest({recorded}, binary16));
    EXPECT_EQ(same->lower, same->upper);
    const auto other = largest_fitting(make_stored_row(recorded.values, DType::bf16, 16.0), stored_tensor(DType::bf16), binary16);
    EXPECT_LE(other->lower, *search_largest({recorded}, binary16));
    EXPECT_GE(other->upper, *search_largest({recorded}, binary16));
  }
}

// Among FP16's subnormals a power of two does not move the rounded value as it moves the one before: 1.49 * 2^-24 is stored as
// 2^-24.
TEST(FittingScale, BoundsOfStoredSubnormalsAndOddScalesHoldTheTruth) {
  for (const double scale : {1.0, 3.0}) {
    for (const double value : {1.49 * 0x1p-24, 0.51 * 0x1p-24, 2.4 * 0x1p-24, 1.0, 65519.0, 32759.5}) {
      const ScaledRow recorded{as_floats({value}), scale};
      const TensorRow row = make_stored_row(recorded.values, DType::f16, scale);
      const auto bounds = largest_fitting(row, stored_tensor(DType::f16), binary16);
      ASSERT_TRUE(bounds);
      EXPECT_LE(bounds->lower, *search_largest({recorded}, binary16)) << value;
      EXPECT_GE(bounds->upper, *search_largest({recorded}, binary16)) << value;
      FlushCounts counts(kFlushed);
      TensorRow counted = row;
      counted.rounding_known = true;
      counts.add(counted, stored_tensor(DType::f16));
      const auto smallest = counts.smallest_fitting(kFewElements);
      EXPECT_LE(smallest->lower, *search_smallest({recorded}, binary16)) << value;
      EXPECT_GE(smallest->upper, *search_smallest({recorded}, binary16)) << value;
    }
  }
}

TEST(FittingScale, AnInfinityOnlySaysThatTheScaleIsTooLarge) {
  const auto bounds = largest_fitting(make_row({1.0, INFINITY}, DType::f16, 1024.0), stored_tensor(DType::f16), binary16);
  EXPECT_EQ(bounds->lower, ExponentBounds::kNoLower);
  EXPECT_EQ(bounds->upper, 9);
  const auto odd = largest_fitting(make_row({INFINITY}, DType::f16, 1000.0), stored_tensor(DType::f16), binary16);
  EXPECT_EQ(odd->upper, 9);
  EXPECT_FALSE(largest_fitting(make_row({0.0}, DType::f16, 1024.0), stored_tensor(DType::f16), binary16));
  EXPECT_FALSE(largest_fitting(make_health_row({1.0}, DType::f16, 1024.0), stored_tensor(DType::f16), binary16));
}

// Narrow ranges of values are decided by the number of elements, wide ones by the norm.
TEST(FittingScale, SmallestBracketsWhatASearchFinds) {
  std::mt19937 random(5);
  int exact = 0, near = 0, by_elements = 0, by_norm = 0, by_rows = 0;
  for (int round = 0; round < 400; ++round) {
    const FloatFormat& format = round % 4 == 3 ? bfloat16 : round % 4 == 2 ? e5m2 : binary16;
    const double center = &format == &bfloat16 ? -105 : -20, spread = round % 3 == 0 ? 0.5 : 4;
    std::vector<ScaledRow> rows;
    FlushCounts counts(flushing_of(format));
    const int steps = round % 5 == 4 ? 25 : 1 + round % 3;
    for (int step = 0; step < steps; ++step) {
      const double scale = step % 2 ? 1024.0 : static_cast<double>(1 << (round % 16));
      // Of 25 rows two hold far smaller values.
      const double down = steps == 25 && step % 11 == 3 ? 15 : 0;
      rows.push_back({random_values(random, center - down + round % 9, spread, 30 + 50 * (round % 5)), scale});
      ASSERT_TRUE(counts.add(make_row(rows.back().values, DType::f16, scale), stored_tensor(DType::f16)));
    }
    const auto bounds = counts.smallest_fitting(kFewElements);
    const auto truth = search_smallest(rows, format);
    ASSERT_TRUE(bounds && truth);
    EXPECT_LE(bounds->lower, *truth) << round;
    EXPECT_GE(bounds->upper, *truth) << round;
    exact += bounds->lower == bounds->upper;
    near += bounds->upper - bounds->lower <= 1;
    const Flushed at_truth = flushed_at(*truth, rows, format, {}, 0);
    by_elements += at_truth.matters();
    by_norm += !at_truth.is_few();
    by_rows += !at_truth.is_few() && at_truth.rows_felt > 0;
  }
  EXPECT_GT(exact, 50);
  EXPECT_GT(near, 250);
  EXPECT_GT(by_elements, 10);
  EXPECT_GT(by_norm, 200);
  EXPECT_GT(by_rows, 20);
}

// A third of the gradient of a packed bias, the keys' part, is rounding noise: the others decide, and no scale is needed for it.
TEST(FittingScale, NoiseAmongAGradientsElementsDecidesNothing) {
  std::mt19937 random(9);
  for (int round = 0; round < 50; ++round) {
    std::vector<double> values = random_values(random, -12, 1, 200);
    const std::vector<double> noise = random_values(random, -40, 1, 100);
    FlushCounts of_values(kFlushed), of_both(kFlushed);
    of_values.add(make_row(values, DType::f16), stored_tensor(DType::f16));
    values.insert(values.end(), noise.begin(), noise.end());
    of_both.add(make_row(values, DType::f16), stored_tensor(DType::f16));
    const auto bounds = of_both.smallest_fitting(kFewElements);
    EXPECT_LE(bounds->upper, of_values.smallest_fitting(0)->upper + 1);
    EXPECT_LE(bounds->lower, search_smallest({{values, 1.0}}, binary16));
    EXPECT_GE(bounds->upper, search_smallest({{values, 1.0}}, binary16));
  }
}

// What was lost before the statistics were taken is no larger than the threshold of that rounding, and no more than the zeros.
TEST(FittingScale, SmallestOfStoredValuesHoldsTheTruthOfTheValuesBehindThem) {
  std::mt19937 random(10);
  int known = 0;
  for (int round = 0; round < 400; ++round) {
    const DType dtype = round % 2 ? DType::bf16 : DType::f16;
    const FloatFormat& stored = *info(dtype).format;
    const double scale = round % 3 == 0 ? 3.7 : 256.0;
    std::vector<ScaledRow> rows;
    FlushCounts counts(kFlushed);
    for (int step = 0; step <= round % 14; ++step) {
      rows.push_back({random_values(random, -18, 1 + round % 5, 100), static_cast<float>(scale)});
      TensorRow row = make_stored_row(rows.back().values, dtype, rows.back().scale);
      row.rounding_known = round % 7 != 6;
      if (row.rounding_known) row.rounding.flushed = round_all(rows.back().values, stored, 1.0).flushed;
      ASSERT_TRUE(counts.add(row, stored_tensor(dtype)));
    }
    const auto bounds = counts.smallest_fitting(kFewElements);
    const auto truth = search_smallest(rows, binary16);
    ASSERT_TRUE(bounds && truth);
    EXPECT_LE(bounds->lower, *truth) << round;
    EXPECT_GE(bounds->upper, *truth) << round;
    known += bounds->upper != ExponentBounds::kNoUpper && bounds->upper - bounds->lower <= 3;
  }
  EXPECT_GT(known, 200);
}

// The modes whose direction depends on the sign are known where all values have one; stochastic rounding lies between its extremes.
TEST(FittingScale, SmallestBracketsInEveryModeWithSubnormalsKeptAndFlushed) {
  std::mt19937 random(8);
  for (const RoundingModeName& mode : rounding_modes()) {
    for (const SubnormalResults subnormals : {SubnormalResults::keep, SubnormalResults::flush}) {
      const Rounding rounding{.mode = mode.mode, .subnormals = subnormals};
      for (const double scale : {1.0, 512.0, 3.7}) {
        SCOPED_TRACE(std::string(mode.name) + (subnormals == SubnormalResults::keep ? "" : " flush"));
        const ScaledRow recorded{random_values(random, -18, 4, 400), static_cast<float>(scale)};
        FlushCounts counts(flushing_of(binary16, rounding));
        counts.add(make_row(recorded.values, DType::f16, recorded.scale), stored_tensor(DType::f16));
        const auto bounds = counts.smallest_fitting(kFewElements);
        const auto up = search_smallest({recorded}, binary16, rounding, ~0u),
                   down = search_smallest({recorded}, binary16, rounding, 0);
        if (mode.mode == RoundingMode::to_odd && subnormals == SubnormalResults::keep) {
          EXPECT_FALSE(bounds);  // nothing becomes zero
          continue;
        }
        ASSERT_TRUE(bounds && up && down);
        EXPECT_LE(bounds->lower, *up);
        EXPECT_GE(bounds->upper, *down);
        const bool decided = magnitude_thresholds(binary16, rounding).flushed.surely_below ==
                             magnitude_thresholds(binary16, rounding).flushed.perhaps_below;
        EXPECT_TRUE(!decided || bounds->upper - bounds->lower <= 2);
        EXPECT_NE(bounds->upper, ExponentBounds::kNoUpper);
        const bool by_sign = mode.mode == RoundingMode::up || mode.mode == RoundingMode::down;
        EXPECT_EQ(bounds->lower == ExponentBounds::kNoLower, by_sign && subnormals == SubnormalResults::keep);
      }
    }
  }
}

TEST(FittingScale, SmallestBracketsForScalesThatAreNoPowersOfTwo) {
  std::mt19937 random(6);
  for (int round = 0; round < 100; ++round) {
    const double scale = static_cast<float>(std::exp2(std::uniform_real_distribution<double>(0, 16)(random)));
    const ScaledRow recorded{random_values(random, -20, 4, 150), scale};
    FlushCounts counts(kFlushed);
    counts.add(make_row(recorded.values, DType::f16, scale), stored_tensor(DType::f16));
    const auto bounds = counts.smallest_fitting(kFewElements);
    const auto truth = search_smallest({recorded}, binary16);
    EXPECT_LE(bounds->lower, *truth);
    EXPECT_GE(bounds->upper, *truth);
  }
}

TEST(FittingScale, SmallestIsOpenAboveWhereLossesWereNotCounted) {
  // Zeros that may have been up to 2^-25 are felt beside 2^-20 where they are a thousand, and not where there is one.
  for (const int zeros : {1000, 1}) {
    std::vector<double> values(static_cast<size_t>(zeros), 1e-9);
    values.push_back(0x1p-20);
    values.push_back(zeros == 1 ? 1.0 : 0x1p-20);
    FlushCounts counts(kFlushed);
    counts.add(make_stored_row(values, DType::f16, 1.0), stored_tensor(DType::f16));
    const auto bounds = counts.smallest_fitting(kFewElements);
    EXPECT_EQ(bounds->upper == ExponentBounds::kNoUpper, zeros > 1);
    EXPECT_NE(bounds->lower, ExponentBounds::kNoLower);
  }
  FlushCounts nothing(kFlushed);
  EXPECT_FALSE(nothing.smallest_fitting(kFewElements));
  EXPECT_FALSE(nothing.add(make_row({NAN, 1.0}, DType::f16, 1.0), stored_tensor(DType::f16)));
  nothing.add(make_row({0.0}, DType::f16, 1.0), stored_tensor(DType::f16));
  EXPECT_FALSE(nothing.smallest_fitting(kFewElements));
}

TEST(FittingScale, RestartingForgetsEverything) {
  FlushCounts reused(kFlushed), fresh(kFlushed);
  reused.add(make_stored_row({1e-9, 1e-3}, DType::f16, 4.0), stored_tensor(DType::f16));
  reused.restart(kFlushed);
  for (FlushCounts* counts : {&reused, &fresh}) counts->add(make_row({1e-6, 1e-3}, DType::f16, 1024.0), stored_tensor(DType::f16));
  EXPECT_EQ(reused.smallest_fitting(kFewElements), fresh.smallest_fitting(kFewElements));
}

// The gradient of a bias before a normalization, or of a key's: terms that cancel but for their rounding. One that holds more
// decides.
TEST(FittingScale, ABiasOfRoundingErrorsDecidesNothing) {
  std::mt19937 random(11);
  for (const double size : {0x1p-30, 0x1p-14}) {
    SyntheticTrace trace;
    OpInfo matmul, sum;
    matmul.id = 1;
    sum.id = 2;
    matmul.phase = sum.phase = Phase::backward;
    matmul.name = "matmul";
    sum.name = "sum";
    sum.function = OpFunction::sum;
    TensorInfo terms, bias;
    terms.role = Role::activation_gradient;
    bias.role = Role::weight_gradient;
    terms.dtype = bias.dtype = DType::f16;
    terms.shape = {1000};
    bias.shape = {10};
    const uint32_t summed = trace.add_output(matmul, terms), of_bias = trace.add_output(sum, bias);
    trace.sink().add_edge({0, 1, 0, 0, 0});
    // 100 terms of 2^-12 make errors of 100 2^-23, between 2^-17 and 2^-16.
    const ScaledRow recorded{random_values(random, -12, 0.1, 1000), 1.0};
    trace.add(summed, make_row(recorded.values, DType::f16));
    const std::vector<double> values(10, size);
    trace.add(of_bias, make_row(values, DType::f16));
    trace.end_step();
    Followed<FittingScale> seen([] { return FittingScale(kFewElements); });
    ASSERT_TRUE(seen.update(trace.read()));
    const FittingScales fitting = seen.analysis().result();
    const bool is_noise = size < 0x1p-17;
    EXPECT_EQ(fitting.decides_smallest, is_noise ? summed : of_bias);
    EXPECT_EQ(fitting.tensors[of_bias]->smallest.has_value(), !is_noise);
    EXPECT_EQ(fitting.steps.front().smallest, fitting.run.smallest);
    EXPECT_LE(fitting.run.smallest->lower, search_smallest({is_noise ? recorded : ScaledRow{values, 1.0}}, binary16));
    EXPECT_GE(fitting.run.smallest->upper, search_smallest({is_noise ? recorded : ScaledRow{values, 1.0}}, binary16));
  }
}

// In the first step gradients fit, in the second something is wrong before the backward pass begins, at a tiny scale: only an
// overflow of a gradient says that this scale is too large.
TEST(FittingScale, WhatTheForwardPassMadeNonfiniteIsNoEvidence) {
  struct Case {
    double activation, loss;
    bool overflows;
  };
  for (const Case& each : {Case{NAN, NAN, false}, {INFINITY, 1, false}, {INFINITY, 1, true}, {1, 1, false}}) {
    SyntheticTrace trace;
    const uint32_t value = trace.add_tensor("a", "linear", Phase::forward, Role::activation, DType::f16);
    const uint32_t first = trace.add_tensor("b", "cast", Phase::backward, Role::activation_gradient, DType::f16);
    const uint32_t gradient = trace.add_tensor("a", "linear_backward", Phase::backward, Role::weight_gradient, DType::f16);
    const ScaledRow good{{1.0, 0x1p-3}, 1024.0};
    trace.add(value, make_row({1.0}, DType::f16));
    trace.add(first, make_row(good.values, DType::f16, good.scale));
    trace.add(gradient, make_row(good.values, DType::f16, good.scale));
    trace.end_step(SyntheticTrace::default_step(1.0, good.scale));
    const double tiny = 0x1p-20;
    trace.add(value, make_row({each.activation}, DType::f16));
    trace.add(first, make_row({each.overflows ? 1e6 : 0x1p-2}, DType::f16, tiny));
    trace.add(gradient, make_row({NAN, 1.0}, DType::f16, tiny));
    trace.end_step(SyntheticTrace::default_step(each.loss, tiny));
    trace.add(first, make_row(good.values, DType::f16, good.scale));  // after which the run goes on
    trace.end_step(SyntheticTrace::default_step(1.0, good.scale));
    Followed<FittingScale> seen([] { return FittingScale(kFewElements); });
    ASSERT_TRUE(seen.update(trace.read()));
    const FittingScales fitting = seen.analysis().result();
    std::vector<ScaledRow> finite{good};
    if (std::isfinite(each.loss)) finite.push_back({{each.overflows ? 1e6 : 0x1p-2}, tiny});
    const int fits = *search_largest(finite, binary16);
    const bool is_evidence = each.overflows || std::isfinite(each.activation);
    EXPECT_EQ(fitting.run.largest->upper, is_evidence ? std::min(fits, -21) : fits) << each.activation << each.overflows;
  }
}

// Over a trace: per step, per tensor and over the run.
TEST(FittingScale, OfARunIsThatOfItsTightestTensors) {
  std::mt19937 random(7);
  SyntheticTrace trace;
  const uint32_t small = trace.add_tensor("a", "linear_backward", Phase::backward, Role::weight_gradient, DType::f16);
  const uint32_t large = trace.add_tensor("b", "linear_backward", Phase::backward, Role::activation_gradient, DType::f16);
  const uint32_t unscaled = trace.add_tensor("b", "unscale", Phase::scaling, Role::unscaled_gradient, DType::f32);
  std::vector<ScaledRow> small_rows, large_rows;
  for (int step = 0; step < 5; ++step) {
    const double scale = 1024.0 * (1 + step % 2);
    small_rows.push_back({random_values(random, -14, 3, 200), scale});
    large_rows.push_back({random_values(random, 4 + step, 2, 200), scale});
    trace.add(small, make_row(small_rows.back().values, DType::f16, scale));
    trace.add(large, make_row(large_rows.back().values, DType::f16, scale));
    trace.add(unscaled, make_row({1e30}, DType::f32, 1.0));  // must not count: it contains no scale
    trace.end_step(SyntheticTrace::default_step(1.0, scale));
  }
  const Snapshot reader = trace.read();
  Followed<FittingScale> seen([] { return FittingScale(kFewElements); });
  ASSERT_TRUE(seen.update(reader));
  const FittingScales fitting = seen.analysis().result();
  std::vector<ScaledRow> all = small_rows;
  all.insert(all.end(), large_rows.begin(), large_rows.end());
  EXPECT_EQ(fitting.run.largest->upper, search_largest(all, binary16));
  EXPECT_EQ(fitting.decides_largest, large);
  EXPECT_EQ(fitting.decides_smallest, small);
  EXPECT_LE(fitting.run.smallest->lower, search_smallest(small_rows, binary16));
  EXPECT_GE(fitting.run.smallest->upper, search_smallest(small_rows, binary16));
  for (const StepFit& step : fitting.steps) {
    const auto truth =
        std::min(search_largest({small_rows[step.step]}, binary16), search_largest({large_rows[step.step]}, binary16));
    EXPECT_EQ(step.largest->upper, truth);
    const auto need =
        std::max(search_smallest({small_rows[step.step]}, binary16), search_smallest({large_rows[step.step]}, binary16));
    EXPECT_LE(step.smallest->lower, need);
    EXPECT_GE(step.smallest->upper, need);
  }
}

}  // namespace
}  // namespace ulpscope::analyzers_test
