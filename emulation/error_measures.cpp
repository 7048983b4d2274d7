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

ErrorMeasures measure_errors(const EncodedArray& computed, const EncodedArray& reference, const FloatFormat& format) {
  if (computed.size() != reference.size())
    throw usage_error("errors in {}: {} numbers, but {} references", format.name, computed.size(), reference.size());
  const FloatingPointMode mode;
  ErrorMeasures measures{.count = computed.size()};
  double ulps = 0;
  for (size_t i = 0; i < computed.size(); ++i) {
    const double x = value_of(computed.format(), computed[i]), y = value_of(reference.format(), reference[i]);
    if (std::isfinite(y)) measures.signal += y * y;
    if (x == y || (std::isnan(x) && std::isnan(y))) {
      ++measures.exact;
      continue;
    }
    const bool is_finite = std::isfinite(x) && std::isfinite(y);
    if (!is_finite) ++measures.mismatched;
    const double error = is_finite ? std::fabs(x - y) : HUGE_VAL;
    const double in_ulps = is_finite ? error / ulp(format, y) : HUGE_VAL;
    const double relative = is_finite && y != 0 ? error / std::fabs(y) : HUGE_VAL;
    measures.largest_absolute = std::max(measures.largest_absolute, error);
    measures.largest_relative = std::max(measures.largest_relative, relative);
    measures.largest_ulp = std::max(measures.largest_ulp, in_ulps);
    measures.noise += error * error;
    ulps += in_ulps;
  }
  if (measures.count > 0) measures.mean_ulp = ulps / static_cast<double>(measures.count);
  return measures;
}

}  // namespace ulpscope
