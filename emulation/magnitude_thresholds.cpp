#include "ulpscope/emulation/magnitude_thresholds.h"

#include <algorithm>
#include <cmath>

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

}  // namespace

double MagnitudeThreshold::perhaps_above() const { return std::nextafter(surely_below, HUGE_VAL); }
double MagnitudeThreshold::surely_above() const { return std::nextafter(perhaps_below, HUGE_VAL); }

MagnitudeThresholds magnitude_thresholds(const FloatFormat& format, const Rounding& rounding) {
  const double smallest = format.smallest_positive(), normal = format.smallest_normal(), largest = format.largest_finite();
  const MagnitudeThreshold first = between(0, smallest, true, rounding);
  // The encoding below that of the smallest normal number is zero, or has a fraction of ones.
  const MagnitudeThreshold below_normal = normal > smallest ? between(normal - smallest, normal, false, rounding) : first;
  const bool flushes = rounding.subnormals == SubnormalResults::flush && format.exponent_bits > 0;
  const double next = largest + std::ldexp(1.0, format.largest_exponent() - format.fraction_bits);
  return {flushes ? below_normal : first, below_normal, between(largest, next, format.largest_is_even(), rounding)};
}

}  // namespace ulpscope
