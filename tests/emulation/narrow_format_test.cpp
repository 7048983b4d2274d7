// The table of narrow formats: a row for each, the right functions in it, and none for a format that only looks like one.
#include "ulpscope/emulation/narrow_format.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ulpscope/base/error.h"
#include "ulpscope/emulation/rounding.h"

namespace ulpscope {
namespace {

TEST(NarrowFormat, RowsRoundAndWidenAsTheirFormat) {
  int rows = 0;
  for (const DTypeInfo& dtype : kDTypes) {
    const FloatFormat* format = dtype.format;
    if (format == nullptr || !is_narrow(*format)) continue;
    const NarrowFormat& narrow = narrow_format(*format);
    ++rows;
    EXPECT_EQ(narrow.format, format);
    EXPECT_EQ(narrow.size, dtype.size);
    const Rounding rounding{.overflow =
                                is_quantized(static_cast<DType>(&dtype - kDTypes.data())) ? Overflow::saturate : Overflow::ieee};
    for (const double value : {1.2345678, -3e-6, 0x1p-140, 1e5, 70000.0, 1e39, HUGE_VAL}) {
      const double expected = round_to_format(*format, value, rounding);
      EXPECT_EQ(narrow.widen(narrow.round(value)), expected);
      const auto wide = static_cast<float>(value);
      const double expected_of_float = round_to_format(*format, wide, rounding);
      uint16_t all[3];
      float back[3];
      const float in[3] = {wide, wide, wide};
      narrow.round_all(in, all, 3);
      narrow.widen_all(all, back, 3);
      EXPECT_EQ(back[2], expected_of_float);
      EXPECT_EQ(narrow.widen_at(all, 2), expected_of_float);
      narrow.round_at(2.0, all, 1);
      EXPECT_EQ(narrow.widen_at(all, 0), expected_of_float);
      EXPECT_EQ(narrow.widen_at(all, 1), 2);
      EXPECT_EQ(narrow.widen_at(narrow.at(all, 1), 1), expected_of_float);
    }
    // Every encoding of 8 bits, and its NaN.
    for (uint64_t bits = 0; dtype.size == 1 && bits < 256; ++bits) {
      const double value = value_of(*format, bits);
      const float widened = narrow.widen(static_cast<uint16_t>(bits));
      EXPECT_TRUE(widened == value || (std::isnan(widened) && std::isnan(value))) << bits;
    }
    EXPECT_TRUE(std::isnan(narrow.widen(narrow.round(NAN))));
    if (format->has_infinity()) {
      EXPECT_EQ(narrow.widen(static_cast<uint16_t>(format->infinity_encoding())), HUGE_VALF);
    }
  }
  EXPECT_EQ(rows, 4);
}

TEST(NarrowFormat, FormatsAreToldApartByThemselves) {
  constexpr FloatFormat other{"fp16", 5, 10, 15};
  EXPECT_THROW(narrow_format(other), Error);
  EXPECT_THROW(narrow_format(binary32), Error);
}

}  // namespace
}  // namespace ulpscope
