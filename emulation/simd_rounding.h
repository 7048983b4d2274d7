// Roundings of whole arrays, bit for bit those of rounding.h, with the widest SIMD instructions that the CPU has. Kernels that
// round what they have just computed use the vector functions of simd_rounding-inl.h.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ulpscope {

// `in` and `out` must not overlap.
void round_to_f16(const float* in, uint16_t* out, size_t count);
void round_to_bf16(const float* in, uint16_t* out, size_t count);
void f16_to_float(const uint16_t* in, float* out, size_t count);
void bf16_to_float(const uint16_t* in, float* out, size_t count);

}  // namespace ulpscope
