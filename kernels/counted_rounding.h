// A rounding in any mode and what it did, element by element: the same on hosts and devices.
#pragma once

#include <cmath>
#include <cstdint>

#include "ulpscope/emulation/format.h"
#include "ulpscope/emulation/rounding.h"

namespace ulpscope {

// Values that are FP32 and stay so are not rounded, and may be flushed.
struct CountedRounding {
  FloatFormat format = binary32;
  Rounding rounding;
  double smallest_normal = 0, largest = 0;
  double surely_beyond = 0;      // from here on every value is rounded beyond the largest number, or kept at it
  double scale = 1;              // the loss scale that values contain
  bool counts_saturated = true;  // beside what overflowed; not of formats all of whose roundings saturate

  template <typename C>
  constexpr uint64_t encoding_of(C value, uint32_t random) const {
    return round_to_encoding(format, value, rounding, random);
  }
  // Adds to `counts`, which has the fields of RoundingCounts, what rounding `value` to `encoding` did; random(): the bits of that
  // rounding. A number is rescued where the same rounding of the number without the loss scale gives zero, and of itself does not.
  template <typename C, class Counts, class Random>
  constexpr void count(C value, uint64_t encoding, Counts& counts, Random random) const {
    const auto wide = static_cast<double>(value);
    const double was = wide < 0 ? -wide : wide;
    if (!(was > 0) || was == HUGE_VAL) return;
    const double signed_is = value_of(format, encoding), is = signed_is < 0 ? -signed_is : signed_is;
    counts.flushed += is == 0;
    const bool beyond =
        was > largest && (was >= surely_beyond || !is_finite(round_to_format(format, wide, {.mode = rounding.mode}, random())));
    counts.overflowed += beyond;
    counts.saturated += beyond && is == largest && counts_saturated;
    if (is > 0 && is < smallest_normal) {
      ++counts.subnormal;
      counts.inexact_subnormal += is != was;
    }
    if (!(is > 0) || is == HUGE_VAL || was >= scale * smallest_normal) return;
    counts.rescued += (round_to_encoding(format, wide / scale, rounding, random()) & format.last_magnitude()) == 0;
  }

 private:
  static constexpr bool is_finite(double value) { return value - value == 0; }
};

// What roundings after every operation did to a value, counted by what it is without them.
struct StepwiseRounding {
  double smallest_normal = 0;
  double rescued_up_to = 0;  // the loss scale times the largest number that is rounded to zero

  // Adds to `counts`; a value that became NaN counts as NaN.
  template <class Counts>
  constexpr void count(float wide, float value, Counts& counts) const {
    const double was = wide < 0 ? -wide : wide, is = value < 0 ? -value : value;
    if (!(was > 0) || was == HUGE_VAL) return;
    counts.flushed += is == 0;
    counts.overflowed += is == HUGE_VAL;
    if (is > 0 && is < smallest_normal) {
      ++counts.subnormal;
      counts.inexact_subnormal += value != wide;
    }
    counts.rescued += is > 0 && is < HUGE_VAL && was <= rescued_up_to;
  }
};

}  // namespace ulpscope
