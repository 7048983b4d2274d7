#include "ulpscope/emulation/format.h"

#include <cmath>

namespace ulpscope {

// (2 - 2^-f) * 2^e, f fraction bits, e the largest exponent.
double FloatFormat::largest_finite() const { return std::ldexp(2.0 - std::ldexp(1.0, -fraction_bits), largest_exponent()); }

double FloatFormat::smallest_normal() const { return std::ldexp(1.0, smallest_normal_exponent()); }

double FloatFormat::smallest_subnormal() const { return std::ldexp(1.0, smallest_subnormal_exponent()); }

// (2 - 2^-f) * 2^e plus half of the ulp 2^(e-f). The significand there is odd, so the tie goes away from it, to Inf.
double FloatFormat::overflow_threshold() const { return std::ldexp(2.0 - std::ldexp(1.0, -fraction_bits - 1), largest_exponent()); }

double FloatFormat::flush_threshold() const { return std::ldexp(1.0, smallest_subnormal_exponent() - 1); }

const FloatFormat* find_format(std::string_view name) {
  for (const FloatFormat* format : kFormats) {
    if (format->name == name) return format;
  }
  return nullptr;
}

}  // namespace ulpscope
