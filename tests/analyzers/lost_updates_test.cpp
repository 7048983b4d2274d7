// When learning stalls, against runs whose lost shares follow a law that is known.
#include "ulpscope/analyzers/totals/lost_updates.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

namespace ulpscope {
namespace {

// In every `every`th step from `first` on.
std::vector<UpdateStep> updated_run(size_t count, const std::function<double(double)>& share, uint64_t nonzero = 1000000,
                                    uint64_t first = 0, uint64_t every = 1) {
  std::vector<UpdateStep> steps;
  for (size_t i = 0; i < count; ++i) {
    const uint64_t step = first + i * every;
    steps.push_back(
        {step, nonzero, static_cast<uint64_t>(std::llround(share(static_cast<double>(step)) * static_cast<double>(nonzero)))});
  }
  return steps;
}

// Each update is lost with that probability.
std::vector<UpdateStep> random_run(size_t count, uint32_t seed, const std::function<double(double)>& share) {
  std::mt19937 random(seed);
  std::vector<UpdateStep> steps;
  for (size_t i = 0; i < count; ++i) {
    std::binomial_distribution<uint64_t> lost(2000, share(static_cast<double>(i)));
    steps.push_back({i, 2000, lost(random)});
  }
  return steps;
}

double logistic(double x) { return 1 / (1 + std::exp(-x)); }

TEST(LostUpdates, SharesAreOfNonzeroUpdatesInTenths) {
  std::vector<UpdateStep> steps;
  for (uint64_t i = 0; i < 25; ++i) steps.push_back({i, 10, i < 3 ? 1U : i >= 22 ? 9U : 5U});
  EXPECT_EQ(add_up(first_tenth(steps)).share(), 0.1);  // three of 25
  EXPECT_EQ(add_up(last_tenth(steps)).share(), 0.9);
  EXPECT_EQ(add_up(steps).nonzero, 250u);
  EXPECT_EQ(add_up({}).share(), std::nullopt);
  EXPECT_EQ(add_up(first_tenth({})).share(), std::nullopt);
  steps = {{0, 0, 0}};
  EXPECT_EQ(add_up(steps).share(), std::nullopt);
}

TEST(LostUpdates, BlocksHoldEachStepOnce) {
  for (const size_t count : {0u, 1u, 31u, 32u, 33u, 100u}) {
    const auto steps = updated_run(count, [](double) { return 0.5; });
    size_t seen = 0, least = count, most = 0;
    for (const auto block : blocks_of(steps, 32)) {
      for (const UpdateStep& step : block) EXPECT_EQ(step.step, seen++);
      least = std::min(least, block.size());
      most = std::max(most, block.size());
    }
    EXPECT_EQ(seen, count);
    EXPECT_LE(most, least + 1);
  }
}

TEST(LostUpdates, TheMedianIsOfStepsWithAWeight) {
  const std::vector<UpdateStep> steps{{0, 1, 0, 2, 6},   {1, 1, 0, 1, 1}, {2, 1, 0, 0, 5},
                                      {3, 1, 0, 1, NAN}, {4, 1, 0, 4, 8}, {5, 1, 0, 1, 9}};
  EXPECT_EQ(median_ratio(steps), 2.5);  // of 3, 1, 2, 9
  EXPECT_EQ(median_ratio(std::span(steps).first(1)), 3);
  EXPECT_EQ(median_ratio(std::span(steps).subspan(2, 2)), std::nullopt);
}

TEST(LostUpdates, AStallThatWasRecordedBeginsWhereAllIsLostToTheEnd) {
  const auto from = [](double first) { return [first](double step) { return step < first ? 0.5 : 0.995; }; };
  const auto stall = find_stall(updated_run(200, from(120)));
  ASSERT_TRUE(stall);
  EXPECT_FALSE(stall->extrapolated);
  EXPECT_EQ(stall->first, 120u);
  EXPECT_EQ(stall->last, 120u);
  EXPECT_EQ(find_stall(updated_run(200, from(0)))->first, 0u);
  EXPECT_EQ(find_stall(updated_run(40, from(300), 1000, 200, 5))->first, 300u);  // steps are steps, however few were taken
  EXPECT_FALSE(find_stall(updated_run(9, from(0))));                             // too few to tell
  EXPECT_FALSE(find_stall(updated_run(200, from(195))));
  // A step that is not as bad is no recovery; ten are.
  auto steps = updated_run(200, from(120));
  steps[150].lost = steps[150].nonzero * 98 / 100;
  EXPECT_EQ(find_stall(steps)->first, 120u);
  EXPECT_FALSE(find_stall(updated_run(200, [](double step) { return step < 20 || step >= 180 ? 0.6 : 1.0; })));
  // Without updates nothing is lost.
  EXPECT_FALSE(find_stall(updated_run(200, from(0), 0)));
}

TEST(LostUpdates, ATrendIsFollowedToWhereItStalls) {
  // The logit rises by 0.02 a step, from -3: 99% is reached where it is log 99.
  const auto share = [](double step) { return logistic(-3 + 0.02 * step); };
  const double truth = (std::log(99) + 3) / 0.02;  // 379.8
  for (const size_t count : {270u, 300u, 350u}) {
    const auto stall = find_stall(updated_run(count, share));
    ASSERT_TRUE(stall) << count;
    EXPECT_TRUE(stall->extrapolated);
    EXPECT_TRUE(static_cast<double>(stall->first) <= truth && truth <= static_cast<double>(stall->last)) << stall->first;
    EXPECT_LE(stall->last - stall->first, 2u);
  }
  // Too far ahead: half of these steps lead up to where 99% is still more than as many steps away.
  EXPECT_FALSE(find_stall(updated_run(200, share)));
  // The same law, of every fourth step.
  const auto thinned = find_stall(updated_run(75, share, 1000000, 0, 4));
  ASSERT_TRUE(thinned);
  EXPECT_NEAR(static_cast<double>(thinned->first), truth, 3);
}

// Where the learning rate falls to zero, what is lost does not keep to its trend.
TEST(LostUpdates, ALearningRateThatBendsHidesTheTrend) {
  const auto stalls = [](const std::function<double(double)>& rate) {
    auto steps = updated_run(300, [](double step) { return logistic(-3 + 0.02 * step); });
    for (UpdateStep& step : steps) step.learning_rate = rate(static_cast<double>(step.step));
    return find_stall(steps).has_value();
  };
  EXPECT_TRUE(stalls([](double) { return 0.1; }));
  EXPECT_TRUE(stalls([](double step) { return std::pow(0.985, step); }));
  EXPECT_TRUE(stalls([](double step) { return std::pow(1.01, step); }));
  EXPECT_FALSE(stalls([](double step) { return 1 - step / 300; }));
  EXPECT_FALSE(stalls([](double step) { return 1 + std::cos(3.14159 * step / 300); }));
  EXPECT_FALSE(stalls([](double step) { return step < 280 ? 1 : 0.1; }));
  EXPECT_FALSE(stalls([](double step) { return step < 299 ? 1 : 0; }));
}

TEST(LostUpdates, TheBoundsOfAnExtrapolationHoldTheTruth) {
  int found = 0, held = 0;
  for (uint32_t seed = 0; seed < 200; ++seed) {
    const auto stall = find_stall(random_run(300, seed, [](double step) { return logistic(-3 + 0.02 * step); }));
    if (!stall) continue;
    ++found;
    held += static_cast<double>(stall->first) <= 379.8 && 379.7 <= static_cast<double>(stall->last);
  }
  EXPECT_GE(found, 190);
  EXPECT_GE(held, found - 10);  // 1 in 100 on average
}

TEST(LostUpdates, WithoutATrendNothingIsSaid) {
  int found = 0;
  for (uint32_t seed = 0; seed < 200; ++seed) {
    found += find_stall(random_run(300, seed, [](double) { return 0.9; })).has_value();
    EXPECT_FALSE(find_stall(random_run(300, seed, [](double step) { return logistic(3 - 0.01 * step); }))) << "falls";
    EXPECT_FALSE(find_stall(random_run(300, seed, [](double step) { return 0.9 * (1 - std::exp(-step / 60)); }))) << "levels off";
    EXPECT_FALSE(find_stall(random_run(300, seed, [](double step) { return 0.8 + 0.15 * std::sin(step / 15); }))) << "swings";
  }
  EXPECT_EQ(found, 0);
  EXPECT_FALSE(find_stall(updated_run(60, [](double step) { return logistic(0.06 * step); }))) << "too few steps";
  // An accelerating one would be told too late: these stall in steps 309 and 305.
  EXPECT_FALSE(find_stall(updated_run(300, [](double step) { return logistic(-1 + 5 * std::pow(step / 300, 4)); })));
  EXPECT_FALSE(find_stall(updated_run(300, [](double step) { return logistic(4.2 * std::pow(step / 300, 5)); })));
  auto gap = updated_run(300, [](double step) { return logistic(-3 + 0.02 * step); });
  for (size_t i = 200; i < 220; ++i) gap[i].nonzero = gap[i].lost = 0;
  EXPECT_FALSE(find_stall(gap)) << "steps without updates";
}

}  // namespace
}  // namespace ulpscope
