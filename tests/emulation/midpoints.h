// Roundings to nearest by their definition, for tests: which encoding a value gets follows from the midpoints between neighbouring
// values of the format alone. Nothing here rounds.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "ulpscope/emulation/format.h"

namespace ulpscope {

// The value of a non-negative encoding; Inf's counts as the next power of two, as where rounding to nearest is concerned it is.
inline double finite_value(const FloatFormat& format, uint32_t encoding) {
  const int field = static_cast<int>(encoding >> format.fraction_bits);
  const double fraction = encoding & ((1u << format.fraction_bits) - 1);
  const double significand = field == 0 ? fraction : fraction + std::ldexp(1.0, format.fraction_bits);
  return std::ldexp(significand, std::max(field, 1) - format.bias - format.fraction_bits);
}

inline uint32_t infinity_of(const FloatFormat& format) { return ((1u << format.exponent_bits) - 1) << format.fraction_bits; }

// midpoints[h] lies halfway between the values of the encodings h and h + 1; the last one between the largest finite value and Inf.
inline std::vector<double> midpoints(const FloatFormat& format) {
  std::vector<double> result;
  for (uint32_t h = 0; h < infinity_of(format); ++h) result.push_back((finite_value(format, h) + finite_value(format, h + 1)) / 2);
  return result;
}

}  // namespace ulpscope
