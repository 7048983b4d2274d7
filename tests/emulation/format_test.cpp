#include "ulpscope/emulation/format.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace ulpscope {
namespace {

TEST(FloatFormat, Fp16HasItsLimits) {
  EXPECT_EQ(binary16.largest_finite(), 65504);      // (2 - 2^-10) * 2^15
  EXPECT_EQ(binary16.overflow_threshold(), 65520);  // (2 - 2^-11) * 2^15
  EXPECT_EQ(binary16.smallest_normal(), 0x1p-14);
  EXPECT_EQ(binary16.smallest_subnormal(), 0x1p-24);  // 2^-14 / 2^10
  EXPECT_EQ(binary16.flush_threshold(), 0x1p-25);
  EXPECT_EQ(binary16.storage_bits(), 16);
}

TEST(FloatFormat, Bf16HasItsLimits) {
  EXPECT_EQ(bfloat16.largest_finite(), (2 - 0x1p-7) * 0x1p127);
  EXPECT_EQ(bfloat16.overflow_threshold(), (2 - 0x1p-8) * 0x1p127);
  EXPECT_EQ(bfloat16.smallest_normal(), 0x1p-126);
  EXPECT_EQ(bfloat16.smallest_subnormal(), 0x1p-133);  // 2^-126 / 2^7
  EXPECT_EQ(bfloat16.flush_threshold(), 0x1p-134);
  EXPECT_EQ(bfloat16.storage_bits(), 16);
}

TEST(FloatFormat, Fp32AndFp64HaveThoseOfTheLanguage) {
  EXPECT_EQ(binary32.largest_finite(), std::numeric_limits<float>::max());
  EXPECT_EQ(binary32.smallest_normal(), std::numeric_limits<float>::min());
  EXPECT_EQ(binary32.smallest_subnormal(), std::numeric_limits<float>::denorm_min());
  EXPECT_EQ(binary64.largest_finite(), std::numeric_limits<double>::max());
  EXPECT_EQ(binary64.smallest_normal(), std::numeric_limits<double>::min());
  EXPECT_EQ(binary64.smallest_subnormal(), std::numeric_limits<double>::denorm_min());
}

TEST(FloatFormat, IsFoundByName) {
  for (const FloatFormat* format : {&binary16, &bfloat16, &binary32, &binary64}) EXPECT_EQ(find_format(format->name), format);
  EXPECT_EQ(find_format("fp8"), nullptr);
}

TEST(DType, HasTheSizeOfItsFormat) {
  for (const DTypeInfo& dtype : kDTypes) {
    if (dtype.format) {
      EXPECT_EQ(dtype.size * 8, static_cast<size_t>(dtype.format->storage_bits()));
    }
  }
  EXPECT_EQ(info(DType::f16).format, &binary16);
  EXPECT_EQ(info(DType::bf16).format, &bfloat16);
  EXPECT_FALSE(is_float(DType::boolean));
}

}  // namespace
}  // namespace ulpscope
