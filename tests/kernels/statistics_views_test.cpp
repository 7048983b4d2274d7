// Views: layouts, single elements, samples, and the statistics of data types and strides other than those of the FP32 kernels.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/kernels/statistics_support.h"
#include "ulpscope/base/error.h"
#include "ulpscope/emulation/rounding.h"
#include "ulpscope/kernels/op_call.h"
#include "ulpscope/kernels/statistics_reference.h"

namespace ulpscope {
namespace {

using namespace testing_support;

TensorView make_view(const void* data, DType dtype, std::initializer_list<int64_t> shape, std::initializer_list<int64_t> strides) {
  TensorView view;
  view.data = const_cast<void*>(data);
  view.dtype = dtype;
  view.rank = static_cast<int>(shape.size());
  std::copy(shape.begin(), shape.end(), view.shape.begin());
  std::copy(strides.begin(), strides.end(), view.strides.begin());
  return view;
}

const auto contiguous = [] { return make_view(nullptr, DType::f32, {2, 3, 4, 5}, {60, 20, 5, 1}); };
const auto channels_last = [] { return make_view(nullptr, DType::f32, {2, 3, 4, 5}, {60, 1, 15, 3}); };

TEST(View, KnowsDenseFromContiguousFromNeither) {
  EXPECT_TRUE(is_dense(contiguous()));
  EXPECT_TRUE(is_contiguous(contiguous()));
  EXPECT_TRUE(is_dense(channels_last()));
  EXPECT_FALSE(is_contiguous(channels_last()));
  EXPECT_FALSE(is_dense(make_view(nullptr, DType::f32, {4, 4}, {8, 1})));  // gaps
  EXPECT_FALSE(is_dense(make_view(nullptr, DType::f32, {4, 4}, {0, 1})));  // repeats
  EXPECT_FALSE(is_dense(make_view(nullptr, DType::f32, {4, 4}, {1, 1})));  // overlaps
  // Strides of extents of 1 do not matter, nor do those of a view without elements.
  EXPECT_TRUE(is_contiguous(make_view(nullptr, DType::f32, {1, 5, 1}, {77, 1, 0})));
  EXPECT_TRUE(is_dense(make_view(nullptr, DType::f32, {0, 5}, {3, 9})));
  EXPECT_TRUE(is_contiguous(make_view(nullptr, DType::f32, {}, {})));
}

TEST(View, SameLayoutMeansSameOffsets) {
  EXPECT_TRUE(same_layout(contiguous(), contiguous()));
  EXPECT_FALSE(same_layout(contiguous(), channels_last()));
  EXPECT_TRUE(same_layout(make_view(nullptr, DType::f32, {1, 5}, {5, 1}), make_view(nullptr, DType::f16, {1, 5}, {99, 1})));
  EXPECT_FALSE(same_layout(make_view(nullptr, DType::f32, {5}, {1}), make_view(nullptr, DType::f32, {1, 5}, {5, 1})));
}

TEST(View, OffsetsAndIndicesAreInverse) {
  for (const TensorView& view : {contiguous(), channels_last(), make_view(nullptr, DType::f32, {3, 1, 4}, {1, 7, 3})}) {
    int64_t index = 0;
    std::vector<bool> seen(view.size());
    // Against nested loops.
    const auto walk = [&](const auto& self, int dimension, int64_t offset) -> void {
      if (dimension == view.rank) {
        EXPECT_EQ(offset_of(view, index), offset);
        EXPECT_EQ(index_at(view, offset), index);
        seen[offset] = true;
        ++index;
        return;
      }
      for (int64_t i = 0; i < view.shape[dimension]; ++i) self(self, dimension + 1, offset + i * view.strides[dimension]);
    };
    walk(walk, 0, 0);
    EXPECT_TRUE(std::all_of(seen.begin(), seen.end(), [](bool was) { return was; }));
  }
}

TEST(ReadElement, ReadsEveryType) {
  const double f64[] = {0, 1e300};
  const float f32[] = {0, from_bits(1)};
  const uint16_t f16[] = {0, 0xBC01}, bf16[] = {0, 0x3F81};
  const int64_t i64[] = {0, -5000000000};
  const int32_t i32[] = {0, -7};
  const uint8_t u8[] = {0, 200};
  EXPECT_EQ(read_element(vector_view(f64, DType::f64, 2), 1), 1e300);
  EXPECT_EQ(read_element(vector_view(f32, DType::f32, 2), 1), 0x1p-149);
  EXPECT_EQ(read_element(vector_view(f16, DType::f16, 2), 1), -(1 + 0x1p-10));
  EXPECT_EQ(read_element(vector_view(bf16, DType::bf16, 2), 1), 1 + 0x1p-7);
  EXPECT_EQ(read_element(vector_view(i64, DType::i64, 2), 1), -5e9);
  EXPECT_EQ(read_element(vector_view(i32, DType::i32, 2), 1), -7);
  EXPECT_EQ(read_element(vector_view(u8, DType::u8, 2), 1), 200);
  // By logical index: element (1, 0) of a transposed 2 x 3 matrix is element (0, 1) of the matrix.
  const float matrix[] = {0, 1, 2, 3, 4, 5};
  EXPECT_EQ(read_element(make_view(matrix, DType::f32, {3, 2}, {1, 3}), 2), 1);
}

// 16-bit tensors as they are stored, on every target, over all encodings and in pieces that fill no vector.
TEST(StatisticsOfViews, SixteenBitTypesAreWidenedExactly) {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    std::vector<uint16_t> encodings(0x10000 + 4321);
    std::iota(encodings.begin(), encodings.end(), uint16_t{0});
    std::vector<float> wide(encodings.size());
    std::transform(encodings.begin(), encodings.end(), wide.begin(), dtype == DType::f16 ? f16_to_float : bf16_to_float);
    on_every_target([&] {
      for (const int64_t n : {int64_t{0}, int64_t{1}, int64_t{77}, int64_t{8192}, static_cast<int64_t>(wide.size())}) {
        const TensorStatistics expected = reference_statistics(wide.data(), n);
        expect_same(collect(vector_view(encodings.data(), dtype, n)).statistics, expected);
        const OutputRecord health = collect(vector_view(encodings.data(), dtype, n), StatisticsLevel::health);
        EXPECT_EQ(health.statistics.count, expected.count);
        EXPECT_EQ(health.statistics.nan, expected.nan);
        EXPECT_EQ(health.statistics.positive_infinity, expected.positive_infinity);
        EXPECT_EQ(health.statistics.negative_infinity, expected.negative_infinity);
        EXPECT_EQ(health.statistics.zeros, expected.zeros);
        EXPECT_FALSE(health.rounding_known);
        EXPECT_FALSE(health.before_rounding);
      }
    });
  }
}

// A dense view is taken in the order of its memory, whatever its dimensions; any other in logical order.
TEST(StatisticsOfViews, GapsAndRepeatsAreSkippedAndRepeated) {
  const std::vector<float> memory = make(Data::every_finite, 300 * 200);
  for (const auto& view :
       {make_view(memory.data(), DType::f32, {150, 100}, {400, 2}), make_view(memory.data(), DType::f32, {100, 70}, {1, 400}),
        make_view(memory.data() + 5, DType::f32, {90, 3, 200}, {200, 0, 1}), make_view(memory.data(), DType::f32, {7}, {0})}) {
    std::vector<float> logical(view.size());
    for (int64_t i = 0; i < view.size(); ++i) logical[i] = memory[(view.as<float>() - memory.data()) + offset_of(view, i)];
    const TensorStatistics expected = reference_statistics(logical.data(), view.size());
    expect_same(collect(view).statistics, expected);
    expect_same(collect(view, StatisticsLevel::values, threads_for(3)).statistics, expected);
  }
  const auto transposed = make_view(memory.data(), DType::f32, {200, 300}, {1, 200});
  expect_same(collect(transposed).statistics, reference_statistics(memory.data(), 300 * 200));
}

TEST(StatisticsOfViews, IntegersGiveCountAndZeros) {
  const int64_t i64[] = {0, -1, 5, 0, 0};
  const uint8_t flags[] = {1, 0, 1, 1, 0};
  const OutputRecord record = collect(vector_view(i64, DType::i64, 5));
  EXPECT_EQ(record.known, StatisticsLevel::values);
  EXPECT_EQ(record.statistics.count, 5u);
  EXPECT_EQ(record.statistics.zeros, 3u);
  EXPECT_EQ(record.statistics.largest, 0);
  EXPECT_EQ(collect(vector_view(flags, DType::boolean, 5)).statistics.zeros, 2u);
  EXPECT_EQ(collect(make_view(flags, DType::u8, {2, 2}, {3, 0})).statistics.zeros, 0u);
}

TEST(FirstNonfinite, IsTheFirstInLogicalOrder) {
  std::vector<float> memory(2 * 3 * 4 * 5, 1.0f);
  TensorView view = channels_last();
  view.data = memory.data();
  EXPECT_EQ(first_nonfinite(view), -1);
  memory[offset_of(view, 100)] = NAN;
  EXPECT_EQ(first_nonfinite(view), 100);
  memory[offset_of(view, 37)] = -HUGE_VALF;  // at a greater offset than element 60, say
  EXPECT_EQ(first_nonfinite(view), 37);
  const int64_t labels[] = {1, 2};
  EXPECT_EQ(first_nonfinite(vector_view(labels, DType::i64, 2)), -1);
  const uint16_t narrow[] = {0x3C00, 0x7BFF, 0x7C00};
  EXPECT_EQ(first_nonfinite(vector_view(narrow, DType::f16, 3)), 2);
  EXPECT_EQ(first_nonfinite(vector_view(narrow, DType::bf16, 3)), -1);
}

TEST(FirstNonfinite, IsFoundAtEveryPosition) {
  std::vector<float> values = make(Data::normal, 8192 + 100);
  on_every_target([&] {
    for (const size_t position : {0, 1, 15, 16, 63, 64, 8191, 8192, 8193, 8291}) {
      const float ordinary = std::exchange(values[position], HUGE_VALF);
      EXPECT_EQ(first_nonfinite(vector_view(values.data(), DType::f32, 8292)), static_cast<int64_t>(position));
      values[position] = ordinary;
    }
  });
}

TEST(Samples, LieEvenlyInLogicalOrder) {
  std::vector<float> values(1000);
  std::iota(values.begin(), values.end(), 0.0f);
  OutputRecord record;
  record.samples_wanted = 16;
  collect_samples(make_view(values.data(), DType::f32, {10, 100}, {1, 10}), record);  // element (i, j) is i + 10 j
  ASSERT_EQ(record.samples, 16);
  for (int k = 0; k < 16; ++k) {
    const int64_t index = k * 1000 / 16;
    EXPECT_EQ(record.sample_elements[k], index);
    EXPECT_EQ(record.sample_values[k], index / 100 + index % 100 * 10);
  }
  collect_samples(vector_view(values.data(), DType::f32, 3), record);
  EXPECT_EQ(record.samples, 3);
  collect_samples(vector_view(values.data(), DType::f32, 0), record);
  EXPECT_EQ(record.samples, 0);
}

TEST(OpAttributes, AreFoundByNameAndReplaced) {
  Attributes attributes{{"alpha", 2}, {"beta", 3}};
  attributes.set("alpha", 5);
  EXPECT_EQ(attributes["alpha"], 5);
  EXPECT_EQ(attributes.items().size(), 2u);
  EXPECT_EQ(attributes.value_or("gamma", 9), 9);
  EXPECT_THROW(attributes["gamma"], Error);
  const char* names[] = {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n"};
  for (const char* name : names) attributes.set(name, 1);
  EXPECT_THROW(attributes.set("one more", 1), Error);
}

}  // namespace
}  // namespace ulpscope
