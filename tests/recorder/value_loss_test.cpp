// Looks at what casts, additions and subtractions lose, by values for which that is known without computing it.
#include "ulpscope/recorder/value_loss.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>

#include "ulpscope/emulation/narrow_format.h"
#include "ulpscope/emulation/rounding.h"
#include "ulpscope/recorder/host_tensor.h"
#include "ulpscope/trace/measure_names.h"

namespace ulpscope {
namespace {

using Shares = std::map<std::string, double>;

Shares by_name(const std::vector<ValueMeasure>& measured) {
  Shares shares;
  for (const ValueMeasure& each : measured) EXPECT_TRUE(shares.emplace(each.name, each.value).second) << each.name;
  return shares;
}

TensorView dense(const void* data, DType dtype, const std::vector<int64_t>& shape) {
  return folded({.data = data, .dtype = dtype, .shape = shape});
}

float rounded(DType dtype, double value) { return static_cast<float>(round_to_format(*info(dtype).format, value)); }

// Holds numbers in a type of 16 bits.
class Stored {
 public:
  Stored(DType dtype, std::vector<int64_t> shape, const std::vector<float>& values) : dtype_(dtype), shape_(std::move(shape)) {
    for (const float value : values) bits_.push_back(narrow_format(*info(dtype).format).round(value));
  }
  TensorView view() { return dense(bits_.data(), dtype_, shape_); }

 private:
  DType dtype_;
  std::vector<int64_t> shape_;
  std::vector<uint16_t> bits_;
};

Shares addition_of(DType dtype, const std::vector<float>& a, const std::vector<float>& b, double factor = 1) {
  SampledValues sum{{}, dtype};
  for (size_t i = 0; i < a.size(); ++i) sum.values.push_back(rounded(dtype, a[i] + factor * b[i]));
  return by_name(measure_addition({a, dtype}, {b, dtype}, factor, sum));
}

TEST(ValueLoss, AnAddendBelowHalfAUnitIsLostWhicheverItIs) {
  // BF16 has steps of 2 from 256 on, FP16 from 2,048 on: half of them, 1, is a tie that goes to the even number, which these are.
  for (const auto& [dtype, first] : {std::pair{DType::bf16, 256.0F}, std::pair{DType::f16, 2048.0F}}) {
    std::vector<float> stream;
    double all = 0;
    for (int i = 0; i < 60; ++i) all += stream.emplace_back(first + 4 * static_cast<float>(i));
    const std::vector<float> ones(60, 1), threes(60, 3);
    for (const bool is_first : {false, true}) {
      const Shares lost = is_first ? addition_of(dtype, ones, stream) : addition_of(dtype, stream, ones);
      EXPECT_EQ(lost.at("addend_lost"), 1) << is_first;
      EXPECT_EQ(lost.at("addend_size"), 60 / all);
      EXPECT_EQ(lost.at("cancelled"), 0);
    }
    // 256 + 3 is a tie between 258 and 260, and 260 is even: more arrives than was added, which is no loss.
    EXPECT_EQ(addition_of(dtype, stream, threes).at("addend_lost"), 0);
    EXPECT_EQ(addition_of(dtype, stream, ones, 0.5).at("addend_lost"), 1);
    EXPECT_EQ(addition_of(dtype, {first}, {1}, -1).at("addend_lost"), 0) << "below, steps are of 1";
  }
}

TEST(ValueLoss, SharesAreOfWhatIsAsked) {
  // From 512 on BF16 has steps of 4, below it of 2: 512 + 1 is 512, 512 + 3 is 516, and 512 - 1 a tie between 510 and 512, which is
  // even.
  const Shares lost = addition_of(DType::bf16, {512, 512, 512, 512}, {1, 1, 3, -1});
  EXPECT_EQ(lost.at("addend_lost"), 1 - 4.0 / 6);
}

TEST(ValueLoss, WhatIsLeftOfADifferenceIsMeasuredInUnitsOfItsOperands) {
  // The units of 25.25 and 25.375 in BF16 are 0.125.
  EXPECT_EQ(addition_of(DType::bf16, {25.25F, 25.25F, 25.25F, 8.5F}, {-25.375F, -24.75F, -24.625F, -4.5F}).at("cancelled"), 0.5);
  EXPECT_EQ(addition_of(DType::bf16, {25.25F}, {25.375F}, -1).at("cancelled"), 1);
  // Nothing cancels of equal signs, nor of zeros.
  EXPECT_EQ(addition_of(DType::bf16, {25.25F}, {25.375F}).at("cancelled"), 0);
  EXPECT_FALSE(addition_of(DType::bf16, {0, 1}, {-1, 0}).contains("cancelled"));
  // A difference of 0 may be of equal numbers; one of whole numbers is none of roundings, but where the type has no others.
  EXPECT_FALSE(addition_of(DType::bf16, {25.25F}, {-25.25F}).contains("cancelled"));
  EXPECT_FALSE(addition_of(DType::bf16, {100}, {-99}).contains("cancelled"));
  EXPECT_EQ(addition_of(DType::bf16, {400}, {-402}).at("cancelled"), 1);
  EXPECT_EQ(addition_of(DType::bf16, {400}, {-402}).at("cancelled_size"), 2);
  // FP32 has its own units, and loses no addend that is told.
  const Shares wide = by_name(measure_addition({{25.25F}, DType::f32}, {{-25.375F}, DType::f32}, 1, {{-0.125F}, DType::f32}));
  EXPECT_EQ(wide.at("cancelled"), 0);
  EXPECT_FALSE(wide.contains("addend_lost"));
}

// A large number that is there several times fills a mask.
TEST(ValueLoss, BesideAMaskNothingIsLost) {
  std::vector<float> scores, mask;
  for (int i = 0; i < 32; ++i) {
    scores.push_back(0.5F + 0.125F * static_cast<float>(i % 8));
    mask.push_back(i < 24 ? 0.0F : -10000.0F);
  }
  EXPECT_EQ(addition_of(DType::bf16, scores, mask).count("addend_lost"), 0u);
  mask[31] = -512;  // a number of its own
  EXPECT_EQ(addition_of(DType::bf16, scores, mask).at("addend_size"), 23.875 / 512);
}

TEST(ValueLoss, WhatIsNotFiniteIsLeftOut) {
  const float inf = INFINITY;
  const std::vector<ValueMeasure> measured =
      measure_addition({{256, inf, 1}, DType::bf16}, {{1, 1, NAN}, DType::bf16}, 1, {{256, inf, NAN}, DType::bf16});
  EXPECT_EQ(by_name(measured).at("addend_lost"), 1);
  EXPECT_TRUE(measure_addition({{inf}, DType::bf16}, {{1}, DType::bf16}, 1, {{inf}, DType::bf16}).empty());
}

TEST(ValueLoss, WholeNumbersAboveTheSignificandMerge) {
  // From 256 to 512 every second number is one in BF16, and of 511 pairs of neighbours those of an odd number with one of its two.
  std::vector<float> numbers;
  for (int i = 0; i < 512; ++i) numbers.push_back(static_cast<float>(i));
  std::vector<float> stored;
  size_t merged = 0, changed = 0;
  for (const float number : numbers) {
    stored.push_back(rounded(DType::bf16, number));
    changed += stored.back() != number;
    merged += number > 0 && stored.back() == stored[stored.size() - 2];
  }
  Stored to(DType::bf16, {512}, stored);
  const Shares lost = by_name(measure_cast(dense(numbers.data(), DType::f32, {512}), to.view()));
  EXPECT_EQ(lost.at("whole_numbers_rounded"), static_cast<double>(changed) / 512);
  EXPECT_EQ(changed, 128u);
  EXPECT_EQ(lost.at("neighbours_merged"), static_cast<double>(merged) / 511);
  EXPECT_EQ(by_name(measure_range(0, 1, to.view())), lost);

  // Those that BF16 has are left as they are, and fractions are no whole numbers.
  Stored small(DType::bf16, {256}, {stored.begin(), stored.begin() + 256});
  EXPECT_TRUE(measure_cast(dense(numbers.data(), DType::f32, {256}), small.view()).empty());
  numbers[300] += 0.5F;
  EXPECT_TRUE(measure_cast(dense(numbers.data(), DType::f32, {512}), to.view()).empty());
}

// Both ends of many are looked at: the large ones stand at the end, as positions do.
TEST(ValueLoss, LongRowsOfIntegersAreSampledAtBothEnds) {
  std::vector<int64_t> numbers(100'000);
  std::vector<float> stored;
  for (size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = static_cast<int64_t>(i) / 100;
    stored.push_back(rounded(DType::bf16, static_cast<double>(numbers[i])));
  }
  Stored to(DType::bf16, {100'000}, stored);
  const Shares lost = by_name(measure_cast(dense(numbers.data(), DType::i64, {100'000}), to.view()));
  // 0 to 5 at the beginning, 994 to 999 at the end, where BF16 has multiples of 4: 996 alone is one.
  EXPECT_EQ(lost.at("whole_numbers_rounded"), 412.0 / 1024);
}

// The number that a mask has for what is masked may be none of the type: it stays the only one of its kind.
TEST(ValueLoss, MasksAreNoNumbersThatMerge) {
  std::vector<float> mask(64, 0), stored(64, 0);
  for (size_t i = 1; i < mask.size(); i += 2) {
    mask[i] = -1e9F;
    stored[i] = rounded(DType::bf16, mask[i]);
    ASSERT_NE(stored[i], mask[i]);
  }
  Stored to(DType::bf16, {64}, stored);
  EXPECT_TRUE(measure_cast(dense(mask.data(), DType::f32, {64}), to.view()).empty());
}

TEST(ValueLoss, FeaturesThatSamplesShareBehindTheCast) {
  constexpr int64_t kRows = 32, kFeatures = 5;
  std::vector<float> values, stored;
  for (int64_t row = 0; row < kRows; ++row)
    for (int64_t feature = 0; feature < kFeatures; ++feature) {
      // The third is around 100, where BF16 has steps of 0.5, and the last one is the same in all samples.
      const double value = feature == 2   ? 100 + 0.002 * static_cast<double>(row)
                           : feature == 4 ? 7.25
                                          : 0.37 * static_cast<double>(row + feature);
      values.push_back(static_cast<float>(value));
      stored.push_back(rounded(DType::bf16, values.back()));
    }
  const std::vector<int64_t> shape{kRows, kFeatures};
  Stored to(DType::bf16, shape, stored);
  const Shares lost = by_name(measure_cast(dense(values.data(), DType::f32, shape), to.view(), kRows));
  EXPECT_EQ(lost.at("features_merged"), 0.25);
  EXPECT_EQ(lost.at("merged_feature"), 2);
  EXPECT_TRUE(measure_cast(dense(values.data(), DType::f32, shape), to.view()).empty());
  // A constant with noise is no feature.
  std::vector<float> noise(kRows * 2);
  for (size_t i = 0; i < noise.size(); ++i)
    noise[i] = i % 2 == 0 ? 1 + 1e-6F * static_cast<float>(i) : 0.37F * static_cast<float>(i);
  std::vector<float> stored_noise;
  for (const float value : noise) stored_noise.push_back(rounded(DType::bf16, value));
  const std::vector<int64_t> two{kRows, 2};
  Stored to_two(DType::bf16, two, stored_noise);
  EXPECT_EQ(by_name(measure_cast(dense(noise.data(), DType::f32, two), to_two.view(), kRows)).at("features_merged"), 0);
  // Where roundings are half of what samples deviate by, which of values one step apart they are: at 100 they are by 0.25 each.
  std::vector<float> halves, rounded_halves;
  for (int i = 0; i < 32; ++i) {
    halves.push_back(100 + (i % 2 == 0 ? 0.25F : 0.75F));
    halves.push_back(100 + (i % 2 == 0 ? 0.25F : 1.75F));
  }
  for (const float value : halves) rounded_halves.push_back(rounded(DType::bf16, value));
  Stored to_halves(DType::bf16, two, rounded_halves);
  EXPECT_EQ(by_name(measure_cast(dense(halves.data(), DType::f32, two), to_halves.view(), kRows)).at("features_merged"), 0.5);
  // Fewer than eight samples say nothing.
  const std::vector<int64_t> few{7, kFeatures};
  Stored to_few(DType::bf16, few, {stored.begin(), stored.begin() + 7 * kFeatures});
  EXPECT_TRUE(measure_cast(dense(values.data(), DType::f32, few), to_few.view(), 7).empty());
}

TEST(ValueLoss, IsMeasuredInTheFirstStepsAndThenNowAndThen) {
  int measured = 0;
  for (uint64_t step = 0; step < 1000; ++step) measured += measures_value_loss(step);
  EXPECT_EQ(measured, 8 + 1000 / 16);
  EXPECT_TRUE(measures_value_loss(7) && !measures_value_loss(8) && measures_value_loss(16));
}

}  // namespace
}  // namespace ulpscope
