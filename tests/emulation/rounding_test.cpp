// Roundings to f16 and bf16, scalar and on every SIMD target, against the midpoints between neighbouring values.
#include "ulpscope/emulation/rounding.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <string>

#include "tests/emulation/midpoints.h"
#include "tests/support/simd_targets.h"
#include "ulpscope/base/philox.h"
#include "ulpscope/emulation/simd_rounding.h"

namespace ulpscope {
namespace {

struct Case {
  const char* name;
  const FloatFormat& format;
  uint16_t (*round)(float);
  uint16_t (*round_double)(double);
  float (*widen)(uint16_t);
  void (*round_array)(const float*, uint16_t*, size_t);
  void (*widen_array)(const uint16_t*, float*, size_t);
};

const Case kCases[] = {{"f16", binary16, round_to_f16, round_to_f16, f16_to_float, round_to_f16, f16_to_float},
                       {"bf16", bfloat16, round_to_bf16, round_to_bf16, bf16_to_float, round_to_bf16, bf16_to_float}};

uint32_t bits_of(float value) { return std::bit_cast<uint32_t>(value); }

std::string name_of(const testing::TestParamInfo<Case>& format) { return format.param.name; }

class NarrowRounding : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Formats, NarrowRounding, testing::ValuesIn(kCases), name_of);
using NarrowRoundingSlow = NarrowRounding;
INSTANTIATE_TEST_SUITE_P(Formats, NarrowRoundingSlow, testing::ValuesIn(kCases), name_of);

// The bits of the largest FP32 magnitude that rounds to each encoding: the midpoint above it where it is even, else the one below
// the midpoint.
std::vector<uint32_t> last_magnitudes(const FloatFormat& format) {
  std::vector<uint32_t> result;
  for (const double midpoint : midpoints(format)) {
    const auto exact = static_cast<float>(midpoint);
    EXPECT_EQ(static_cast<double>(exact), midpoint);
    result.push_back(bits_of(exact) - result.size() % 2);
  }
  result.push_back(bits_of(std::numeric_limits<float>::infinity()));
  return result;
}

// NaN: quiet, with the sign and the leading payload bits.
uint16_t expected_nan(const FloatFormat& format, uint32_t bits) {
  const uint32_t payload = (bits & 0x7FFFFF) >> (23 - format.fraction_bits);
  return static_cast<uint16_t>((bits >> 31) << 15 | infinity_of(format) | (1u << (format.fraction_bits - 1)) | payload);
}

TEST_P(NarrowRounding, EveryEncodingHasItsValue) {
  const Case& format = GetParam();
  const uint32_t infinity = infinity_of(format.format);
  for (uint32_t encoding = 0; encoding < 0x10000; ++encoding) {
    const uint32_t magnitude = encoding & 0x7FFF;
    const float value = format.widen(static_cast<uint16_t>(encoding));
    ASSERT_EQ(std::signbit(value), encoding >= 0x8000) << encoding;
    if (magnitude > infinity) {
      ASSERT_TRUE(std::isnan(value)) << encoding;
      ASSERT_EQ(bits_of(value) & 0x3FFFFF & (~0u << (23 - format.format.fraction_bits)),
                (magnitude << (23 - format.format.fraction_bits)) & 0x3FFFFF);
    } else if (magnitude == infinity) {
      ASSERT_TRUE(std::isinf(value)) << encoding;
    } else {
      ASSERT_EQ(std::abs(static_cast<double>(value)), finite_value(format.format, magnitude)) << encoding;
    }
    // Back again, from FP32 and from FP64; a NaN comes back quiet.
    const uint16_t back = magnitude > infinity ? encoding | 1u << (format.format.fraction_bits - 1) : encoding;
    ASSERT_EQ(format.round(value), back) << encoding;
    ASSERT_EQ(format.round_double(f32_to_double(value)), back) << encoding;
  }
}

TEST_P(NarrowRounding, EveryTargetWidensEveryEncodingAlike) {
  std::vector<uint16_t> encodings(0x10000);
  for (uint32_t i = 0; i < 0x10000; ++i) encodings[i] = static_cast<uint16_t>(i);
  on_every_target([&](const std::string& target) {
    std::vector<float> values(0x10000);
    GetParam().widen_array(encodings.data(), values.data(), values.size());
    for (uint32_t i = 0; i < 0x10000; ++i)
      ASSERT_EQ(bits_of(values[i]), bits_of(GetParam().widen(encodings[i]))) << target << " " << i;
  });
}

// Rounding changes at the midpoints only, so what is right on both sides of each is right everywhere in between.
TEST_P(NarrowRounding, IsToNearestAndToEvenAtEveryMidpoint) {
  const Case& format = GetParam();
  const std::vector<uint32_t> last = last_magnitudes(format.format);
  std::vector<float> values;
  std::vector<uint16_t> expected;
  for (uint32_t h = 0; h + 1 < last.size(); ++h) {
    for (const uint32_t sign : {0u, 0x8000u}) {
      for (const uint32_t above : {0u, 1u, 2u}) {
        values.push_back(std::bit_cast<float>((last[h] + above) | sign << 16));
        // Two values above the last may be beyond the next encoding's where FP32 is not much finer: never for these formats.
        expected.push_back(static_cast<uint16_t>((h + (above > 0)) | sign));
      }
    }
  }
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(format.round(values[i]), expected[i]) << values[i];
    ASSERT_EQ(format.round_double(f32_to_double(values[i])), expected[i]) << values[i];
  }
  on_every_target([&](const std::string& target) {
    std::vector<uint16_t> rounded(values.size());
    format.round_array(values.data(), rounded.data(), values.size());
    for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(rounded[i], expected[i]) << target << " " << values[i];
  });
}

// One rounding: through FP32, a value next to a midpoint would become the midpoint and then go to even.
TEST_P(NarrowRounding, FromDoubleRoundsOnce) {
  const Case& format = GetParam();
  const std::vector<double> middle = midpoints(format.format);
  for (uint32_t h = 0; h < middle.size(); ++h) {
    for (const double sign : {1.0, -1.0}) {
      const uint32_t sign_bit = sign < 0 ? 0x8000 : 0;
      ASSERT_EQ(format.round_double(sign * std::nextafter(middle[h], 0.0)), h | sign_bit);
      ASSERT_EQ(format.round_double(sign * middle[h]), (h + h % 2) | sign_bit);
      ASSERT_EQ(format.round_double(sign * std::nextafter(middle[h], HUGE_VAL)), (h + 1) | sign_bit);
    }
  }
  ASSERT_EQ(format.round_double(std::numeric_limits<double>::denorm_min()), 0);
  ASSERT_EQ(format.round_double(-std::numeric_limits<double>::denorm_min()), 0x8000);
  ASSERT_EQ(format.round_double(-std::numeric_limits<double>::max()), 0x8000 | infinity_of(format.format));
  ASSERT_EQ(format.round_double(std::numeric_limits<double>::infinity()), infinity_of(format.format));
  // A NaN whose payload is all in the low bits must not become an Inf.
  ASSERT_EQ(format.round_double(std::bit_cast<double>(0xFFF0000000000001)),
            0x8000 | infinity_of(format.format) | 1 << (format.format.fraction_bits - 1));
}

TEST_P(NarrowRounding, NanStaysNanOnEveryTarget) {
  std::vector<float> values;
  for (const uint32_t payload :
       {1u, 2u, 0x1FFFu, 0x2000u, 0xFFFFu, 0x10000u, 0x3FFFFFu, 0x400000u, 0x400001u, 0x7FFFFFu, 0x7FF000u}) {
    for (const uint32_t sign : {0u, 0x80000000u}) values.push_back(std::bit_cast<float>(sign | 0x7F800000u | payload));
  }
  on_every_target([&](const std::string& target) {
    std::vector<uint16_t> rounded(values.size());
    GetParam().round_array(values.data(), rounded.data(), values.size());
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(rounded[i], expected_nan(GetParam().format, bits_of(values[i]))) << target << " " << i;
      ASSERT_EQ(GetParam().round(values[i]), rounded[i]);
    }
  });
}

TEST_P(NarrowRounding, ArraysOfAnyLengthAndAlignmentAreRoundedWhole) {
  constexpr uint16_t kUntouched = 0xBEEF;
  const Philox random(1, 2);
  std::vector<float> values(200);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(random.normal(i));
  on_every_target([&](const std::string& target) {
    for (size_t offset = 0; offset < 4; ++offset) {
      for (size_t count = 0; count < 130; ++count) {
        std::vector<uint16_t> rounded(200, kUntouched);
        GetParam().round_array(values.data() + offset, rounded.data() + offset, count);
        std::vector<float> widened(200, -1.0f);
        GetParam().widen_array(rounded.data() + offset, widened.data() + offset, count);
        for (size_t i = 0; i < 200; ++i) {
          const bool inside = i >= offset && i < offset + count;
          ASSERT_EQ(rounded[i], inside ? GetParam().round(values[i]) : kUntouched) << target << " " << count;
          ASSERT_EQ(widened[i], inside ? GetParam().widen(rounded[i]) : -1.0f) << target << " " << count;
        }
      }
    }
  });
}

// Every FP32 value, scalar and on every target.
TEST_P(NarrowRoundingSlow, IsRightForEveryFloat) {
  const Case& format = GetParam();
  const std::vector<uint32_t> last = last_magnitudes(format.format);
  constexpr uint32_t kChunk = 1 << 16;
  // Sanitizers make this an hour's work: there, every 31st chunk.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  constexpr uint32_t kStride = 31;
#else
  constexpr uint32_t kStride = 1;
#endif
  std::vector<float> values(kChunk);
  std::vector<uint16_t> expected(kChunk), rounded(kChunk);
  const std::vector<int64_t> targets = hwy::SupportedAndGeneratedTargets();
  for (uint32_t chunk = 0; chunk < (1u << 16); chunk += kStride) {
    const uint32_t first = chunk * kChunk, first_magnitude = first & 0x7FFFFFFF;
    auto h = static_cast<uint32_t>(std::lower_bound(last.begin(), last.end(), first_magnitude) - last.begin());
    for (uint32_t i = 0; i < kChunk; ++i) {
      const uint32_t magnitude = first_magnitude + i;
      values[i] = std::bit_cast<float>(first + i);
      if (magnitude > last.back()) {
        expected[i] = expected_nan(format.format, first + i);
      } else {
        h += magnitude > last[h];
        expected[i] = static_cast<uint16_t>(h | (first >> 31) << 15);
      }
    }
    for (uint32_t i = 0; i < kChunk; ++i) rounded[i] = format.round(values[i]);
    ASSERT_EQ(rounded, expected) << "chunk " << chunk;
    for (const int64_t target : targets) {
      hwy::SetSupportedTargetsForTest(target);
      hwy::GetChosenTarget().DeInit();
      format.round_array(values.data(), rounded.data(), kChunk);
      ASSERT_EQ(rounded, expected) << hwy::TargetName(target) << ", chunk " << chunk;
    }
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().DeInit();
}

}  // namespace
}  // namespace ulpscope
