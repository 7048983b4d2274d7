// The table of 16-bit formats: a row for each, the right functions in it, and none for a format that only looks like one.
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
    for (const double value : {1.2345678, -3e-6, 0x1p-140, 1e5, 70000.0, 1e39}) {
      const double expected = round_to_format(*format, value);
      const uint16_t bits = narrow.round(value);
      EXPECT_EQ(narrow.widen(bits), expected);
      const auto wide = static_cast<float>(value);
      uint16_t all[3];
      float back[3];
      const float in[3] = {wide, wide, wide};
      narrow.round_all(in, all, 3);
      narrow.widen_all(all, back, 3);
      EXPECT_EQ(back[2], round_to_format(*format, wide));
    }
    EXPECT_EQ(narrow.widen(static_cast<uint16_t>(format->infinity_encoding())), HUGE_VALF);
  }
  EXPECT_EQ(rows, 2);
}

TEST(NarrowFormat, FormatsAreToldApartByThemselves) {
  constexpr FloatFormat other{"fp16", 5, 10, 15};
  EXPECT_THROW(narrow_format(other), Error);
  EXPECT_THROW(narrow_format(binary32), Error);
}

}  // namespace
}  // namespace ulpscope
