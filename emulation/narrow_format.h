// What can be done with the encodings of each format that tensors are stored in and that is narrower than FP32: 16 bits, to nearest
// even as networks are trained with, and FP8, to nearest even and saturating (Inf too; NaN stays NaN), as quantization has it. One
// row a format; what needs one takes its row once.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ulpscope/emulation/format.h"

namespace ulpscope {

struct NarrowFormat {
  const FloatFormat* format;
  size_t size;  // bytes of an encoding
  // One element (rounding.h).
  uint16_t (*round)(double value);
  float (*widen)(uint16_t bits);
  // Whole arrays, which must not overlap; `size` bytes an encoding.
  void (*round_all)(const float* in, void* out, size_t count);
  void (*widen_all)(const void* in, float* out, size_t count);

  // The element at `index` of an array of encodings.
  float widen_at(const void* encodings, int64_t index) const {
    return widen(size == 1 ? static_cast<const uint8_t*>(encodings)[index] : static_cast<const uint16_t*>(encodings)[index]);
  }
  void round_at(double value, void* encodings, int64_t index) const {
    if (size == 1) {
      static_cast<uint8_t*>(encodings)[index] = static_cast<uint8_t>(round(value));
    } else {
      static_cast<uint16_t*>(encodings)[index] = round(value);
    }
  }
  // Where the encodings from the one at `index` on begin.
  void* at(void* encodings, int64_t index) const { return static_cast<char*>(encodings) + index * static_cast<int64_t>(size); }
  const void* at(const void* encodings, int64_t index) const {
    return static_cast<const char*>(encodings) + index * static_cast<int64_t>(size);
  }
};

// The row of `format`; an internal error where it has none.
const NarrowFormat& narrow_format(const FloatFormat& format);

}  // namespace ulpscope
