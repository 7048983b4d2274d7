#include "ulpscope/base/philox.h"

#include <gtest/gtest.h>

#include <cmath>

namespace ulpscope {
namespace {

using Counter = std::array<uint32_t, 4>;

// The known answers that the authors of Philox publish with Random123 (kat_vectors, philox4x32, 10 and 7 rounds).
TEST(Philox, GivesThePublishedAnswers) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}), (Counter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}), (Counter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Counter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
  EXPECT_EQ(philox4x32<7>({0, 0, 0, 0}, {0, 0}), (Counter{0x5f6fb709, 0x0d893f64, 0x4f121f81, 0x4f730a48}));
  EXPECT_EQ(philox4x32<7>({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}), (Counter{0x5207ddc2, 0x45165e59, 0x4d8ee751, 0x8c52f662}));
  EXPECT_EQ(philox4x32<7>({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Counter{0x4dfccaba, 0x190a87f0, 0xc47362ba, 0xb6b5242a}));
}

TEST(Philox, ElementsAreTheWordsOfConsecutiveCounters) {
  const Philox random(0x299f31d0a4093822, 0x0370734413198a2e);
  for (uint64_t block : {uint64_t{0}, uint64_t{7}, uint64_t{0x85a308d3243f6a88} >> 2}) {
    const Counter words = philox4x32({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), 0x13198a2e, 0x03707344},
                                     {0xa4093822, 0x299f31d0});
    for (uint64_t i = 0; i < 4; ++i) EXPECT_EQ(random.bits(4 * block + i), words[i]);
  }
}

// Mean and variance within six standard errors: 1/2 and 1/12 for uniform numbers, 0 and 1 for normal ones.
TEST(Philox, HasTheMomentsOfItsDistributions) {
  constexpr int n = 100000;
  const Philox random(3, 4);
  double uniform = 0, uniform_squares = 0, normal = 0, normal_squares = 0;
  for (int i = 0; i < n; ++i) {
    const double u = random.uniform(i), z = random.normal(i);
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    uniform += u;
    uniform_squares += u * u;
    normal += z;
    normal_squares += z * z;
  }
  EXPECT_NEAR(uniform / n, 0.5, 6 * std::sqrt(1.0 / 12 / n));
  EXPECT_NEAR(uniform_squares / n, 1.0 / 3, 6 * std::sqrt(4.0 / 45 / n));
  EXPECT_NEAR(normal / n, 0.0, 6 * std::sqrt(1.0 / n));
  EXPECT_NEAR(normal_squares / n, 1.0, 6 * std::sqrt(2.0 / n));
}

TEST(Philox, BelowReachesEveryValueOfItsRangeAndNoOther) {
  const Philox random(5, 6);
  std::array<int, 7> seen{};
  for (int i = 0; i < 7000; ++i) {
    const uint32_t value = random.below(i, 7);
    ASSERT_LT(value, 7u);
    ++seen[value];
  }
  for (const int count : seen) EXPECT_NEAR(count, 1000, 6 * std::sqrt(1000.0));
}

}  // namespace
}  // namespace ulpscope
