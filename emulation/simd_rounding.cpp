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

// step(i) for i = 0, width, ..., as far as whole widths go; what is left begins at the result. Four steps share the loop's own
// instructions, which are as many as those of a step.
template <class Step>
HWY_INLINE size_t ForEach(size_t width, size_t count, const Step& step) {
  size_t i = 0;
  for (; i + 4 * width <= count; i += 4 * width) {
    step(i);
    step(i + width);
    step(i + 2 * width);
    step(i + 3 * width);
  }
  for (; i + width <= count; i += width) step(i);
  return i;
}

void RoundToF16Array(const float* HWY_RESTRICT in, uint16_t* HWY_RESTRICT out, size_t count) {
  const hn::ScalableTag<float> d;
  const hn::Rebind<uint16_t, decltype(d)> d16;
  size_t i =
      ForEach(hn::Lanes(d), count, [&](size_t at) HWY_ATTR { hn::StoreU(RoundToF16(d, hn::LoadU(d, in + at)), d16, out + at); });
  for (; i < count; ++i) out[i] = round_to_f16(in[i]);
}

void RoundToBf16Array(const float* HWY_RESTRICT in, uint16_t* HWY_RESTRICT out, size_t count) {
  const hn::ScalableTag<float> d;
  const hn::Repartition<uint16_t, decltype(d)> d16;
  const size_t lanes = hn::Lanes(d);
  size_t i = ForEach(2 * lanes, count, [&](size_t at) HWY_ATTR {
    const auto lower = hn::BitCast(d16, RoundToBf16InPlace(d, hn::LoadU(d, in + at)));
    const auto upper = hn::BitCast(d16, RoundToBf16InPlace(d, hn::LoadU(d, in + at + lanes)));
    hn::StoreU(hn::ConcatOdd(d16, upper, lower), d16, out + at);
  });
  for (; i < count; ++i) out[i] = round_to_bf16(in[i]);
}

void F16ToFloatArray(const uint16_t* HWY_RESTRICT in, float* HWY_RESTRICT out, size_t count) {
  const hn::ScalableTag<float> d;
  const hn::Rebind<uint16_t, decltype(d)> d16;
  size_t i =
      ForEach(hn::Lanes(d), count, [&](size_t at) HWY_ATTR { hn::StoreU(F16ToFloat(d, hn::LoadU(d16, in + at)), d, out + at); });
  for (; i < count; ++i) out[i] = f16_to_float(in[i]);
}

void Bf16ToFloatArray(const uint16_t* HWY_RESTRICT in, float* HWY_RESTRICT out, size_t count) {
  const hn::ScalableTag<float> d;
  const hn::Rebind<uint16_t, decltype(d)> d16;
  size_t i =
      ForEach(hn::Lanes(d), count, [&](size_t at) HWY_ATTR { hn::StoreU(Bf16ToFloat(d, hn::LoadU(d16, in + at)), d, out + at); });
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
