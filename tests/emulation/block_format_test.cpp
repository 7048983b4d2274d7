// Block formats against the rules of OCP MX v1.0 and NVIDIA's NVFP4, followed by hand or with exact rational arithmetic.
#include "ulpscope/emulation/block_format.h"

#include <gmock/gmock.h>
#include <xmmintrin.h>

#include <bit>
#include <cmath>
#include <limits>

#include "tests/emulation/neighbours.h"
#include "tests/emulation/rational_rounding.h"
#include "tests/support/simd_targets.h"
#include "tests/support/usage_error.h"
#include "ulpscope/base/philox.h"
#include "ulpscope/emulation/rounding.h"

namespace ulpscope {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<float> random_values(size_t count, uint64_t stream) {
  const Philox random(5, stream);
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i)
    values[i] = static_cast<float>(std::ldexp(random.normal(i), static_cast<int>(random.below(2 * count + i, 12)) - 6));
  return values;
}

BlockArray quantized(const BlockFormat& format, const BlockAxis& axis, const std::vector<float>& values,
                     const Rounding& rounding = {}) {
  BlockArray array(format, axis);
  quantize(array, values, rounding);
  return array;
}

// MX v1.0, 6.3: the scale is the largest power of two in the block over the largest one of the element.
TEST(BlockFormats, MxfpScalesAreTheQuotientsOfPowersOfTwo) {
  std::vector<float> values(32, 0.0f);
  values[3] = -100;  // 1.5625 * 2^6
  values[4] = 1;
  const BlockArray fp8 = quantized(mxfp8_e4m3, {1, 32, 1}, values);
  EXPECT_EQ(value_of(e8m0, fp8.scales[0]), 0x1p-2);  // 6 - 8: 448 = 1.75 * 2^8
  EXPECT_EQ(value_of(e4m3, fp8.elements[3]), -384);  // -400 lies between -384 and -416, which is odd
  EXPECT_EQ(value_of(e4m3, fp8.elements[4]), 4);
  const BlockArray fp4 = quantized(mxfp4, {1, 32, 1}, values);
  EXPECT_EQ(value_of(e8m0, fp4.scales[0]), 0x1p4);  // 6 - 2: 6 = 1.5 * 2^2
  EXPECT_EQ(value_of(e2m1, fp4.elements[3]), -6);   // -6.25
  EXPECT_EQ(value_of(e2m1, fp4.elements[4]), 0);    // 0.0625
  const BlockArray wide = quantized(mxfp8_e5m2, {1, 32, 1}, values);
  EXPECT_EQ(value_of(e8m0, wide.scales[0]), 0x1p-9);  // 6 - 15
}

// 1.9 * 2^k is beyond 6 / 4 * 2^k: the rule of MX saturates it, the other one takes the next scale.
TEST(BlockFormats, RoundedUpScalesDoNotSaturate) {
  std::vector<float> values(32, 1.9f);
  BlockFormat up = mxfp4;
  up.rule = ScaleRule::round_up;
  const BlockArray floor = quantized(mxfp4, {1, 32, 1}, values), above = quantized(up, {1, 32, 1}, values);
  EXPECT_EQ(value_of(e8m0, floor.scales[0]), 0.25);
  EXPECT_EQ(value_of(e2m1, floor.elements[0]), 6);
  EXPECT_EQ(loss_of(floor, values).saturated, 32u);
  EXPECT_EQ(value_of(e8m0, above.scales[0]), 0.5);
  EXPECT_EQ(value_of(e2m1, above.elements[0]), 4);  // 3.8
  EXPECT_EQ(loss_of(above, values).saturated, 0u);
  values.assign(32, 1.5f);  // 6 / 4 exactly
  EXPECT_EQ(value_of(e8m0, quantized(up, {1, 32, 1}, values).scales[0]), 0.25);
}

// Every element of every format: the quotient by the divisor, as a rational number, rounded by comparing it with its neighbours.
TEST(BlockFormats, ElementsAreTheNearestToTheExactQuotient) {
  const BlockAxis axis{3, 70, 2};  // blocks across memory, the last of a line shorter
  const std::vector<float> values = random_values(axis.size(), 1);
  for (const BlockFormat* format : kBlockFormats) {
    const BlockArray array = quantized(*format, axis, values);
    const size_t blocks_of_line = (axis.length + format->block_size - 1) / format->block_size;
    ASSERT_EQ(array.scales.size(), 6 * blocks_of_line);
    const Neighbours numbers(*format->element);
    for (size_t i = 0; i < values.size(); ++i) {
      const size_t outer = i / (axis.length * axis.inner), along = i / axis.inner % axis.length, inner = i % axis.inner;
      const size_t block = (outer * axis.inner + inner) * blocks_of_line + along / format->block_size;
      float divisor = static_cast<float>(value_of(*format->scale, array.scales[block]));
      if (format->has_tensor_scale) divisor *= array.tensor_scale;
      const Rational quotient = abs(Rational(values[i])) / Rational(divisor);
      const double found = std::fabs(value_of(*format->element, array.elements[i]));
      const auto place = std::lower_bound(numbers.values().begin(), numbers.values().end(), found);
      const size_t at = static_cast<size_t>(place - numbers.values().begin());
      const bool is_even = numbers.encoding(at) % 2 == 0;
      if (at > 0) {
        const Rational middle = (Rational(found) + Rational(numbers.values()[at - 1])) / 2;
        ASSERT_TRUE(quotient > middle || (quotient == middle && is_even)) << format->name << ' ' << i;
      }
      if (at + 1 < numbers.values().size()) {
        const Rational middle = (Rational(found) + Rational(numbers.values()[at + 1])) / 2;
        ASSERT_TRUE(quotient < middle || (quotient == middle && is_even)) << format->name << ' ' << i;
      }
      EXPECT_EQ(std::signbit(value_of(*format->element, array.elements[i])), std::signbit(values[i]));
    }
  }
}

// The vector loops take whole blocks that lie together; with an axis across memory every block goes one value at a time. Values of
// few bits make ties between elements and between scales.
TEST(BlockFormats, GiveTheSameBitsInVectorsOnEveryTarget) {
  const Philox random(6, 7);
  constexpr size_t kBlocks = 67;
  for (const BlockFormat* row : kBlockFormats) {
    for (const ScaleRule rule : {row->rule, ScaleRule::round_up}) {
      if (row->rule == ScaleRule::nearest && rule != row->rule) continue;
      BlockFormat format = *row;
      format.rule = rule;
      const size_t length = format.block_size * kBlocks;
      enum class Range { ordinary, all, tiny };
      for (const Range range : {Range::ordinary, Range::all, Range::tiny}) {
        std::vector<float> values(length);
        for (uint32_t i = 0; i < length; ++i) {
          const uint32_t bits = random.bits(2 * i), few = bits & (~0u << (19 + random.bits(2 * i + 1) % 4));
          const uint32_t field = few >> 23 & 0xFF;
          const uint32_t exponent = range == Range::all ? field : 120 + field % 4;
          // A tensor scale for the tiny ones is the smallest number of FP32, well below the quotient that it stands for.
          values[i] = std::bit_cast<float>(range == Range::tiny ? bits & 0x80000EFF : (few & 0x807FFFFF) | exponent << 23);
          if (!std::isfinite(values[i]) && i / format.block_size % 3 != 0) values[i] = 0;
        }
        // A tensor scale that is a power of two, so that quotients have few bits; and the last value of a scale and the first of
        // the next.
        if (format.has_tensor_scale && range == Range::ordinary) values[0] = 2688 * 0.125f;
        if (!format.has_tensor_scale && range == Range::ordinary) {
          values[0] = static_cast<float>(format.element->largest_finite());
          values[format.block_size] = std::nextafter(values[0], HUGE_VALF);
        }
        // The same numbers as lines across memory.
        const std::vector<float> across = [&] {
          std::vector<float> moved(2 * length);
          for (size_t i = 0; i < length; ++i) moved[2 * i] = moved[2 * i + 1] = values[i];
          return moved;
        }();
        const BlockArray expected = quantized(format, {1, length, 2}, across);
        on_every_target([&](const std::string& target) {
          const BlockArray found = quantized(format, {1, length, 1}, values);
          ASSERT_EQ(found.tensor_scale, expected.tensor_scale);
          for (size_t block = 0; block < kBlocks; ++block)
            ASSERT_EQ(found.scales[block], expected.scales[block]) << format.name << ' ' << target << " block " << block;
          for (size_t i = 0; i < length; ++i)
            ASSERT_EQ(found.elements[i], expected.elements[2 * i]) << format.name << ' ' << target << ' ' << values[i];
        });
      }
    }
  }
}

// The largest magnitude of the tensor is 448 * 6 tensor scales, so its block has the scale 448 and it the element 6.
TEST(BlockFormats, Nvfp4BringsTheLargestScaleToTheEndOfE4m3) {
  std::vector<float> values = random_values(160, 2);
  values[37] = -2688 * 0.125f;  // a tensor scale of 0.125
  for (float& value : values) value = std::clamp(value, -336.0f, 336.0f);
  const BlockArray array = quantized(nvfp4, {1, 160, 1}, values);
  EXPECT_EQ(array.tensor_scale, 0.125f);
  EXPECT_EQ(value_of(e4m3, array.scales[2]), 448);
  EXPECT_EQ(value_of(e2m1, array.elements[37]), -6);
  std::vector<float> back(160);
  dequantize(array, back);
  EXPECT_EQ(back[37], -336.0f);
}

// With every rule: m is divided by the tensor's scale before the block's follows from it.
TEST(BlockFormats, TensorScalesGoWithEveryRule) {
  const std::vector<float> values = random_values(320, 4);
  for (const ScaleRule rule : {ScaleRule::floor, ScaleRule::round_up}) {
    BlockFormat format = nvfp4;
    format.rule = rule;
    const BlockArray array = quantized(format, {1, 320, 1}, values);
    for (size_t block = 0; block < 20; ++block) {
      float largest = 0;
      for (size_t i = 16 * block; i < 16 * (block + 1); ++i) largest = std::max(largest, std::fabs(values[i]));
      const Rational m = Rational(largest) / Rational(array.tensor_scale), scale = exact_value(e4m3, array.scales[block]);
      if (scale == exact_value(e4m3, 1) || scale >= 256) continue;  // the ends of e4m3
      if (rule == ScaleRule::floor) {
        EXPECT_GE(m, scale * 4) << "of l = 6 = 1.5 * 2^2";
        EXPECT_LT(m, scale * 8);
      } else {
        EXPECT_LE(m, scale * 6);
        EXPECT_GT(m, scale * 3);
      }
    }
    EXPECT_LT(loss_of(array, values).noise, loss_of(array, values).signal / 10);
  }
}

// The tensor's scale, or its product with the block's, would be zero in FP32.
TEST(BlockFormats, TheLeastNumbersDoNotBecomeTheLargest) {
  for (const float least : {9e-40f, 1.7e-42f, 0x1p-149f}) {
    std::vector<float> values(32, -0.0f);
    std::fill(values.begin(), values.begin() + 16, least);
    values[16] = 0;
    const BlockArray array = quantized(nvfp4, {1, 32, 1}, values);
    std::vector<float> back(32);
    dequantize(array, back);
    const QuantizationLoss loss = loss_of(array, values);
    EXPECT_EQ(loss.flushed, back[0] == 0 ? 16u : 0u);
    EXPECT_EQ(loss.saturated, 0u);
    EXPECT_NEAR(static_cast<double>(back[0]), static_cast<double>(least), static_cast<double>(least) / 4 + 0x1p-149);
    EXPECT_EQ(array.elements[16], 0) << "a zero";
    EXPECT_EQ(array.elements[17], 8) << "-0";
  }
}

TEST(BlockFormats, DoNotDependOnTheModesOfTheCpu) {
  const std::vector<float> values{0x1p-127f, 0x1p-130f, 1, 3, 0.1f, 0.77f};
  for (const BlockFormat* format : kBlockFormats) {
    const BlockArray expected = quantized(*format, {1, 6, 1}, values);
    std::vector<float> back(6), again(6);
    dequantize(expected, back);
    const QuantizationLoss loss = loss_of(expected, values);
    const unsigned before = _mm_getcsr();
    for (const unsigned mode : {0x8040u, 0x4000u, 0x2000u}) {
      _mm_setcsr(before | mode);
      const BlockArray array = quantized(*format, {1, 6, 1}, values);
      dequantize(array, again);
      const QuantizationLoss lost = loss_of(array, values);
      _mm_setcsr(before);
      EXPECT_EQ(array.elements, expected.elements) << format->name;
      EXPECT_EQ(array.scales, expected.scales) << format->name;
      EXPECT_EQ(array.tensor_scale, expected.tensor_scale) << format->name;
      EXPECT_EQ(again, back) << format->name;
      EXPECT_EQ(lost.flushed, loss.flushed) << format->name;
      EXPECT_EQ(lost.noise, loss.noise) << format->name;
    }
  }
}

TEST(BlockFormats, NonfiniteBlocksAreNanAndZerosStayZeros) {
  for (const BlockFormat* format : kBlockFormats) {
    std::vector<float> values = random_values(3 * format->block_size, 3);
    const size_t second = format->block_size;
    values[second + 1] = std::numeric_limits<float>::infinity();
    std::fill(values.begin() + static_cast<long>(2 * second), values.end(), -0.0f);
    const BlockArray array = quantized(*format, {1, values.size(), 1}, values);
    std::vector<float> back(values.size());
    dequantize(array, back);
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_EQ(std::isnan(back[i]), i / second == 1) << format->name;
      EXPECT_TRUE(i / second < 2 || (back[i] == 0 && std::signbit(back[i]))) << format->name;
    }
    EXPECT_EQ(value_of(*format->scale, array.scales[2]), format->scale->smallest_positive());
    EXPECT_EQ(loss_of(array, values).nonfinite_blocks, 1u);
  }
}

TEST(BlockFormats, LossIsCountedElementByElement) {
  // Divided by the scale 1: 4, 3.5 (to 4), 6.5 (beyond), 0.2 (to 0), 0.5 (subnormal), 0.
  std::vector<float> values{4, 3.5f, 6.5f, 0.2f, -0.5f, 0};
  const BlockArray array = quantized(mxfp4, {1, 6, 1}, values);
  const QuantizationLoss loss = loss_of(array, values);
  EXPECT_EQ(loss.elements, 6u);
  EXPECT_EQ(loss.inexact, 3u);
  EXPECT_EQ(loss.saturated, 1u);
  EXPECT_EQ(loss.flushed, 1u);
  EXPECT_EQ(loss.subnormal, 1u);
  EXPECT_DOUBLE_EQ(loss.noise, 0.25 + 0.25 + static_cast<double>(0.2f) * static_cast<double>(0.2f));
  EXPECT_EQ(loss.largest_error, 0.5);
  EXPECT_EQ(loss_of(quantized(mxfp8_e4m3, {1, 2, 1}, {1, 2}), std::vector<float>{1, 2}).signal_to_noise(), HUGE_VAL);
  // What comes back as it was is exact, though the product of number and divisor has more bits than FP32.
  const std::vector<float> largest{4.33462048f, 1};
  const BlockArray quotients = quantized(nvfp4, {1, 2, 1}, largest);
  std::vector<float> back(2);
  dequantize(quotients, back);
  EXPECT_EQ(back[0], largest[0]);
  EXPECT_EQ(loss_of(quotients, largest).inexact, 1u);
}

TEST(BlockFormats, WhatDoesNotFitIsRefused) {
  BlockFormat none = mxfp4;
  none.block_size = 0;
  EXPECT_THAT(usage_error_of([&] {
                quantized(none, {1, 4, 1}, {1, 2, 3, 4});
              }),
              HasSubstr("mxfp4: expected a block size of at least 1, got 0"));
  EXPECT_THAT(usage_error_of([&] { quantized(mxfp4, {2, 4, 1}, {1, 2, 3, 4}); }), HasSubstr("expected 2 x 4 x 1 values, got 4"));
  const size_t half = size_t{1} << 32;  // of them the product is 0 in 64 bits
  EXPECT_THAT(usage_error_of([&] {
                quantized(mxfp4, {half, half, 1}, {});
              }),
              HasSubstr("expected 4294967296 x 4294967296 x 1 values, got 0"));
  BlockArray array(mxfp4, {1, 3, 1});
  EXPECT_EQ(usage_error_of([&] { quantize(array, {static_cast<const float*>(nullptr), 3}); }), "mxfp4: 3 values at a null pointer");
  std::vector<float> values(3);
  EXPECT_EQ(usage_error_of([&] { dequantize(array, values); }),
            "mxfp4: expected a quantized array of 3 elements and 1 scales, got 0 and 0");
  BlockFormat wide = mxfp4;
  wide.element = &binary16;
  EXPECT_EQ(usage_error_of([&] {
              quantized(wide, {1, 1, 1}, {1});
            }),
            "mxfp4: expected elements and scales of up to 8 bits, got fp16, which has 16");
  BlockFormat without_nan = mxfp4;
  without_nan.scale = &e2m1;
  EXPECT_EQ(usage_error_of([&] {
              quantized(without_nan, {1, 1, 1}, {1});
            }),
            "mxfp4: expected scales in a format with NaN, which blocks with NaN or Inf have, got e2m1");
  BlockFormat scaled_twice = mxfp4;
  scaled_twice.has_tensor_scale = true;
  EXPECT_EQ(usage_error_of([&] {
              quantized(scaled_twice, {1, 1, 1}, {1});
            }),
            "mxfp4: a tensor scale is for block scales within the range of fp32, got e8m0");
  EXPECT_THAT(usage_error_of([] { find_block_format("mxfp5"); }), HasSubstr("expected mxfp8_e4m3"));
}

}  // namespace
}  // namespace ulpscope
