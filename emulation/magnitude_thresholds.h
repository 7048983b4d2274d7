// Which magnitudes a rounding takes to zero, below the normal numbers, and beyond the largest one: number.h's encode, read
// backwards.
#pragma once

#include "ulpscope/emulation/number.h"

namespace ulpscope {

// A magnitude on whose two sides a rounding does different things. Where the mode's direction depends on the sign or on random
// bits, the sides overlap. All are FP64 numbers, of which other formats' are a subset.
struct MagnitudeThreshold {
  double surely_below;   // every number up to this one, it too, goes below
  double perhaps_below;  // the largest of which some go below

  double perhaps_above() const;  // the least of which some go above
  double surely_above() const;   // from this one on, all do
  bool operator==(const MagnitudeThreshold&) const = default;
};

struct MagnitudeThresholds {
  MagnitudeThreshold flushed;  // below: zero, where the magnitude was not
  MagnitudeThreshold normal;   // above: a normal number, or beyond the largest one
  // Above: beyond the largest finite number, were exponents not bounded (IEEE 754-2019, 7.4). Those become Inf or NaN, or stay at
  // the largest number, as mode and Overflow have it.
  MagnitudeThreshold beyond;
};

// Of `rounding` into `format`, which has a zero. The random bits of stochastic rounding are taken as any.
MagnitudeThresholds magnitude_thresholds(const FloatFormat& format, const Rounding& rounding = {});

}  // namespace ulpscope
