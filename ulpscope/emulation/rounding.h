// Rounding of FP32 and FP64 values into narrower formats, round to nearest, ties to even; overflow gives Inf and subnormals are
// kept. NaN stays NaN (quiet, sign and the leading payload bits kept). Everything is integer arithmetic, so the CPU's rounding and
// flush-to-zero modes do not matter. These scalar functions are the definition; simd_rounding.h has the fast ones.
#pragma once

#include <cstdint>

#include "ulpscope/emulation/format.h"

namespace ulpscope {

// Encodings of the nearest value of the format.
uint16_t round_to_f16(float value);
uint16_t round_to_bf16(float value);
uint16_t round_to_f16(double value);  // one rounding, never through FP32
uint16_t round_to_bf16(double value);
float round_to_f32(double value);

// Exact values of encodings. A signalling NaN is made quiet by f16_to_float, as the CPU's instruction does, and kept by the others.
float f16_to_float(uint16_t bits);
float bf16_to_float(uint16_t bits);
double f32_to_double(float value);

// The value that `value` has after rounding to `format` (any format up to FP64), as FP64.
double round_to_format(const FloatFormat& format, double value);

}  // namespace ulpscope
