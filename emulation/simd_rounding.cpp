#include "ulpscope/emulation/simd_rounding.h"

#include "ulpscope/emulation/rounding.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ulpscope/emulation/simd_rounding.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "ulpscope/emulation/simd_rounding-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ulpscope {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

void RoundToF16Array(const float* HWY_RESTRICT in, uint16_t* HWY_RESTRICT out, size_t count) {
  const hn::ScalableTag<float> d;
  const hn::Rebind<uint16_t, decltype(d)> d16;
  size_t i = 0;
  for (; i + hn::Lanes(d) <= count; i += hn::Lanes(d)) hn::StoreU(RoundToF16(d, hn::LoadU(d, in + i)), d16, out + i);
  for (; i < count; ++i) out[i] = round_to_f16(in[i]);
}

void RoundToBf16Array(const float* HWY_RESTRICT in, uint16_t* HWY_RESTRICT out, size_t count) {
  const hn::ScalableTag<float> d;
  const hn::Repartition<uint16_t, decltype(d)> d16;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + 2 * lanes <= count; i += 2 * lanes) {
    const auto lower = hn::BitCast(d16, RoundToBf16InPlace(d, hn::LoadU(d, in + i)));
    const auto upper = hn::BitCast(d16, RoundToBf16InPlace(d, hn::LoadU(d, in + i + lanes)));
    hn::StoreU(hn::ConcatOdd(d16, upper, lower), d16, out + i);
  }
  for (; i < count; ++i) out[i] = round_to_bf16(in[i]);
}

void F16ToFloatArray(const uint16_t* HWY_RESTRICT in, float* HWY_RESTRICT out, size_t count) {
  const hn::ScalableTag<float> d;
  const hn::Rebind<uint16_t, decltype(d)> d16;
  size_t i = 0;
  for (; i + hn::Lanes(d) <= count; i += hn::Lanes(d)) hn::StoreU(F16ToFloat(d, hn::LoadU(d16, in + i)), d, out + i);
  for (; i < count; ++i) out[i] = f16_to_float(in[i]);
}

void Bf16ToFloatArray(const uint16_t* HWY_RESTRICT in, float* HWY_RESTRICT out, size_t count) {
  const hn::ScalableTag<float> d;
  const hn::Rebind<uint16_t, decltype(d)> d16;
  size_t i = 0;
  for (; i + hn::Lanes(d) <= count; i += hn::Lanes(d)) hn::StoreU(Bf16ToFloat(d, hn::LoadU(d16, in + i)), d, out + i);
  for (; i < count; ++i) out[i] = bf16_to_float(in[i]);
}

}  // namespace HWY_NAMESPACE
}  // namespace ulpscope
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace ulpscope {

HWY_EXPORT(RoundToF16Array);
HWY_EXPORT(RoundToBf16Array);
HWY_EXPORT(F16ToFloatArray);
HWY_EXPORT(Bf16ToFloatArray);

void round_to_f16(const float* in, uint16_t* out, size_t count) { HWY_DYNAMIC_DISPATCH(RoundToF16Array)(in, out, count); }
void round_to_bf16(const float* in, uint16_t* out, size_t count) { HWY_DYNAMIC_DISPATCH(RoundToBf16Array)(in, out, count); }
void f16_to_float(const uint16_t* in, float* out, size_t count) { HWY_DYNAMIC_DISPATCH(F16ToFloatArray)(in, out, count); }
void bf16_to_float(const uint16_t* in, float* out, size_t count) { HWY_DYNAMIC_DISPATCH(Bf16ToFloatArray)(in, out, count); }

}  // namespace ulpscope

#endif
