#include "ulpscope/emulation/format.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <string>

#include "tests/support/usage_error.h"

namespace ulpscope {
namespace {

TEST(FloatFormat, Fp16HasItsLimits) {
  EXPECT_EQ(binary16.largest_finite(), 65504);      // (2 - 2^-10) * 2^15
  EXPECT_EQ(binary16.overflow_threshold(), 65520);  // (2 - 2^-11) * 2^15
  EXPECT_EQ(binary16.smallest_normal(), 0x1p-14);
  EXPECT_EQ(binary16.smallest_positive(), 0x1p-24);  // 2^-14 / 2^10
  EXPECT_EQ(binary16.flush_threshold(), 0x1p-25);
  EXPECT_EQ(binary16.storage_bits(), 16);
}

TEST(FloatFormat, Bf16HasItsLimits) {
  EXPECT_EQ(bfloat16.largest_finite(), (2 - 0x1p-7) * 0x1p127);
  EXPECT_EQ(bfloat16.overflow_threshold(), (2 - 0x1p-8) * 0x1p127);
  EXPECT_EQ(bfloat16.smallest_normal(), 0x1p-126);
  EXPECT_EQ(bfloat16.smallest_positive(), 0x1p-133);  // 2^-126 / 2^7
  EXPECT_EQ(bfloat16.flush_threshold(), 0x1p-134);
  EXPECT_EQ(bfloat16.storage_bits(), 16);
}

TEST(FloatFormat, Fp32AndFp64HaveThoseOfTheLanguage) {
  EXPECT_EQ(binary32.largest_finite(), std::numeric_limits<float>::max());
  EXPECT_EQ(binary32.smallest_normal(), std::numeric_limits<float>::min());
  EXPECT_EQ(binary32.smallest_positive(), std::numeric_limits<float>::denorm_min());
  EXPECT_EQ(binary64.largest_finite(), std::numeric_limits<double>::max());
  EXPECT_EQ(binary64.smallest_normal(), std::numeric_limits<double>::min());
  EXPECT_EQ(binary64.smallest_positive(), std::numeric_limits<double>::denorm_min());
}

// Largest finite, smallest normal and smallest number as the Open Compute Project's OFP8 and Microscaling documents and ONNX (fnuz)
// print them.
TEST(FloatFormat, NarrowerOnesHaveTheLimitsOfTheirStandards) {
  struct Row {
    const FloatFormat* format;
    double largest, normal, smallest, overflow;
  };
  const Row rows[] = {{&e4m3, 448, 0x1p-6, 0x1p-9, std::nextafter(464.0, 500)},
                      {&e4m3_ieee, 240, 0x1p-6, 0x1p-9, 248},
                      {&e4m3_fnuz, 240, 0x1p-7, 0x1p-10, 248},
                      {&e5m2, 57344, 0x1p-14, 0x1p-16, 61440},
                      {&e5m2_fnuz, 57344, 0x1p-15, 0x1p-17, 61440},
                      {&e3m2, 28, 0.25, 0.0625, 30},
                      {&e2m3, 7.5, 1, 0.125, 7.75},
                      {&e2m1, 6, 1, 0.5, 7},
                      {&e8m0, 0x1p127, 0x1p-127, 0x1p-127, 1.5 * 0x1p127},
                      {&tensor_float32, (2 - 0x1p-10) * 0x1p127, 0x1p-126, 0x1p-136, (2 - 0x1p-11) * 0x1p127}};
  for (const Row& row : rows) {
    EXPECT_EQ(row.format->largest_finite(), row.largest) << row.format->name;
    EXPECT_EQ(row.format->smallest_normal(), row.normal) << row.format->name;
    EXPECT_EQ(row.format->smallest_positive(), row.smallest) << row.format->name;
    EXPECT_EQ(row.format->overflow_threshold(), row.overflow) << row.format->name;
  }
  EXPECT_EQ(e8m0.flush_threshold(), 0);
}

TEST(FloatFormat, IsFoundByName) {
  for (const FloatFormat* format : kFormats) {
    EXPECT_EQ(find_format(format->name), format);
    EXPECT_EQ(&parse_format(format->name), format);
  }
  EXPECT_EQ(find_format("fp8"), nullptr);
  EXPECT_EQ(find_format("half"), &binary16);
  EXPECT_EQ(find_format("BF16"), &bfloat16);
  EXPECT_EQ(&parse_format("E5M10"), &binary16);
  EXPECT_EQ(&parse_format("E4M3FN:BIAS=11"), &parse_format("e4m3fn:bias=11"));
}

TEST(FloatFormat, IsReadFromItsBits) {
  EXPECT_EQ(&parse_format("e5m10"), &binary16);
  EXPECT_EQ(&parse_format("e8m7ieee"), &bfloat16);
  EXPECT_EQ(&parse_format("e8m23"), &binary32);
  EXPECT_EQ(&parse_format("e4m3fn:bias=7"), &e4m3);
  EXPECT_EQ(&parse_format("e2m1finite"), &e2m1);
  EXPECT_EQ(&parse_format("e4m3ieee:largest=240"), &e4m3_ieee);
  const FloatFormat& wide = parse_format("e6m9");
  EXPECT_EQ(wide.bias, 31);
  EXPECT_EQ(wide.largest_finite(), (2 - 0x1p-9) * 0x1p31);
  EXPECT_EQ(&parse_format("e6m9:bias=31"), &wide);
  // With options a row stays what it is otherwise.
  EXPECT_EQ(&parse_format("e4m3:bias=7"), &e4m3);
  EXPECT_EQ(&parse_format("e4m3:bias=11"), &parse_format("e4m3fn:bias=11"));
  EXPECT_EQ(&parse_format("e5m2fnuz:bias=16"), &e5m2_fnuz);
  EXPECT_EQ(&parse_format("e2m1:bias=2"), &parse_format("e2m1finite:bias=2"));
  EXPECT_EQ(&parse_format("half:subnormals=no"), &parse_format("e5m10:subnormals=no"));
  EXPECT_EQ(parse_format("fp16:subnormals=no").smallest_positive(), 0x1p-14);
  EXPECT_EQ(parse_format("e1m3").epsilon(), 0.25) << "1 is the subnormal number 4 * 2^-2, which 5 * 2^-2 comes after";
  // A name is a text that gives the format back.
  for (const char* text : {"e6m9", "e4m3fn:bias=11", "e4m2:subnormals=no", "e4m3fn:largest=240", "e3m3fnuz", "e3m2ieee", "e5m0fn",
                           "e0m6finite", "e3m2:bias=2", "fp16:subnormals=no", "e5m2:bias=14"}) {
    const FloatFormat& format = parse_format(text);
    EXPECT_EQ(&parse_format(format.name), &format) << text << " is called " << format.name;
  }
}

TEST(FloatFormat, ThatCannotBeIsRefusedWithTheReason) {
  const auto message = [](const char* text) { return usage_error_of([&] { parse_format(text); }); };
  using testing::HasSubstr;
  EXPECT_THAT(message("fp61"), HasSubstr("format 'fp61': expected a name"));
  EXPECT_THAT(message("e4m3nf"), HasSubstr("expected a name"));
  EXPECT_THAT(message("foo"), HasSubstr("'foo': expected a name (fp16, bf16, tf32, "));
  EXPECT_THAT(message("bfp16"), HasSubstr("did you mean 'fp16'?"));
  EXPECT_THAT(message("bf17"), HasSubstr("did you mean 'bf16'?"));
  EXPECT_THAT(message("e5m10:bias=15:bias=16"), HasSubstr("bias: given twice"));
  EXPECT_THAT(message("e4m3fn:largest=240:largest=240"), HasSubstr("largest: given twice"));
  EXPECT_THAT(message("e4m3fn:subnormals=no:subnormals=yes"), HasSubstr("subnormals: given twice"));
  EXPECT_THAT(message("e0m7"), HasSubstr("without exponent bits there is no Inf"));
  EXPECT_THAT(message("e5m0"), HasSubstr("no encoding for NaN"));
  EXPECT_THAT(message("e5m24"), HasSubstr("at most 8 exponent and 23 fraction bits"));
  EXPECT_THAT(message("e9m3"), HasSubstr("at most 8 exponent and 23 fraction bits"));
  EXPECT_THAT(message("e8m7:bias=300"), HasSubstr("numbers go from 2^-306"));
  EXPECT_THAT(message("e4m3fn:largest=441"), HasSubstr("largest: 441 is none of its numbers, which end at 448"));
  EXPECT_THAT(message("e4m3:bias"), HasSubstr("expected bias=B"));
  EXPECT_THAT(message("e-4m3"), HasSubstr("expected a name"));
  EXPECT_THAT(message("e99999999999m3"), HasSubstr("expected a name"));
  EXPECT_THAT(message(""), HasSubstr("expected a name"));
  EXPECT_THAT(message("e8m0:bias=127"), HasSubstr("e8m0 takes no options"));
  EXPECT_THAT(message("fp64:bias=1000"), HasSubstr("fp64 takes no options"));
  EXPECT_THAT(message("e4m3x:bias=1"), HasSubstr("expected a name"));
  EXPECT_THAT(message("e1m0fn"), HasSubstr("its only number would be zero"));
  EXPECT_THAT(message("e4m3:largest=1e400"), HasSubstr("largest: expected a decimal number above zero, of fp32's range"));
  EXPECT_THAT(message("e4m3fn:bias=99999999999"), HasSubstr("bias: expected an integer"));
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
