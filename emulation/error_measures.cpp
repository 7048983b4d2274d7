#include "ulpscope/emulation/error_measures.h"

#include <algorithm>
#include <cmath>

#include "ulpscope/base/error.h"
#include "ulpscope/base/floating_point_mode.h"
#include "ulpscope/emulation/rounding.h"

namespace ulpscope {

double ulp(const FloatFormat& format, double value) {
  const FloatingPointMode mode;
  const int normal = format.smallest_normal_exponent();
  if (value == 0 || std::ilogb(value) < normal)
    return std::ldexp(1.0, normal - (format.zero_field == ZeroField::zero ? 0 : format.fraction_bits));
  return std::ldexp(1.0, std::min(std::ilogb(value), std::max(format.largest_exponent(), normal)) - format.fraction_bits);
}

double signal_to_noise(double signal, double noise) { return noise == 0 ? HUGE_VAL : 10 * std::log10(signal / noise); }

double ErrorMeasures::add(const FloatFormat& format, double computed, double reference) {
  ++count;
  if (std::isfinite(reference)) signal += reference * reference;
  if (computed == reference || (std::isnan(computed) && std::isnan(reference))) {
    ++exact;
    return 0;
  }
  const bool is_finite = std::isfinite(computed) && std::isfinite(reference);
  if (!is_finite) ++mismatched;
  const double error = is_finite ? std::fabs(computed - reference) : HUGE_VAL;
  const double in_ulps = is_finite ? error / ulp(format, reference) : HUGE_VAL;
  const double relative = is_finite && reference != 0 ? error / std::fabs(reference) : HUGE_VAL;
  largest_absolute = std::max(largest_absolute, error);
  largest_relative = std::max(largest_relative, relative);
  largest_ulp = std::max(largest_ulp, in_ulps);
  noise += error * error;
  ulps += in_ulps;
  return in_ulps;
}

ErrorMeasures measure_errors(const EncodedArray& computed, const EncodedArray& reference, const FloatFormat& format) {
  if (computed.size() != reference.size())
    throw usage_error("errors in {}: {} numbers, but {} references", format.name, computed.size(), reference.size());
  const FloatingPointMode mode;
  ErrorMeasures measures;
  for (size_t i = 0; i < computed.size(); ++i)
    measures.add(format, value_of(computed.format(), computed[i]), value_of(reference.format(), reference[i]));
  return measures;
}

}  // namespace ulpscope
