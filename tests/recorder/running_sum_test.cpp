// Looks at what arrives of what is added to sums in 16 bits: against sums whose course is known, and rows of what a step added.
#include "ulpscope/recorder/running_sum.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numeric>
#include <random>
#include <set>

#include "memory_sink.h"
#include "ulpscope/emulation/narrow_format.h"
#include "ulpscope/emulation/rounding.h"

namespace ulpscope {
namespace {

using Round = std::function<float(double)>;

// Adds ones, one by one.
SumCounts sum_of_ones(int count, const Round& round) {
  SumCounts all;
  float sum = 0;
  const float one = 1;
  for (int i = 0; i < count; ++i) {
    const float next = round(double{sum} + 1);
    all += count_sum({&sum, 1}, {&one, 1}, 1, {&next, 1});
    sum = next;
  }
  EXPECT_EQ(all.arrived, sum);
  EXPECT_EQ(all.magnitude, sum);
  return all;
}

// A sum of ones stops at 2^p, p the bits of the significand: there one more lies half-way to the next number, and 2^p is even.
TEST(RunningSum, OnesArriveUpToTwoToTheBitsOfTheSignificand) {
  for (const auto& [format, bits] : {std::pair{&bfloat16, 8}, std::pair{&binary16, 11}}) {
    const int last = 1 << bits, count = 4 * last;
    const SumCounts counts =
        sum_of_ones(count, [format = format](double sum) { return static_cast<float>(round_to_format(*format, sum)); });
    EXPECT_EQ(counts.addends, static_cast<uint64_t>(count));
    EXPECT_EQ(counts.absorbed, static_cast<uint64_t>(count - last)) << format->name;
    EXPECT_EQ(counts.asked, count);
    EXPECT_EQ(counts.arrived, last) << format->name;
  }
}

// Stochastic rounding leaves most of them without effect, too, and yet all of them arrive but for noise: an addition is off by at
// most an ulp u with a variance of at most u^2 / 4, and sums up to 1,024 have ulps of up to 4.
TEST(RunningSum, AllArriveOnAverageWhereRoundingIsStochastic) {
  constexpr int kOnes = 1024;
  std::mt19937 random(7);
  const SumCounts counts = sum_of_ones(kOnes, [&](double sum) {
    const double ulp = std::max(1.0, std::ldexp(1.0, std::ilogb(sum) - 7)), below = std::floor(sum / ulp) * ulp;
    return static_cast<float>(std::uniform_real_distribution<double>(0, 1)(random) < (sum - below) / ulp ? below + ulp : below);
  });
  EXPECT_GT(counts.absorbed, 0.4 * kOnes);
  EXPECT_NEAR(counts.arrived, counts.asked, 5 * std::sqrt(kOnes * 4.0 * 4.0 / 4));
}

TEST(RunningSum, NegativeAddendsArriveBelowAndWhatIsNotFiniteIsLeftOut) {
  const float before[] = {8, 8, NAN, 1, 3}, addend[] = {-2, 0, 1, INFINITY, 1}, after[] = {6, 8, NAN, INFINITY, 3};
  const SumCounts counts = count_sum(before, addend, 0.5, after);
  EXPECT_EQ(counts.elements, 3u);
  EXPECT_EQ(counts.addends, 2u);
  EXPECT_EQ(counts.absorbed, 1u);
  EXPECT_EQ(counts.asked, 1.5);
  EXPECT_EQ(counts.arrived, 2);
  EXPECT_EQ(counts.magnitude, 6 + 8 + 3);
}

TEST(RunningSum, ValuesAreThoseOfTheLogicalOrder) {
  std::vector<uint16_t> bits(6);
  for (size_t i = 0; i < bits.size(); ++i) bits[i] = narrow_format(bfloat16).round(static_cast<double>(i));
  TensorView view;
  view.data = bits.data();
  view.dtype = DType::bf16;
  view.rank = 2;
  view.shape = {3, 2};
  view.strides = {1, 3};  // transposed
  EXPECT_EQ(summed_values(view), (std::vector<float>{0, 3, 1, 4, 2, 5}));
  view.shape = {0, 2};
  EXPECT_TRUE(summed_values(view).empty());
}

TEST(RunningSum, OfALargeTensorElementsOfAllItsPartsAreLookedAt) {
  for (const int64_t size : {kMostSummed, kMostSummed + 1, int64_t{1000003}}) {
    std::vector<float> numbers(static_cast<size_t>(size));
    std::iota(numbers.begin(), numbers.end(), 0.0f);
    TensorView view;
    view.data = numbers.data();
    view.rank = 1;
    view.shape = {size};
    view.strides = {1};
    const std::vector<float> values = summed_values(view);
    ASSERT_EQ(values.size(), static_cast<size_t>(kMostSummed));
    EXPECT_TRUE(std::is_sorted(values.begin(), values.end()));
    EXPECT_EQ(values.front(), 0);
    EXPECT_EQ(values.back(), static_cast<float>(size - 1));
    if (size > 16 * kMostSummed) {
      std::set<int64_t> sixteenths;
      for (const float value : values) sixteenths.insert(static_cast<int64_t>(value) * 16 / size);
      EXPECT_EQ(sixteenths.size(), 16u);
      EXPECT_EQ(std::set<float>(values.begin(), values.end()).size(), values.size());
    }
  }
}

TEST(RunningSum, AStepMakesOneRowOfAllThatItAdded) {
  const auto recorded = [](RecorderOptions options) {
    MemorySink sink;
    Recorder recorder(sink, std::move(options));
    for (uint64_t step = 0; step < 2; ++step) {
      recorder.begin_step(step);
      for (uint32_t micro_batch = 0; micro_batch < 3; ++micro_batch) {
        record(recorder, {.id = 1, .module = "a", .micro_batch = micro_batch});
        recorder.add_sum(0, {10, 8, 2, 4.0, 3.0, 5.0 + micro_batch});
        recorder.add_sum(1, {10, 8, 2, 4.0, 3.0, 5.0 + micro_batch});  // of which there is none
        record(recorder, {.id = 2, .module = "b", .micro_batch = micro_batch});
        recorder.end_pass();
      }
      recorder.end_step({});
    }
    return sink.sums;
  };
  const std::vector<SumRow> rows = recorded({});
  ASSERT_EQ(rows.size(), 2u);
  for (uint64_t step = 0; step < 2; ++step) {
    EXPECT_EQ(rows[step].step, step);
    EXPECT_EQ(rows[step].tensor, 0u);
    EXPECT_EQ(rows[step].additions, 3u);
    EXPECT_EQ(rows[step].counts.elements, 30u);
    EXPECT_EQ(rows[step].counts.addends, 24u);
    EXPECT_EQ(rows[step].counts.absorbed, 6u);
    EXPECT_EQ(rows[step].counts.asked, 12);
    EXPECT_EQ(rows[step].counts.arrived, 9);
    EXPECT_EQ(rows[step].counts.magnitude, 7);
  }
  EXPECT_TRUE(recorded({.modules = {"b"}}).empty());
  EXPECT_TRUE(recorded({.level = RecordLevel::off}).empty());
  EXPECT_EQ(recorded({.level = RecordLevel::health}).size(), 2u);
}

}  // namespace
}  // namespace ulpscope
