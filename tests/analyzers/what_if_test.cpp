// What-if answers against roundings of the values themselves.
#include "ulpscope/analyzers/totals/what_if.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "synthetic_trace.h"

namespace ulpscope::analyzers_test {
namespace {

TensorInfo tensor_of(DType dtype) {
  TensorInfo tensor;
  tensor.dtype = dtype;
  return tensor;
}

// Values around a threshold, on it, and one ulp to either side, besides random ones over many binades.
std::vector<double> hard_values(std::mt19937& random, int center, int spread, int count) {
  std::uniform_real_distribution<double> exponent(center - spread, center + spread), sign(-1, 1);
  std::vector<double> values;
  for (int i = 0; i < count; ++i) values.push_back(std::copysign(std::exp2(exponent(random)), sign(random)));
  for (int e : {center - 1, center, center + 1}) {
    const float power = std::ldexp(1.0f, e);
    for (const float value : {power, std::nextafter(power, 0.0f), std::nextafter(power, INFINITY), 1.5f * power}) {
      if (sign(random) > 0) values.push_back(value);
    }
  }
  return as_floats(values);
}

void expect_brackets(const CountBounds& bounds, uint64_t truth, const std::string& what) {
  EXPECT_LE(bounds.lower, truth) << what;
  EXPECT_GE(bounds.upper, truth) << what;
}

TEST(WhatIf, BracketsTheTruth) {
  std::mt19937 random(1);
  uint64_t exact = 0, answers = 0;
  for (int round = 0; round < 400; ++round) {
    const FloatFormat& format = round % 2 ? bfloat16 : binary16;
    const int limits[] = {format.smallest_exponent() - 1, format.smallest_normal_exponent(),
                          std::min(format.largest_exponent(), 126), 0};
    // Scales with few bits, so that FP64 holds x / S well enough to round as the quotient itself does.
    const double scales[] = {1.0, 65536.0, 0x1p-3, 1024.0};
    const double scale = scales[(round / 8) % 4];
    const int center = std::clamp(limits[(round / 2) % 4] + std::ilogb(scale), -148, 126);
    std::vector<double> values = hard_values(random, center, 1 + round % 7, round % 50);
    if (round % 5 == 0) values.insert(values.end(), {0.0, -0.0, NAN, INFINITY, -INFINITY});
    const TensorRow row = make_row(values, DType::f32, scale);
    const auto bounds = what_if(row, tensor_of(DType::f32), format, scale);
    ASSERT_TRUE(bounds);
    const RoundingTruth truth = round_all(values, format, scale);
    const std::string what = std::string(format.name) + " round " + std::to_string(round);
    EXPECT_EQ(bounds->base, truth.base) << what;
    expect_brackets(bounds->flushed, truth.flushed, what + " flushed");
    expect_brackets(bounds->subnormal, truth.subnormal, what + " subnormal");
    expect_brackets(bounds->overflowed, truth.overflowed, what + " overflowed");
    answers += 3;
    exact += bounds->flushed.exact() + bounds->subnormal.exact() + bounds->overflowed.exact();
  }
  EXPECT_GT(exact, answers / 3);  // bounds that always said "0 to all" would pass the rest
}

TEST(WhatIf, BracketsTheTruthForScalesThatAreNoPowersOfTwo) {
  std::mt19937 random(2);
  for (int round = 0; round < 100; ++round) {
    const double scale = static_cast<float>(std::exp2(std::uniform_real_distribution<double>(-4, 17)(random)));
    const std::vector<double> values = hard_values(random, -24 + std::ilogb(scale), 3, 60);
    const auto bounds = what_if(make_row(values, DType::f32, scale), tensor_of(DType::f32), binary16, scale);
    // |x| / S <= 2^-25 iff |x| <= 2^-25 S, which FP64 holds exactly.
    uint64_t flushed = 0;
    for (const double value : values) flushed += std::fabs(value) <= 0x1p-25 * scale;
    expect_brackets(bounds->flushed, flushed, std::to_string(scale));
  }
}

TEST(WhatIf, IsExactWhereTheExtremesDecide) {
  // All of the bin at 2^-25 lies above the threshold: the smallest says so.
  const std::vector<double> above{0x1.8p-25, 0x1.9p-25, 0x1p-24, 1.0};
  const auto none = what_if(make_row(above, DType::f32), tensor_of(DType::f32), binary16, 1.0);
  EXPECT_EQ(none->flushed, (CountBounds{0, 0}));
  // 2^-25 itself is flushed (a tie to even), and is the only element of its bin.
  const auto tie = what_if(make_row({0x1p-25, 1.0}, DType::f32), tensor_of(DType::f32), binary16, 1.0);
  EXPECT_EQ(tie->flushed, (CountBounds{1, 1}));
  // Two elements in the bin, one of them the smallest: the other may be on the threshold or not.
  const auto open = what_if(make_row({0x1p-25, 0x1.4p-25, 1.0}, DType::f32), tensor_of(DType::f32), binary16, 1.0);
  EXPECT_EQ(open->flushed, (CountBounds{1, 2}));
  // 65519 stays, 65520 overflows; both lie in the bin of 2^15.
  EXPECT_EQ(what_if(make_row({65519.0, 1.0}, DType::f32), tensor_of(DType::f32), binary16, 1.0)->overflowed, (CountBounds{0, 0}));
  EXPECT_EQ(what_if(make_row({65520.0, 1.0}, DType::f32), tensor_of(DType::f32), binary16, 1.0)->overflowed, (CountBounds{1, 1}));
  const auto mixed = what_if(make_row({40000.0, 50000.0, 65520.0}, DType::f32), tensor_of(DType::f32), binary16, 1.0);
  EXPECT_EQ(mixed->overflowed, (CountBounds{1, 2}));
}

TEST(WhatIf, HandlesTheEndsOfTheRange) {
  const std::vector<double> ends{0x1p-149, 0x1p-134, 0x1p-127, 3.4028234e38, 0x1.ff8p127};
  const std::vector<double> floats = as_floats(ends);
  for (const FloatFormat* format : {&binary16, &bfloat16}) {
    const auto bounds = what_if(make_row(floats, DType::f32), tensor_of(DType::f32), *format, 1.0);
    const RoundingTruth truth = round_all(floats, *format, 1.0);
    expect_brackets(bounds->flushed, truth.flushed, "flushed");
    expect_brackets(bounds->subnormal, truth.subnormal, "subnormal");
    expect_brackets(bounds->overflowed, truth.overflowed, "overflowed");
  }
  // FP64 values beyond FP32's range stand in the end counters.
  TensorRow row;
  row.known = StatisticsLevel::values;
  row.statistics.count = 3;
  row.statistics.smallest = 1e-60;
  row.statistics.largest = 1e60;
  row.statistics.histogram.below_range = 1;
  row.statistics.histogram.above_range = 1;
  row.statistics.histogram.bins[ExponentHistogram::kBias] = 1;
  const auto bounds = what_if(row, tensor_of(DType::f64), binary16, 1.0);
  EXPECT_EQ(bounds->flushed, (CountBounds{1, 1}));
  EXPECT_EQ(bounds->overflowed, (CountBounds{1, 1}));
}

TEST(WhatIf, SaysNothingWhereNothingIsKnown) {
  const std::vector<double> values{1e-8, 1.0};
  EXPECT_FALSE(what_if(make_health_row(values, DType::f32), tensor_of(DType::f32), binary16, 1.0));
  EXPECT_FALSE(what_if(make_stored_row(values, DType::f16), tensor_of(DType::f16), bfloat16, 1.0));
  EXPECT_FALSE(as_seen(make_stored_row(values, DType::f16)));
  EXPECT_FALSE(as_seen(make_row(values, DType::f32)));
  EXPECT_FALSE(what_if(make_row(values, DType::f32), tensor_of(DType::f32), binary16, 0.0));
  EXPECT_FALSE(what_if(make_row(values, DType::f32), tensor_of(DType::f32), binary16, NAN));
  EXPECT_FALSE(what_if(make_row(values, DType::f32), tensor_of(DType::i64), binary16, 1.0));
}

TEST(WhatIf, CountsWhatAnEarlierRoundingHidInTheUpperBounds) {
  // As stored, with counts: one element was flushed, one became Inf; in BF16 both may have been kept, or not.
  TensorRow row = make_stored_row({1e-9, 1.0, 2.0, 1e6}, DType::f16);
  row.rounding_known = true;
  row.rounding.flushed = 1;
  row.rounding.overflowed = 1;
  const auto bounds = what_if(row, tensor_of(DType::f16), bfloat16, 1.0);
  ASSERT_TRUE(bounds);
  EXPECT_EQ(bounds->base, 4u);
  EXPECT_EQ(bounds->flushed, (CountBounds{0, 1}));
  EXPECT_EQ(bounds->overflowed, (CountBounds{0, 1}));
  EXPECT_EQ(share_base(row), 4u);
}

// Values before a rounding to BF16, of which the trace has only what was stored: what FP16 would have done to those before.
TEST(WhatIf, BracketsTheTruthBehindStoredValues) {
  std::mt19937 random(8);
  for (int round = 0; round < 300; ++round) {
    const DType dtype = round % 2 ? DType::bf16 : DType::f16;
    const FloatFormat& format = round % 2 ? binary16 : bfloat16;
    const int centers[] = {-25, -14, 16};
    const double scale = round % 5 == 0 ? 4.0 : 1.0;
    std::vector<double> values = hard_values(random, centers[(round / 2) % 3], 2, 1 + round % 40);
    for (const double near : {65519.0, 65520.0, 0x1.01p-25, 0x1.004p-25, 0x1.ffp-26, 0x1.feap-15}) values.push_back(near * scale);
    values = as_floats(values);
    TensorRow row = make_stored_row(values, dtype, scale);
    row.rounding_known = true;
    const RoundingTruth at_store = round_all(values, *info(dtype).format, 1.0);
    row.rounding = {at_store.flushed, at_store.subnormal, at_store.inexact_subnormal, at_store.overflowed, 0};
    const auto bounds = what_if(row, tensor_of(dtype), format, scale);
    ASSERT_TRUE(bounds);
    const RoundingTruth truth = round_all(values, format, scale);
    const std::string what = std::string(format.name) + " round " + std::to_string(round);
    EXPECT_EQ(bounds->base, truth.base) << what;
    expect_brackets(bounds->flushed, truth.flushed, what + " flushed");
    expect_brackets(bounds->subnormal, truth.subnormal, what + " subnormal");
    expect_brackets(bounds->overflowed, truth.overflowed, what + " overflowed");
  }
}

TEST(WhatIf, SharesOfNothingDoNotApply) {
  EXPECT_TRUE(std::holds_alternative<NotApplicable>(share_cell({0, 0}, 0)));
  EXPECT_EQ(std::get<double>(share_cell({1, 1}, 4)), 0.25);
  EXPECT_EQ(std::get<Interval>(share_cell({1, 2}, 4)), (Interval{0.25, 0.5}));
  const auto empty = what_if(make_row({}, DType::f32), tensor_of(DType::f32), binary16, 1.0);
  EXPECT_EQ(empty->base, 0u);
  const auto bad = what_if(make_row({NAN, INFINITY, 0.0}, DType::f32), tensor_of(DType::f32), binary16, 1.0);
  EXPECT_EQ(bad->base, 0u);
  EXPECT_EQ(bad->flushed, (CountBounds{0, 0}));
  EXPECT_EQ(bad->overflowed, (CountBounds{0, 0}));
}

}  // namespace
}  // namespace ulpscope::analyzers_test
