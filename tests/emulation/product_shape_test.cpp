// Products of ops by their shapes, and what padding to multiples of 8 makes of them, computed by hand.
#include "ulpscope/emulation/product_shape.h"

#include <gtest/gtest.h>

#include <vector>

namespace ulpscope {
namespace {

using Shape = std::vector<int64_t>;

TEST(ProductShape, OfEachKindOfOp) {
  struct Row {
    ProductKind kind;
    Shape a, b, output;
    int64_t m, n, k, batch;
    const char* padding;
    double padded_over_real;
  };
  const Row rows[] = {
      {ProductKind::linear,
       {32, 100},
       {250, 100},
       {32, 250},
       32,
       250,
       100,
       1,
       "N 250 -> 256, K 100 -> 104",
       256.0 / 250 * 104 / 100},
      {ProductKind::linear, {5, 16}, {}, {5, 8}, 5, 8, 16, 1, "M 5 -> 8", 8.0 / 5},
      {ProductKind::linear, {}, {10, 64}, {2, 4, 10}, 8, 10, 64, 1, "N 10 -> 16", 1.6},
      {ProductKind::matmul, {3, 4, 24, 20}, {3, 4, 20, 24}, {3, 4, 24, 24}, 24, 24, 20, 12, "K 20 -> 24", 1.2},
      {ProductKind::matmul, {24, 80}, {4, 20, 32}, {4, 24, 32}, 24, 32, 20, 4, "K 20 -> 24", 1.2},  // a is seen through a view
      {ProductKind::matmul, {24, 80}, {80, 24}, {4, 24, 32}, 24, 32, -1, 4, "", 1},                 // and b
      {ProductKind::convolution,
       {2, 3, 9, 9},
       {12, 3, 3, 3},
       {2, 12, 7, 7},
       98,
       12,
       3,
       9,
       "N 12 -> 16, K 3 -> 8",
       16.0 / 12 * 8 / 3},
      {ProductKind::convolution, {2, 8, 9, 9}, {16, 2, 3, 3}, {2, 16, 7, 7}, 98, 4, 2, 36, "N 4 -> 8, K 2 -> 8", 8},  // four groups
      {ProductKind::transposed_convolution,
       {2, 8, 9},
       {8, 3, 3},
       {2, 6, 11},
       18,
       3,
       4,
       6,
       "N 3 -> 8, K 4 -> 8",
       8.0 / 3 * 2},  // two
      {ProductKind::convolution, {2, 8, 9}, {16, 8, 3}, {2, 16, 7}, 14, 16, 8, 3, "", 1},
      {ProductKind::transposed_convolution,
       {2, 12, 7, 7},
       {12, 4, 3, 3},
       {2, 4, 9, 9},
       98,
       4,
       12,
       9,
       "N 4 -> 8, K 12 -> 16",
       2.0 * 16 / 12},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(static_cast<int>(row.kind));
    const auto product = product_shape(row.kind, row.a, row.b, row.output);
    ASSERT_TRUE(product);
    EXPECT_EQ(product->m, row.m);
    EXPECT_EQ(product->n, row.n);
    EXPECT_EQ(product->k, row.k);
    EXPECT_EQ(product->batch, row.batch);
    EXPECT_EQ(product->padding(), row.padding);
    EXPECT_DOUBLE_EQ(product->padded_over_real(), row.padded_over_real);
    EXPECT_EQ(product->is_aligned(), *row.padding == '\0');
    const double k = row.k > 0 ? static_cast<double>(row.k) : 1;
    EXPECT_EQ(product->flop(), 2.0 * static_cast<double>(row.batch * row.m * row.n) * k);
  }
}

// FP8 factors take multiples of 16, and traces keep that; those written before it was known have five numbers.
TEST(ProductShape, OfFp8IsPaddedToMultiplesOf16) {
  auto product = product_shape(ProductKind::matmul, Shape{32, 40}, Shape{40, 24}, Shape{32, 24});
  ASSERT_TRUE(product);
  EXPECT_EQ(product->padding(), "");
  for (const FloatFormat* format : {&e4m3, &e5m2}) product->multiple = multiple_for(*format);
  for (const FloatFormat* format : {&binary16, &bfloat16, &binary32}) EXPECT_EQ(multiple_for(*format), 8);
  EXPECT_EQ(product->padding(), "N 24 -> 32, K 40 -> 48");
  EXPECT_DOUBLE_EQ(product->padded_over_real(), 32.0 / 24 * 48 / 40);
  EXPECT_FALSE(product->is_aligned());
  EXPECT_EQ(product->numbers(), (Shape{32, 24, 40, 1, 1, 16}));
  EXPECT_EQ(ProductShape::of(product->numbers()), product);
  const auto older = ProductShape::of(Shape{32, 24, 40, 1, 1});
  ASSERT_TRUE(older);
  EXPECT_EQ(older->padding(), "");
  for (const Shape& numbers : {Shape{}, Shape{32, 24, 40, 1}, Shape{32, 24, 40, 1, 1, 0}, Shape{1, 2, 3, 4, 1, 8, 8}})
    EXPECT_FALSE(ProductShape::of(numbers));
}

TEST(ProductShape, OfOtherOpsAndEmptyTensorsThereIsNone) {
  const Shape shape{4, 4}, empty{0, 4};
  EXPECT_FALSE(product_shape(ProductKind::none, shape, shape, shape));
  EXPECT_FALSE(product_shape(ProductKind::convolution, shape, {}, shape));
  EXPECT_FALSE(product_shape(ProductKind::linear, empty, shape, empty));
}

}  // namespace
}  // namespace ulpscope
