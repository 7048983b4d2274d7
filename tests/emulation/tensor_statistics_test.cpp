#include "ulpscope/emulation/tensor_statistics.h"

#include <gtest/gtest.h>

#include <cmath>

namespace ulpscope {
namespace {

TEST(TensorStatistics, MergeAddsCountsAndKeepsExtremes) {
  TensorStatistics a;
  a.count = 10;
  a.nan = 1;
  a.positive_infinity = 1;
  a.zeros = 2;
  a.negatives = 3;
  a.smallest = 0.25;
  a.largest = 4;
  a.sum = 1.5;
  a.sum_of_squares = 20;
  a.histogram.bins[125] = 6;
  TensorStatistics b = a;
  b.negative_infinity = 2;
  b.smallest = 0.125;
  b.largest = 2;
  b.histogram.bins[0] = 1;
  b.histogram.below_range = 4;
  TensorStatistics merged = a;
  merged.merge(b);
  EXPECT_EQ(merged.count, 20u);
  EXPECT_EQ(merged.nan, 2u);
  EXPECT_EQ(merged.infinities(), 4u);
  EXPECT_EQ(merged.nonfinite(), 6u);
  EXPECT_EQ(merged.zeros, 4u);
  EXPECT_EQ(merged.finite_nonzero(), 10u);
  EXPECT_EQ(merged.negatives, 6u);
  EXPECT_EQ(merged.smallest, 0.125);
  EXPECT_EQ(merged.largest, 4);
  EXPECT_EQ(merged.sum, 3);
  EXPECT_EQ(merged.sum_of_squares, 40);
  EXPECT_EQ(merged.histogram.bins[125], 12u);
  EXPECT_EQ(merged.histogram.total(), 17u);
}

// 0 means that there is no smallest magnitude.
TEST(TensorStatistics, MergeWithATensorOfZerosKeepsTheSmallestMagnitude) {
  TensorStatistics zeros, ones;
  zeros.count = zeros.zeros = 4;
  ones.count = 4;
  ones.smallest = ones.largest = 1;
  TensorStatistics left = zeros, right = ones;
  left.merge(ones);
  right.merge(zeros);
  EXPECT_EQ(left.smallest, 1);
  EXPECT_EQ(left, right);
}

TEST(Headroom, CountsTheBinadesUpToTheLargestFiniteValue) {
  EXPECT_EQ(headroom(binary16, 65504), 0);
  EXPECT_DOUBLE_EQ(headroom(binary16, 65504 / 1024.0), 10);
  EXPECT_LT(headroom(binary16, 1e6), 0);
  EXPECT_TRUE(std::isnan(headroom(binary16, 0)));
}

}  // namespace
}  // namespace ulpscope
