// Vector functions that round FP32 to f16 and bf16 and widen them again, bit for bit as rounding.h defines it. Included once per
// Highway target, after highway.h, by kernels that are compiled for several targets.
#if defined(ULPSCOPE_EMULATION_SIMD_ROUNDING_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ULPSCOPE_EMULATION_SIMD_ROUNDING_INL_H_
#undef ULPSCOPE_EMULATION_SIMD_ROUNDING_INL_H_
#else
#define ULPSCOPE_EMULATION_SIMD_ROUNDING_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace ulpscope {
namespace HWY_NAMESPACE {

// The instruction rounds to nearest even whatever the CPU's mode is, keeps FP16 subnormals, and treats NaN as rounding.h does.
#undef ULPSCOPE_F16_INSTRUCTION
#if HWY_TARGET <= HWY_AVX2
#define ULPSCOPE_F16_INSTRUCTION 1
#else
#define ULPSCOPE_F16_INSTRUCTION 0
#endif

// As many f16 encodings as `v` has lanes.
template <class D32, class V = hwy::HWY_NAMESPACE::VFromD<D32>>
HWY_INLINE auto RoundToF16(D32, V v) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::Rebind<uint16_t, D32> d16;
#if ULPSCOPE_F16_INSTRUCTION
  const hn::Rebind<hwy::float16_t, D32> half;
  return hn::BitCast(d16, hn::DemoteTo(half, v));
#else
  const hn::RebindToUnsigned<D32> u32;
  const hn::RebindToSigned<D32> i32;
  const auto bits = hn::BitCast(u32, v);
  const auto magnitude = hn::And(bits, hn::Set(u32, 0x7FFFFFFF));
  const auto one = hn::Set(u32, 1);

  // Normal results: round the 13 low bits off, then change the bias from 127 to 15.
  const auto odd = hn::And(hn::ShiftRight<13>(magnitude), one);
  const auto rounded = hn::ShiftRight<13>(hn::Add(magnitude, hn::Add(odd, hn::Set(u32, 0xFFF))));
  const auto normal = hn::Min(hn::Sub(rounded, hn::Set(u32, 112 << 10)), hn::Set(u32, 0x7C00));

  // Below 2^-14: multiples of 2^-24. The significand is shifted by 126 - exponent field; from 25 on nothing is left of it.
  const auto field = hn::ShiftRight<23>(magnitude);
  const auto shift = hn::Min(hn::Sub(hn::Set(u32, 126), hn::Min(field, hn::Set(u32, 112))), hn::Set(u32, 31));
  const auto significand = hn::Or(hn::And(magnitude, hn::Set(u32, 0x7FFFFF)), hn::Set(u32, 0x800000));
  const auto kept_odd = hn::And(hn::Shr(significand, shift), one);
  const auto below_half = hn::Sub(hn::Shl(one, hn::Sub(shift, one)), one);
  const auto subnormal = hn::Shr(hn::Add(significand, hn::Add(below_half, kept_odd)), shift);

  const auto nan = hn::Or(hn::And(hn::ShiftRight<13>(magnitude), hn::Set(u32, 0x3FF)), hn::Set(u32, 0x7E00));
  const auto signed_magnitude = hn::BitCast(i32, magnitude);  // comparisons of signed lanes are one instruction
  auto result = hn::IfThenElse(hn::RebindMask(u32, hn::Lt(signed_magnitude, hn::Set(i32, 0x38800000))), subnormal, normal);
  result = hn::IfThenElse(hn::RebindMask(u32, hn::Gt(signed_magnitude, hn::Set(i32, 0x7F800000))), nan, result);
  return hn::TruncateTo(d16, hn::Or(result, hn::And(hn::ShiftRight<16>(bits), hn::Set(u32, 0x8000))));
#endif
}

// bf16 encodings in the upper halves of the lanes; what the lower halves hold is unspecified.
template <class D32, class V = hwy::HWY_NAMESPACE::VFromD<D32>>
HWY_INLINE auto RoundToBf16InPlace(D32, V v) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::RebindToUnsigned<D32> u32;
  const hn::RebindToSigned<D32> i32;
  const auto bits = hn::BitCast(u32, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(u32, 1));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(u32, 0x7FFF)));
  const auto magnitude = hn::BitCast(i32, hn::And(bits, hn::Set(u32, 0x7FFFFFFF)));
  const auto is_nan = hn::RebindMask(u32, hn::Gt(magnitude, hn::Set(i32, 0x7F800000)));
  return hn::IfThenElse(is_nan, hn::Or(bits, hn::Set(u32, 0x400000)), rounded);
}

// As many bf16 encodings as `v` has lanes.
template <class D32, class V = hwy::HWY_NAMESPACE::VFromD<D32>>
HWY_INLINE auto RoundToBf16(D32 d, V v) {
  namespace hn = hwy::HWY_NAMESPACE;
  return hn::TruncateTo(hn::Rebind<uint16_t, D32>(), hn::ShiftRight<16>(RoundToBf16InPlace(d, v)));
}

// The values of as many f16 encodings as `d` has lanes.
template <class D32, class V16 = hwy::HWY_NAMESPACE::VFromD<hwy::HWY_NAMESPACE::Rebind<uint16_t, D32>>>
HWY_INLINE auto F16ToFloat(D32 d, V16 v) {
  namespace hn = hwy::HWY_NAMESPACE;
#if ULPSCOPE_F16_INSTRUCTION
  return hn::PromoteTo(d, hn::BitCast(hn::Rebind<hwy::float16_t, D32>(), v));
#else
  const hn::RebindToUnsigned<D32> u32;
  const hn::RebindToSigned<D32> i32;
  const auto bits = hn::PromoteTo(u32, v);
  const auto magnitude = hn::And(bits, hn::Set(u32, 0x7FFF));
  const auto shifted = hn::ShiftLeft<13>(magnitude);
  const auto normal = hn::Add(shifted, hn::Set(u32, 112u << 23));
  // magnitude * 2^-24, as a conversion of a small integer (exact in any mode) and a smaller exponent.
  const auto converted = hn::BitCast(u32, hn::ConvertTo(d, hn::BitCast(i32, magnitude)));
  const auto subnormal = hn::Sub(converted, hn::Set(u32, 24u << 23));
  const auto nonfinite = hn::Or(shifted, hn::Set(u32, 0x7F800000));
  const auto quiet = hn::Or(nonfinite, hn::Set(u32, 0x400000));
  const auto signed_magnitude = hn::BitCast(i32, magnitude);
  const auto above = [&](int32_t limit) HWY_ATTR { return hn::RebindMask(u32, hn::Gt(signed_magnitude, hn::Set(i32, limit))); };
  auto result = hn::IfThenElse(above(0x3FF), normal, subnormal);
  result = hn::IfThenElse(above(0x7BFF), nonfinite, result);
  result = hn::IfThenElse(above(0x7C00), quiet, result);
  result = hn::IfThenElseZero(above(0), result);
  return hn::BitCast(d, hn::Or(result, hn::ShiftLeft<16>(hn::And(bits, hn::Set(u32, 0x8000)))));
#endif
}

// The values of as many bf16 encodings as `d` has lanes.
template <class D32, class V16 = hwy::HWY_NAMESPACE::VFromD<hwy::HWY_NAMESPACE::Rebind<uint16_t, D32>>>
HWY_INLINE auto Bf16ToFloat(D32 d, V16 v) {
  namespace hn = hwy::HWY_NAMESPACE;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(hn::RebindToUnsigned<D32>(), v)));
}

}  // namespace HWY_NAMESPACE
}  // namespace ulpscope
HWY_AFTER_NAMESPACE();

#endif
