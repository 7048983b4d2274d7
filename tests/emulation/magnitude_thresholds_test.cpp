// Thresholds of magnitudes against what encode makes of the numbers at and next to them, of both signs and with extreme random
// bits.
#include "ulpscope/emulation/magnitude_thresholds.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "ulpscope/emulation/rounding.h"

namespace ulpscope {
namespace {

struct Fates {
  bool all = true, some = false;
};

// Whether `below` holds of what rounding makes of the magnitude.
Fates fates_of(double magnitude, const FloatFormat& format, const Rounding& rounding, const std::function<bool(double)>& below) {
  Fates fates;
  for (const double value : {magnitude, -magnitude}) {
    for (const uint32_t random : {0u, ~0u}) {
      const bool is_below = below(std::fabs(round_to_format(format, value, rounding, random)));
      fates.all = fates.all && is_below;
      fates.some = fates.some || is_below;
    }
  }
  return fates;
}

void expect_threshold(const MagnitudeThreshold& threshold, const FloatFormat& format, const Rounding& rounding,
                      const std::function<bool(double)>& below) {
  const auto at = [&](double magnitude) { return fates_of(magnitude, format, rounding, below); };
  EXPECT_TRUE(threshold.surely_below == 0 || at(threshold.surely_below).all) << threshold.surely_below;
  EXPECT_FALSE(at(threshold.perhaps_above()).all) << threshold.perhaps_above();
  EXPECT_TRUE(threshold.perhaps_below == 0 || at(threshold.perhaps_below).some) << threshold.perhaps_below;
  EXPECT_FALSE(at(threshold.surely_above()).some) << threshold.surely_above();
}

TEST(MagnitudeThresholds, AreWhereEncodeTurns) {
  std::vector<const FloatFormat*> formats(kFormats.begin(), kFormats.end());
  formats.push_back(&parse_format("e3m0fn"));  // whose significands are all odd
  for (const FloatFormat* row : formats) {
    const FloatFormat& format = *row;
    if (!format.has_zero() || &format == &binary64) continue;
    FloatFormat wider = format;  // the same numbers, and those that come after the largest
    wider.exponent_bits += 1;
    wider.special_values = SpecialValues::ieee;
    const double normal = format.smallest_normal(), largest = format.largest_finite();
    for (const RoundingModeName& mode : rounding_modes()) {
      for (const SubnormalResults subnormals : {SubnormalResults::keep, SubnormalResults::flush}) {
        SCOPED_TRACE(std::string(format.name) + " " + std::string(mode.name) +
                     (subnormals == SubnormalResults::keep ? "" : " flush"));
        const Rounding rounding{.mode = mode.mode, .subnormals = subnormals};
        const MagnitudeThresholds thresholds = magnitude_thresholds(format, rounding);
        expect_threshold(thresholds.flushed, format, rounding, [](double rounded) { return rounded == 0; });
        expect_threshold(thresholds.normal, wider, rounding, [&](double rounded) { return rounded < normal; });
        expect_threshold(thresholds.beyond, wider, rounding, [&](double rounded) { return rounded <= largest; });
      }
    }
  }
}

// Of FP64 itself nothing lies beyond the largest number but Inf, and nothing below the smallest but zero.
TEST(MagnitudeThresholds, OfFp64AreItsOwnLimits) {
  const MagnitudeThresholds thresholds = magnitude_thresholds(binary64);
  EXPECT_EQ(thresholds.flushed, (MagnitudeThreshold{0, 0}));
  EXPECT_EQ(thresholds.beyond.surely_above(), HUGE_VAL);
  EXPECT_EQ(thresholds.normal.surely_above(), binary64.smallest_normal());
}

// Those that the analyzers of runs in the default arithmetic have always taken.
TEST(MagnitudeThresholds, OfNearestEvenAreThoseOfTheFormat) {
  for (const FloatFormat* format : kFormats) {
    if (!format->has_zero()) continue;
    const MagnitudeThresholds thresholds = magnitude_thresholds(*format);
    EXPECT_EQ(thresholds.flushed, (MagnitudeThreshold{format->flush_threshold(), format->flush_threshold()})) << format->name;
    EXPECT_EQ(thresholds.beyond.surely_above(), format->overflow_threshold()) << format->name;
    EXPECT_EQ(thresholds.beyond.perhaps_above(), format->overflow_threshold()) << format->name;
  }
}

// FP16, whose least numbers are 2^-24 and 2^-14 and whose largest is 65504.
TEST(MagnitudeThresholds, OfFp16InNumbers) {
  const auto just_below = [](double limit) { return std::nextafter(limit, 0.0); };
  const auto of = [](RoundingMode mode, SubnormalResults subnormals = SubnormalResults::keep) {
    return magnitude_thresholds(binary16, {.mode = mode, .subnormals = subnormals});
  };
  EXPECT_EQ(of(RoundingMode::toward_zero).flushed, (MagnitudeThreshold{just_below(0x1p-24), just_below(0x1p-24)}));
  EXPECT_EQ(of(RoundingMode::up).flushed, (MagnitudeThreshold{0, just_below(0x1p-24)}));
  EXPECT_EQ(of(RoundingMode::to_odd).flushed, (MagnitudeThreshold{0, 0}));
  EXPECT_EQ(of(RoundingMode::stochastic).flushed, (MagnitudeThreshold{just_below(0x1p-48), just_below(0x1p-24)}));
  const double half_below = just_below(0x1p-14 - 0x1p-25);
  EXPECT_EQ(of(RoundingMode::nearest_even, SubnormalResults::flush).flushed, (MagnitudeThreshold{half_below, half_below}));
  EXPECT_EQ(of(RoundingMode::toward_zero).beyond.surely_above(), 65536);
  EXPECT_EQ(of(RoundingMode::up).beyond.perhaps_above(), std::nextafter(65504, 1e6));
}

}  // namespace
}  // namespace ulpscope
