// What can be done with the encodings of each 16-bit format. One row a format; what needs one takes its row once.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ulpscope/emulation/format.h"

namespace ulpscope {

struct NarrowFormat {
  const FloatFormat* format;
  // One element (rounding.h).
  uint16_t (*round)(double value);
  float (*widen)(uint16_t bits);
  // Whole arrays, which must not overlap (simd_rounding.h).
  void (*round_all)(const float* in, uint16_t* out, size_t count);
  void (*widen_all)(const uint16_t* in, float* out, size_t count);
};

// The row of `format`; an internal error where it has none.
const NarrowFormat& narrow_format(const FloatFormat& format);

}  // namespace ulpscope
