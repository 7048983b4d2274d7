// Roundings of vectors to any format with subnormals, in any mode. Included once per Highway target, after highway.h, by loops that
// are compiled for several targets. Let s be the step of the format at a value x: the distance between its neighbours.
//   shifted core: s is a fixed number of bits of x's encoding, at every value. Rounding adds to the encoding, a carry out of the
//     fraction goes into the exponent as it should, and the bits below s are cleared. The carried core is its short form.
//   scaled core: c is the power of two whose ulp is s. |x| + c has the bits of x down to s and no others, so the addition rounds,
//     in the CPU's rounding mode, and subtracting c again is exact. Its last bits, counted from those of c, are |x| / s: the
//     encoding. Half a step is added to |x| before, for ties away from zero, and the sum cut off: it keeps all bits down to s.
//   counted core: c is 2^16 times smaller, so that 16 more bits of x are kept, to which a random number is added.
// Stochastic rounding goes up where the part of a step that x is above its lower neighbour and the random number, both cut off
// after so many bits, add up to a step. The first 16 bits of a random number tell, unless those of the sum are all ones, as they
// are once in 65536 times: such lanes are undecided, and rounded again with the whole number.
#if defined(ULPSCOPE_EMULATION_ROUND_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ULPSCOPE_EMULATION_ROUND_LANES_INL_H_
#undef ULPSCOPE_EMULATION_ROUND_LANES_INL_H_
#else
#define ULPSCOPE_EMULATION_ROUND_LANES_INL_H_
#endif

#include "hwy/highway.h"
#include "ulpscope/emulation/round_kernel.h"
#include "ulpscope/emulation/simd_rounding-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ulpscope {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::CappedTag<float, 16>;
using U32 = hn::RebindToUnsigned<F32>;
using I32 = hn::RebindToSigned<F32>;
using U64 = hn::Repartition<uint64_t, U32>;
using VF32 = hn::Vec<F32>;
using VU32 = hn::Vec<U32>;
using VU64 = hn::Vec<U64>;
using MU32 = hn::Mask<U32>;
constexpr F32 kF32;
constexpr U32 kU32;
constexpr I32 kI32;
constexpr U64 kU64;

HWY_INLINE auto Greater(VU32 a, VU32 b) { return hn::RebindMask(kU32, hn::Gt(hn::BitCast(kI32, a), hn::BitCast(kI32, b))); }
HWY_INLINE VU32 Set(uint32_t value) { return hn::Set(kU32, value); }
HWY_INLINE VF32 AsFloat(VU32 bits) { return hn::BitCast(kF32, bits); }
HWY_INLINE VU32 AsBits(VF32 value) { return hn::BitCast(kU32, value); }

// A vector of counts that stays in a register is shifted by in one step; SSE4 has no such instruction.
HWY_INLINE VU32 ShiftRightBy(VU32 bits, int count) {
#if HWY_TARGET <= HWY_AVX2
  return hn::Shr(bits, Set(static_cast<uint32_t>(count)));
#else
  return hn::ShiftRightSame(bits, count);
#endif
}

HWY_INLINE MU32 IsNotANumber(VU32 bits) { return hn::RebindMask(kU32, hn::IsNaN(AsFloat(bits))); }
// In a lane of any, an even number of vectors; one comparison tells of two.
template <size_t kVectors>
HWY_INLINE bool AnyIsNotANumber(const VU32 (&vectors)[kVectors]) {
  static_assert(kVectors % 2 == 0);
#if HWY_TARGET <= HWY_AVX3
  // Masks stay where they are: as integers each would move to another register by itself.
  const auto either = [&](size_t i) HWY_ATTR {
    return _mm512_cmp_ps_mask(AsFloat(vectors[i]).raw, AsFloat(vectors[i + 1]).raw, _CMP_UNORD_Q);
  };
  __mmask16 any = either(0);
  for (size_t i = 2; i + 2 < kVectors; i += 2) any = _kor_mask16(any, either(i));
  return !_kortestz_mask16_u8(any, either(kVectors - 2));
#elif HWY_TARGET <= HWY_AVX2
  __m256 any = _mm256_cmp_ps(AsFloat(vectors[0]).raw, AsFloat(vectors[1]).raw, _CMP_UNORD_Q);
  for (size_t i = 2; i < kVectors; i += 2)
    any = _mm256_or_ps(any, _mm256_cmp_ps(AsFloat(vectors[i]).raw, AsFloat(vectors[i + 1]).raw, _CMP_UNORD_Q));
  return _mm256_movemask_ps(any) != 0;
#else
  MU32 any = IsNotANumber(vectors[0]);
  for (size_t i = 1; i < kVectors; ++i) any = hn::Or(any, IsNotANumber(vectors[i]));
  return !hn::AllFalse(kU32, any);
#endif
}

// Conditions on lanes are kept in sign bits, which cost no comparison and combine as any bits.
HWY_INLINE bool AnyIsNegative(VU32 bits) { return !hn::AllFalse(kI32, hn::Lt(hn::BitCast(kI32, bits), hn::Zero(kI32))); }

// Of stochastic rounding: integers below 2^bits, and what comes back.
struct RandomLanes {
  VU32 numbers;
  int bits;
  VU32 undecided = hn::Zero(kU32);  // the sign bits
};

// A random number in units of the last place that FP32 values have, where a step has `discarded` bits.
HWY_INLINE VU32 BelowStep(const RandomLanes& random, int discarded) {
  const int shift = discarded - random.bits;
  return shift >= 0 ? hn::ShiftLeftSame(random.numbers, shift) : hn::ShiftRightSame(random.numbers, -shift);
}

// `values` and what rounding adds to them, in the bits below a step and carried into it.
template <RoundingMode kMode>
HWY_INLINE VU32 AddedBelow(const RoundConstants& k, VU32 bits, VU32 values, RandomLanes* random) {
  const int discarded = k.discarded;
  const VU32 below = Set((1u << discarded) - 1);
  VU32 sum = values;
  if constexpr (kMode == RoundingMode::nearest_even) {
    const VU32 down = hn::Add(values, Set((1u << (discarded - 1)) - 1));
    sum = hn::IfThenElse(hn::TestBit(values, Set(1u << discarded)), hn::Add(down, Set(1)), down);
  } else if constexpr (kMode == RoundingMode::nearest_away) {
    sum = hn::Add(values, Set(1u << (discarded - 1)));
  } else if constexpr (kMode == RoundingMode::up || kMode == RoundingMode::down) {
    const VU32 negative = hn::BitCast(kU32, hn::ShiftRight<31>(hn::BitCast(kI32, bits)));
    sum = hn::Add(values, kMode == RoundingMode::up ? hn::AndNot(negative, below) : hn::And(negative, below));
  } else if constexpr (kMode == RoundingMode::to_odd) {
    // Bits below s carry into its bit exactly where they are not all zero; where it is set already they are cut off.
    sum = hn::Or(values, hn::Add(hn::And(values, below), below));
  } else if constexpr (kMode == RoundingMode::stochastic) {
    sum = hn::Add(values, BelowStep(*random, discarded));
    random->undecided = hn::Sub(hn::Xor(hn::And(sum, Set(k.undecided)), Set(HWY_MAX(k.undecided, 1))), Set(1));
  }
  return sum;
}

// Rounded magnitudes in units: encodings, or bits of FP32 values.
template <RoundingMode kMode, bool kEncodings>
HWY_INLINE VU32 RoundShifted(const RoundConstants& k, VU32 bits, VU32 magnitude, RandomLanes* random) {
  const VU32 sum = AddedBelow<kMode>(k, bits, magnitude, random);
  if constexpr (kEncodings) return hn::ShiftRightSame(sum, k.discarded);
  return hn::AndNot(Set((1u << k.discarded) - 1), sum);
}

// `kUsual`: all magnitudes are below the largest number; what becomes of others does not matter.
template <RoundingMode kMode, bool kEncodings, bool kUsual>
HWY_INLINE VU32 RoundScaled(const RoundConstants& k, VU32 bits, VU32 magnitude, RandomLanes* random) {
  const int fraction_bits = 23 - k.discarded;
  const VU32 clamped =
      kUsual ? magnitude : hn::BitCast(kU32, hn::Min(hn::BitCast(kI32, magnitude), hn::BitCast(kI32, Set(k.clamp))));
  const VU32 smallest = Set(k.smallest_field);
  const VU32 exponent =
      hn::BitCast(kU32, hn::Max(hn::BitCast(kI32, hn::And(clamped, Set(0x7F800000))), hn::BitCast(kI32, smallest)));
  VU32 power = hn::Add(exponent, Set(static_cast<uint32_t>(k.discarded) << 23));
  VU32 value = clamped;
  if constexpr (kMode == RoundingMode::up || kMode == RoundingMode::down) {
    const VU32 sign = hn::And(bits, Set(0x80000000));
    power = hn::Or(power, sign);
    value = hn::Or(clamped, sign);
  } else if constexpr (kMode == RoundingMode::nearest_away) {
    const VU32 half = hn::Sub(exponent, Set(static_cast<uint32_t>(fraction_bits + 1) << 23));
    value = AsBits(hn::Add(AsFloat(clamped), AsFloat(half)));
  } else if constexpr (kMode == RoundingMode::stochastic) {
    const VU32 unit = hn::Sub(exponent, Set(static_cast<uint32_t>(fraction_bits + random->bits) << 23));
    const VF32 number = hn::ConvertTo(kF32, hn::BitCast(kI32, random->numbers));
    value = AsBits(hn::MulAdd(number, AsFloat(unit), AsFloat(clamped)));  // the product is exact
  }
  VF32 sum = hn::Add(AsFloat(value), AsFloat(power));
  if constexpr (kMode == RoundingMode::to_odd) {
    const auto exact = hn::Eq(hn::Sub(sum, AsFloat(power)), AsFloat(clamped));
    sum = AsFloat(hn::IfThenElse(hn::RebindMask(kU32, exact), AsBits(sum), hn::Or(AsBits(sum), Set(1))));
  }
  if constexpr (kMode == RoundingMode::stochastic) {
    // What is left above the lower neighbour, beside (1 - 2^-16) s.
    const VF32 rest = hn::Sub(AsFloat(value), hn::Sub(sum, AsFloat(power)));
    const VU32 below = hn::Sub(exponent, Set((static_cast<uint32_t>(fraction_bits) << 23) + 0x101));  // the number before it
    random->undecided = hn::Sub(below, AsBits(rest));                                                 // both are positive
  }
  if constexpr (kEncodings)
    return hn::Add(hn::ShiftRightSame(hn::Sub(exponent, smallest), k.discarded), hn::Sub(AsBits(sum), power));
  const VU32 rounded = AsBits(hn::Sub(sum, AsFloat(power)));
  if constexpr (kMode == RoundingMode::up || kMode == RoundingMode::down) return hn::And(rounded, Set(0x7FFFFFFF));
  return rounded;
}

// Signs and all: a carry does not reach them, as the largest sum is that of Inf. Not of NaN.
template <RoundingMode kMode, bool kEncodings>
HWY_INLINE VU32 RoundCarried(const RoundConstants& k, VU32 bits, RandomLanes* random) {
  VU32 sum;
  if constexpr (kMode == RoundingMode::stochastic) {
    sum = hn::Add(bits, random->numbers);  // 16 bits are discarded, so that 16 decide
  } else if constexpr (kMode == RoundingMode::nearest_even) {
    // Less half a step is added, and the last bit that stays: as one number, whose complement is taken off. At least 2 bits are
    // discarded.
    const VU32 shifted = ShiftRightBy(bits, k.discarded);
#if HWY_TARGET <= HWY_AVX3
    sum = hn::Sub(bits, VU32{_mm512_ternarylogic_epi32(shifted.raw, Set(1).raw, Set(~0u << (k.discarded - 1)).raw, 0xAE)});
#else
    sum = hn::Sub(bits, hn::Or(hn::AndNot(shifted, Set(1)), Set(~0u << (k.discarded - 1))));
#endif
  } else {
    sum = AddedBelow<kMode>(k, bits, bits, nullptr);
  }
  if constexpr (kEncodings) return hn::ShiftRightSame(sum, k.discarded);
  return hn::AndNot(Set((1u << k.discarded) - 1), sum);
}

template <bool kEncodings>
HWY_INLINE VU32 RoundConverted(VU32 bits) {
  const auto encodings = RoundToF16(kF32, AsFloat(bits));
  if constexpr (kEncodings) return hn::PromoteTo(kU32, encodings);
  return AsBits(F16ToFloat(kF32, encodings));
}

// As RoundScaled for usual magnitudes, of stochastic rounding by first halves.
template <bool kEncodings>
HWY_INLINE VU32 RoundCounted(const RoundConstants& k, VU32 magnitude, RandomLanes* random) {
  const VU32 smallest = Set(k.smallest_field);
  const VU32 exponent =
      hn::BitCast(kU32, hn::Max(hn::BitCast(kI32, hn::And(magnitude, Set(0x7F800000))), hn::BitCast(kI32, smallest)));
  const VU32 power = hn::Add(exponent, Set(static_cast<uint32_t>(k.discarded - 16) << 23));  // its ulp is 2^-16 s
  const VU32 sum = hn::Add(AsBits(hn::Add(AsFloat(magnitude), AsFloat(power))), random->numbers);
  random->undecided = hn::Sub(hn::AndNot(sum, Set(0xFFFF)), Set(1));
  if constexpr (kEncodings)
    return hn::Add(hn::ShiftRightSame(hn::Sub(exponent, smallest), k.discarded), hn::ShiftRight<16>(hn::Sub(sum, power)));
  return AsBits(hn::Sub(AsFloat(hn::And(sum, Set(0xFFFF0000))), AsFloat(power)));
}

// Magnitudes in units with the signs of `bits`.
template <bool kEncodings, bool kSimple>
HWY_INLINE VU32 WithSign(const RoundConstants& k, VU32 bits, VU32 result) {
  VU32 sign = hn::And(bits, Set(0x80000000));
  if constexpr (kEncodings) sign = hn::ShiftRightSame(sign, k.sign_shift);
  const VU32 signed_result = hn::Or(result, sign);
  if constexpr (kSimple) return signed_result;
  const auto drops = hn::And(hn::Eq(result, hn::Zero(kU32)), hn::Eq(Set(k.zero_sign), hn::Zero(kU32)));
  return hn::IfThenZeroElse(drops, signed_result);
}

// Rounded magnitudes in units, before overflow.
template <RoundingMode kMode, RoundingCore kCore, bool kEncodings, bool kSimple, bool kUsual>
HWY_INLINE VU32 RoundMagnitude(const RoundConstants& k, VU32 bits, VU32 magnitude, RandomLanes* random) {
  VU32 result;
  if constexpr (kCore == RoundingCore::shifted) {
    result = RoundShifted<kMode, kEncodings>(k, bits, magnitude, random);
  } else if constexpr (kCore == RoundingCore::counted && kUsual) {
    result = RoundCounted<kEncodings>(k, magnitude, random);
  } else {
    result = RoundScaled<kMode, kEncodings, kUsual>(k, bits, magnitude, random);
  }
  return kSimple ? result : hn::IfThenZeroElse(Greater(Set(k.smallest_kept), result), result);
}

// A vector of results, from the bits of FP32 values.
template <RoundingMode kMode, RoundingCore kCore, bool kEncodings, bool kSimple>
HWY_INLINE VU32 Round(const RoundConstants& k, VU32 bits, RandomLanes* random = nullptr) {
  if constexpr (kCore == RoundingCore::converted) return RoundConverted<kEncodings>(bits);
  if constexpr (kCore == RoundingCore::carried) {
    const VU32 quiet = kEncodings ? hn::ShiftRightSame(bits, k.discarded) : hn::AndNot(Set((1u << k.discarded) - 1), bits);
    const VU32 result = RoundCarried<kMode, kEncodings>(k, bits, random);
    return hn::IfThenElse(IsNotANumber(bits), hn::Or(quiet, Set(k.nan_set)), result);
  }
  const VU32 magnitude = hn::And(bits, Set(0x7FFFFFFF));
  VU32 result = RoundMagnitude<kMode, kCore, kEncodings, kSimple, false>(k, bits, magnitude, random);

  constexpr bool kIsDirected = is_directed(kMode);
  VU32 over = Set(k.over_positive);
  if constexpr (kMode == RoundingMode::up || kMode == RoundingMode::down) {
    const auto negative = hn::RebindMask(kU32, hn::MaskFromVec(hn::BroadcastSignBit(hn::BitCast(kI32, bits))));
    over = hn::IfThenElse(negative, Set(k.over_negative), over);
  }
  const VU32 infinity = Set(0x7F800000);
  result = hn::IfThenElse(Greater(result, Set(k.largest)), over, result);
  if constexpr (kIsDirected) result = hn::IfThenElse(hn::Eq(magnitude, infinity), Set(k.infinite), result);

  VU32 sign = hn::And(bits, Set(0x80000000));
  if constexpr (kEncodings) sign = hn::ShiftRightSame(sign, k.sign_shift);
  const VU32 payload = hn::And(kEncodings ? hn::ShiftRightSame(bits, k.nan_shift) : bits, Set(k.nan_payload));
  const VU32 nan = hn::Or(hn::Or(payload, Set(k.nan_set)), hn::And(sign, Set(k.nan_sign)));
  return hn::IfThenElse(Greater(magnitude, infinity), nan, WithSign<kEncodings, kSimple>(k, bits, result));
}

// The same in fewer steps, where AnyIsUnusual() of what it says of vectors is false.
template <RoundingMode kMode, RoundingCore kCore, bool kEncodings, bool kSimple>
HWY_INLINE VU32 RoundUsual(const RoundConstants& k, VU32 bits, VU32& unusual, RandomLanes* random = nullptr) {
  unusual = bits;
  if constexpr (kCore == RoundingCore::converted) return RoundConverted<kEncodings>(bits);
  if constexpr (kCore == RoundingCore::carried) return RoundCarried<kMode, kEncodings>(k, bits, random);
  const VU32 magnitude = hn::And(bits, Set(0x7FFFFFFF));
  const VU32 result = RoundMagnitude<kMode, kCore, kEncodings, kSimple, true>(k, bits, magnitude, random);
  unusual = hn::Sub(Set(k.usual), magnitude);
  if constexpr (kMode == RoundingMode::stochastic) unusual = hn::Or(unusual, random->undecided);
  return WithSign<kEncodings, kSimple>(k, bits, result);
}
// Whether a lane is as large as the largest number, Inf, NaN, or undecided, as far as the core minds.
template <RoundingCore kCore, size_t kVectors>
HWY_INLINE bool AnyIsUnusual(const VU32 (&vectors)[kVectors]) {
  if constexpr (kCore == RoundingCore::converted) return false;
  if constexpr (kCore == RoundingCore::carried) return AnyIsNotANumber(vectors);
  VU32 any = vectors[0];
  for (size_t i = 1; i < kVectors; ++i) any = hn::Or(any, vectors[i]);
  return AnyIsNegative(any);
}

HWY_INLINE void Put(VU32 results, float* out) { hn::StoreU(AsFloat(results), kF32, out); }
template <typename Out>
HWY_INLINE void Put(VU32 results, Out* out) {
  const hn::Rebind<Out, U32> narrow;
  hn::StoreU(hn::TruncateTo(narrow, results), narrow, out);
}

}  // namespace HWY_NAMESPACE
}  // namespace ulpscope
HWY_AFTER_NAMESPACE();

#endif
