#include "ulpscope/emulation/magnitude_thresholds.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <tuple>

namespace ulpscope {
namespace {

// Between the neighbouring magnitudes low and high of a format, of which low has an even encoding or not: what goes to low.
MagnitudeThreshold between(double low, double high, bool low_is_even, const Rounding& rounding) {
  const double step = high - low, middle = low + step / 2;
  const auto less_than = [low](double limit) { return std::max(low, std::nextafter(limit, 0.0)); };
  switch (rounding.mode) {
    case RoundingMode::nearest_even: {
      const double last = low_is_even ? middle : less_than(middle);
      return {last, last};
    }
    case RoundingMode::nearest_away:
      return {less_than(middle), less_than(middle)};
    case RoundingMode::toward_zero:
      return {less_than(high), less_than(high)};
    case RoundingMode::up:
    case RoundingMode::down:
      return {low, less_than(high)};
    case RoundingMode::to_odd: {
      const double last = low_is_even ? low : less_than(high);
      return {last, last};
    }
    case RoundingMode::stochastic:
      return {less_than(low + std::ldexp(step, -rounding.random_bits)), less_than(high)};
  }
  return {low, low};
}

MagnitudeThresholds compute_thresholds(const FloatFormat& format, const Rounding& rounding) {
  const double smallest = format.smallest_positive(), normal = format.smallest_normal(), largest = format.largest_finite();
  const MagnitudeThreshold first = between(0, smallest, true, rounding);
  // The encoding below that of the smallest normal number is zero, or has a fraction of ones.
  const MagnitudeThreshold below_normal = normal > smallest ? between(normal - smallest, normal, false, rounding) : first;
  const bool flushes = rounding.subnormals == SubnormalResults::flush && format.exponent_bits > 0;
  const double next = largest + std::ldexp(1.0, format.largest_exponent() - format.fraction_bits);
  return {flushes ? below_normal : first, below_normal, between(largest, next, format.largest_is_even(), rounding)};
}

// All of both that thresholds depend on.
auto key_of(const FloatFormat& format, const Rounding& rounding) {
  return std::tuple(format.exponent_bits, format.fraction_bits, format.bias, format.special_values, format.zero_field,
                    format.last_encoding, rounding.mode, rounding.subnormals, rounding.random_bits);
}

// std::nextafter upwards, of what is not negative.
double next_above(double magnitude) {
  return magnitude < HUGE_VAL ? std::bit_cast<double>(std::bit_cast<uint64_t>(magnitude) + 1) : magnitude;
}

}  // namespace

double MagnitudeThreshold::perhaps_above() const { return next_above(surely_below); }
double MagnitudeThreshold::surely_above() const { return next_above(perhaps_below); }

MagnitudeThresholds magnitude_thresholds(const FloatFormat& format, const Rounding& rounding) {
  // Whoever reads a trace asks for the same few of each of its rows.
  struct Known {
    decltype(key_of(format, rounding)) key{};  // without exponent bits and fraction bits: of no format
    MagnitudeThresholds thresholds{};
  };
  thread_local std::array<Known, 8> known;
  thread_local size_t next = 0;
  const auto key = key_of(format, rounding);
  const auto found = std::find_if(known.begin(), known.end(), [&](const Known& one) { return one.key == key; });
  if (found != known.end()) return found->thresholds;
  Known& made = known[next++ % known.size()];
  made = {key, compute_thresholds(format, rounding)};
  return made.thresholds;
}

}  // namespace ulpscope
