// Every format, in every mode, against its numbers in order (neighbours.h): all encodings, all numbers, the middle between any two
// with what is next to it, and all boundaries.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/emulation/neighbours.h"
#include "ulpscope/emulation/rounding.h"

namespace ulpscope {
namespace {

std::vector<const FloatFormat*> small_formats() {
  std::vector<const FloatFormat*> formats;
  for (const FloatFormat* format : kFormats)
    if (format->storage_bits() <= 16) formats.push_back(format);
  for (const char* text : {"e3m4", "e4m3fn:bias=11", "e1m2finite", "e5m0fn", "e2m5fnuz", "e0m6finite", "e4m2:subnormals=no",
                           "e4m3fn:largest=240", "e6m3:bias=20:subnormals=no", "e8m2", "e7m8"})
    formats.push_back(&parse_format(text));
  return formats;
}

std::vector<Rounding> all_roundings() {
  std::vector<Rounding> all;
  for (const RoundingModeName& mode : rounding_modes()) {
    if (mode.mode == RoundingMode::stochastic) continue;
    for (const Overflow overflow : {Overflow::ieee, Overflow::saturate})
      for (const SubnormalResults subnormals : {SubnormalResults::keep, SubnormalResults::flush})
        all.push_back({mode.mode, overflow, subnormals});
  }
  return all;
}

std::string describe_rounding(const FloatFormat& format, const Rounding& rounding, double value) {
  char text[40];
  std::snprintf(text, sizeof text, " %a", value);
  return std::string(format.name) + ' ' + std::string(name_of(rounding.mode)) +
         (rounding.overflow == Overflow::saturate ? " saturate" : "") +
         (rounding.subnormals == SubnormalResults::flush ? " flush" : "") + text;
}

TEST(EveryFormat, EncodingsHaveTheirValuesAndComeBack) {
  for (const FloatFormat* format : small_formats()) {
    const Neighbours numbers(*format);
    const uint64_t sign = format->sign_bit();
    size_t next = 0;
    for (uint64_t magnitude = 0; magnitude <= format->last_magnitude(); ++magnitude) {
      const bool is_number = next < numbers.values().size() && numbers.encoding(next) == magnitude;
      for (const uint64_t encoding : {magnitude, magnitude | sign}) {
        const double value = value_of(*format, encoding);
        if (is_number && !(encoding == sign && sign != 0 && format->special_values == SpecialValues::negative_zero)) {
          ASSERT_EQ(std::fabs(value), numbers.values()[next]) << format->name << ' ' << encoding;
          ASSERT_EQ(std::signbit(value), sign != 0 && (encoding & sign) != 0) << format->name << ' ' << encoding;
          ASSERT_EQ(round_to_encoding(*format, value), encoding) << format->name;
          ASSERT_EQ(round_to_encoding(*format, static_cast<float>(value)), encoding) << format->name;
        } else if (format->zero_field == ZeroField::zero && magnitude <= format->largest_encoding()) {
          ASSERT_EQ(value, 0) << format->name << ' ' << encoding;
        } else {
          ASSERT_EQ(std::isinf(value), format->has_infinity() && magnitude == format->infinity_encoding()) << format->name;
          ASSERT_TRUE(std::isinf(value) || std::isnan(value)) << format->name << ' ' << encoding;
        }
      }
      next += is_number;
    }
    EXPECT_EQ(next, numbers.values().size());
    EXPECT_EQ(format->largest_finite(), numbers.values().back()) << format->name;
  }
}

TEST(EveryFormat, RoundsToTheRightNeighbourInEveryMode) {
  for (const FloatFormat* format : small_formats()) {
    const Neighbours numbers(*format);
    std::vector<double> points{0.0,
                               HUGE_VAL,
                               std::numeric_limits<double>::max(),
                               std::numeric_limits<double>::denorm_min(),
                               0x1p-149,
                               0x1p-150,
                               0x1p-60,
                               static_cast<double>(std::numeric_limits<float>::max())};
    std::vector<double> ends = numbers.values();
    ends.push_back(numbers.beyond());
    ends.push_back(2 * numbers.beyond());
    for (size_t i = 0; i < ends.size(); ++i) {
      const double low = i > 0 ? ends[i - 1] : ends[0] / 2, middle = (low + ends[i]) / 2;
      for (const double point : {ends[i], middle}) {
        points.push_back(point);
        points.push_back(std::nextafter(point, 0));
        points.push_back(std::nextafter(point, HUGE_VAL));
        points.push_back(static_cast<double>(std::nextafter(static_cast<float>(point), 0.0f)));
        points.push_back(static_cast<double>(std::nextafter(static_cast<float>(point), HUGE_VALF)));
      }
    }
    for (const Rounding& rounding : all_roundings()) {
      for (const double magnitude : points) {
        for (const double value : {magnitude, -magnitude}) {
          const uint64_t expected = numbers.rounded(value, rounding);
          ASSERT_EQ(round_to_encoding(*format, value, rounding), expected) << describe_rounding(*format, rounding, value);
          const auto narrow = static_cast<float>(value);
          if (static_cast<double>(narrow) == value) {
            ASSERT_EQ(round_to_encoding(*format, narrow, rounding), expected) << describe_rounding(*format, rounding, value);
          }
        }
      }
    }
  }
}

// A payload with its last bits set must neither carry into Inf nor vanish into it.
TEST(EveryFormat, NanStaysNanWithEveryPayload) {
  for (const FloatFormat* format : small_formats()) {
    for (const Rounding& rounding : all_roundings()) {
      for (const uint32_t payload : {1u, 0x1FFFu, 0x3FFFFFu, 0x400000u, 0x7FFFFFu, 0x7FE000u}) {
        for (const uint32_t sign : {0u, 0x80000000u}) {
          const float nan = std::bit_cast<float>(sign | 0x7F800000u | payload);
          const uint64_t encoding = round_to_encoding(*format, nan, rounding);
          if (format->special_values == SpecialValues::none) {
            ASSERT_EQ(value_of(*format, encoding), format->largest_finite()) << format->name;
          } else {
            ASSERT_TRUE(std::isnan(value_of(*format, encoding))) << format->name << ' ' << payload;
            ASSERT_EQ(encoding & format->sign_bit(),
                      sign != 0 || format->special_values == SpecialValues::negative_zero ? format->sign_bit() : 0)
                << format->name;
          }
          ASSERT_TRUE(format->special_values == SpecialValues::none || std::isnan(round_to_format(*format, nan, rounding)));
        }
      }
    }
  }
}

// 2^-20 between 0 and the smallest FP16 number goes up as often as its share of the way says, whatever bits are used; probabilities
// are multiples of 2^-bits, rounded down.
TEST(StochasticRounding, GoesUpForTheShareOfRandomNumbersThatTheDistanceSays) {
  struct Case {
    const FloatFormat* format;
    float value;
    double share;  // of the way from the lower to the upper neighbour
    uint64_t low;
  };
  const Case cases[] = {{&binary16, 1 + 0x1p-12f, 0.25, 0x3C00},
                        {&binary16, 0x1p-25f, 0.5, 0},
                        {&binary16, -(1 + 3 * 0x1p-12f), 0.75, 0xBC00},
                        {&bfloat16, 1 + 0x1p-10f, 0.125, 0x3F80},
                        {&e4m3, 1.0625f, 0.5, 0x38},
                        {&e2m1, 0.125f, 0.25, 0},
                        {&e5m2, 0x1p-18f, 0.25, 0}};
  for (const Case& c : cases) {
    for (const int bits : {1, 3, 8, 16, 20}) {
      const Rounding rounding{.mode = RoundingMode::stochastic, .random_bits = bits};
      const uint32_t count = 1u << bits;
      uint32_t up = 0;
      for (uint32_t random = 0; random < count; ++random) {
        const uint64_t encoding = round_to_encoding(*c.format, c.value, rounding, random << (32 - bits));
        ASSERT_TRUE(encoding == c.low || encoding == c.low + 1) << c.format->name << ' ' << c.value;
        up += encoding == c.low + 1;
      }
      EXPECT_EQ(up, static_cast<uint32_t>(std::floor(c.share * count))) << c.format->name << ' ' << c.value << ' ' << bits;
    }
  }
  // The step past the largest finite number is like any other; then comes the policy.
  const Rounding stochastic{.mode = RoundingMode::stochastic};
  EXPECT_EQ(round_to_encoding(binary16, 65504.0f + 8, stochastic, 0xFFFFFFFF), 0x7C00u);
  EXPECT_EQ(round_to_encoding(binary16, 65504.0f + 8, stochastic, 0), 0x7BFFu);
  EXPECT_EQ(round_to_encoding(binary16, 65504.0f + 8, {.mode = RoundingMode::stochastic, .overflow = Overflow::saturate}, ~0u),
            0x7BFFu);
}

}  // namespace
}  // namespace ulpscope
