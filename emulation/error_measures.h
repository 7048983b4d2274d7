// How far computed numbers are from a reference.
#pragma once

#include <cstdint>

#include "ulpscope/emulation/format.h"
#include "ulpscope/emulation/summation.h"

namespace ulpscope {

// The unit in the last place of `format` at a finite value: the distance between its numbers in the binade of the value
// (J.-M. Muller, "On the definition of ulp(x)", 2005). Below the smallest normal number it is that of the subnormal ones, beyond
// the largest number that of the last binade.
double ulp(const FloatFormat& format, double value);

// 10 log10(signal / noise), of sums of squares, in dB; Inf without noise.
double signal_to_noise(double signal, double noise);

// Over pairs of numbers. Where one is NaN or Inf and the other is not the same, an error is Inf. Errors are differences in FP64, so
// each is itself off by a relative 2^-53 at most.
struct ErrorMeasures {
  uint64_t count = 0;
  uint64_t exact = 0;                // computed as the reference is; two NaN too
  uint64_t mismatched = 0;           // one is NaN or Inf, and the other is not the same
  double largest_ulp = 0, ulps = 0;  // of errors: the largest, and all added up
  double largest_absolute = 0;
  double largest_relative = 0;   // over the reference; Inf where that is zero and the other is not
  double signal = 0, noise = 0;  // sums of squares of the finite references and of the errors

  double mean_ulp() const { return count == 0 ? 0 : ulps / static_cast<double>(count); }
  double signal_to_noise() const { return ulpscope::signal_to_noise(signal, noise); }
  // One more pair, in ulps of `format`; gives its error in these.
  double add(const FloatFormat& format, double computed, double reference);
};

// In ulps of `format`. Throws a usage Error where the lengths differ.
ErrorMeasures measure_errors(const EncodedArray& computed, const EncodedArray& reference, const FloatFormat& format);

}  // namespace ulpscope
