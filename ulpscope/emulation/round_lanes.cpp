// The vector loops of round_array.h. Let s be the step of the format at a value x: the distance between its neighbours.
//   shifted core: s is a fixed number of bits of x's encoding, at every value. Rounding adds to the encoding, a carry out of the
//     fraction goes into the exponent as it should, and the bits below s are cleared. The carried core is its short form.
//   scaled core: c is the power of two whose ulp is s. |x| + c has the bits of x down to s and no others, so the addition rounds,
//   in
//     the CPU's rounding mode, and subtracting c again is exact. Its last bits, counted from those of c, are |x| / s: the encoding.
//     Ties away from zero and random numbers are added to |x| before, the sum cut off: it keeps all bits down to s and below.
#include "ulpscope/emulation/round_kernel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ulpscope/emulation/round_lanes.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
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
constexpr F32 kF32;
constexpr U32 kU32;
constexpr I32 kI32;
constexpr U64 kU64;

HWY_INLINE auto Greater(VU32 a, VU32 b) { return hn::RebindMask(kU32, hn::Gt(hn::BitCast(kI32, a), hn::BitCast(kI32, b))); }
HWY_INLINE VU32 Set(uint32_t value) { return hn::Set(kU32, value); }
HWY_INLINE VF32 AsFloat(VU32 bits) { return hn::BitCast(kF32, bits); }
HWY_INLINE VU32 AsBits(VF32 value) { return hn::BitCast(kU32, value); }

// Philox's numbers of consecutive elements, in their order, some thousand at a time.
class RandomNumbers {
 public:
  static constexpr size_t kElements = 1024;  // of a fill; half as many numbers serve where elements share them

  RandomNumbers(const RandomStream& random, bool halves) : halves_(halves), block_((halves ? random.first / 2 : random.first) / 4) {
    for (int round = 0; round < 10; ++round) {
      const auto step = static_cast<uint32_t>(round);
      keys_[round][0] = static_cast<uint32_t>(random.seed) + step * 0x9E3779B9u;
      keys_[round][1] = static_cast<uint32_t>(random.seed >> 32) + step * 0xBB67AE85u;
    }
    stream_[0] = static_cast<uint32_t>(random.stream);
    stream_[1] = static_cast<uint32_t>(random.stream >> 32);
  }

  void Fill() {
    constexpr size_t kChains = 4;  // independent of each other, as a round's multiplications have to wait for those of the last
    const size_t count = halves_ ? kElements / 2 : kElements;
    for (size_t i = 0; i < count; i += kChains * kNumbers) Draw<kChains>(numbers_ + i);
  }

  // For the elements i, i + 1, ... of a fill.
  HWY_INLINE VU32 Get(size_t i) const {
    if (!halves_) return hn::Load(kU32, numbers_ + i);
    // The lower half of a number is the earlier element.
    const hn::Rebind<uint16_t, U32> half;
    return hn::ShiftLeft<16>(hn::PromoteTo(kU32, hn::Load(half, reinterpret_cast<const uint16_t*>(numbers_) + i)));
  }

 private:
  static constexpr size_t kCounters = hn::MaxLanes(U64()), kNumbers = 4 * kCounters;  // of a chain

  template <size_t kChains>
  HWY_INLINE void Draw(uint32_t* HWY_RESTRICT out) {
    // The order in which pairs of words, interleaved within 128 bits, come out in the order of counters: the even 64-bit lanes hold
    // the first half of them.
    alignas(64) static constexpr uint64_t kOrder[3][8] = {{0, 1}, {0, 2, 1, 3}, {0, 4, 1, 5, 2, 6, 3, 7}};
    constexpr int kRow = kCounters == 2 ? 0 : kCounters == 4 ? 1 : 2;
    const VU64 order = hn::Load(kU64, kOrder[kRow]);
    // Each 64-bit lane is a counter; of a word the upper half is whatever comes, and is not used.
    const VU32 m0 = hn::BitCast(kU32, hn::Set(kU64, 0xD2511F53u)), m1 = hn::BitCast(kU32, hn::Set(kU64, 0xCD9E8D57u));
    VU64 c0[kChains], c1[kChains], c2[kChains], c3[kChains];
    for (size_t j = 0; j < kChains; ++j) {
      c0[j] = hn::Add(hn::Set(kU64, block_ + j * kCounters), order);
      c1[j] = hn::ShiftRight<32>(c0[j]);
      c2[j] = hn::Set(kU64, stream_[0]);
      c3[j] = hn::Set(kU64, stream_[1]);
    }
    block_ += kChains * kCounters;
    for (const auto& key : keys_) {
      const VU64 key0 = hn::Set(kU64, key[0]), key1 = hn::Set(kU64, key[1]);
      for (size_t j = 0; j < kChains; ++j) {
        const VU64 p0 = hn::MulEven(hn::BitCast(kU32, c0[j]), m0), p1 = hn::MulEven(hn::BitCast(kU32, c2[j]), m1);
        c0[j] = hn::Xor3(hn::ShiftRight<32>(p1), c1[j], key0);
        c1[j] = p1;
        c2[j] = hn::Xor3(hn::ShiftRight<32>(p0), c3[j], key1);
        c3[j] = p0;
      }
    }
    const VU64 low = hn::Set(kU64, 0xFFFFFFFFu);
    for (size_t j = 0; j < kChains; ++j) {
      const VU64 first = hn::Or(hn::And(c0[j], low), hn::ShiftLeft<32>(c1[j]));
      const VU64 second = hn::Or(hn::And(c2[j], low), hn::ShiftLeft<32>(c3[j]));
      uint32_t* numbers = out + j * kNumbers;
      hn::Store(hn::BitCast(kU32, hn::InterleaveLower(kU64, first, second)), kU32, numbers);
      hn::Store(hn::BitCast(kU32, hn::InterleaveUpper(kU64, first, second)), kU32, numbers + 2 * kCounters);
    }
  }

  bool halves_;
  uint64_t block_;
  uint32_t keys_[10][2];
  uint32_t stream_[2];
  alignas(64) uint32_t numbers_[kElements];
};

// `values` and what rounding adds to them, in the bits below a step and carried into it.
template <RoundingMode kMode>
HWY_INLINE VU32 AddedBelow(const RoundConstants& k, VU32 bits, VU32 values, VU32 random) {
  const int discarded = k.discarded;
  const VU32 below = Set((1u << discarded) - 1);
  VU32 sum = values;
  if constexpr (kMode == RoundingMode::nearest_even) {
    const VU32 odd = hn::And(hn::ShiftRightSame(values, discarded), Set(1));
    sum = hn::Add(values, hn::Add(odd, Set((1u << (discarded - 1)) - 1)));
  } else if constexpr (kMode == RoundingMode::nearest_away) {
    sum = hn::Add(values, Set(1u << (discarded - 1)));
  } else if constexpr (kMode == RoundingMode::up || kMode == RoundingMode::down) {
    const VU32 negative = hn::BitCast(kU32, hn::ShiftRight<31>(hn::BitCast(kI32, bits)));
    sum = hn::Add(values, kMode == RoundingMode::up ? hn::AndNot(negative, below) : hn::And(negative, below));
  } else if constexpr (kMode == RoundingMode::to_odd) {
    // Bits below s carry into its bit exactly where they are not all zero; where it is set already they are cut off.
    sum = hn::Or(values, hn::Add(hn::And(values, below), below));
  } else if constexpr (kMode == RoundingMode::stochastic) {
    const VU32 leading = hn::And(random, Set(~0u << (32 - k.random_bits)));
    sum = hn::Add(values, hn::ShiftRightSame(leading, 32 - discarded));
  }
  return sum;
}

// Rounded magnitudes in units: encodings, or bits of FP32 values.
template <RoundingMode kMode, bool kEncodings>
HWY_INLINE VU32 RoundShifted(const RoundConstants& k, VU32 bits, VU32 magnitude, VU32 random) {
  const VU32 sum = AddedBelow<kMode>(k, bits, magnitude, random);
  if constexpr (kEncodings) return hn::ShiftRightSame(sum, k.discarded);
  return hn::AndNot(Set((1u << k.discarded) - 1), sum);
}

template <RoundingMode kMode, bool kEncodings>
HWY_INLINE VU32 RoundScaled(const RoundConstants& k, VU32 bits, VU32 magnitude, VU32 random) {
  const int fraction_bits = 23 - k.discarded;
  const VU32 clamped = hn::BitCast(kU32, hn::Min(hn::BitCast(kI32, magnitude), hn::BitCast(kI32, Set(k.clamp))));
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
    const VU32 unit = hn::Sub(exponent, Set(static_cast<uint32_t>(fraction_bits + k.random_bits) << 23));
    const VU32 number = hn::ShiftRightSame(random, 32 - k.random_bits);
    const VF32 part = hn::Mul(hn::ConvertTo(kF32, hn::BitCast(kI32, number)), AsFloat(unit));
    value = AsBits(hn::Add(AsFloat(clamped), part));
  }
  VF32 sum = hn::Add(AsFloat(value), AsFloat(power));
  if constexpr (kMode == RoundingMode::to_odd) {
    const auto exact = hn::Eq(hn::Sub(sum, AsFloat(power)), AsFloat(clamped));
    sum = AsFloat(hn::IfThenElse(hn::RebindMask(kU32, exact), AsBits(sum), hn::Or(AsBits(sum), Set(1))));
  }
  if constexpr (kEncodings)
    return hn::Add(hn::ShiftRightSame(hn::Sub(exponent, smallest), k.discarded), hn::Sub(AsBits(sum), power));
  const VU32 rounded = AsBits(hn::Sub(sum, AsFloat(power)));
  if constexpr (kMode == RoundingMode::up || kMode == RoundingMode::down) return hn::And(rounded, Set(0x7FFFFFFF));
  return rounded;
}

// Signs and all: a carry does not reach them, as the largest sum is that of Inf.
template <RoundingMode kMode, bool kEncodings>
HWY_INLINE VU32 RoundCarried(const RoundConstants& k, VU32 bits, VU32 random) {
  const VU32 sum = AddedBelow<kMode>(k, bits, bits, random);
  const VU32 quiet = hn::Or(bits, Set(0x400000));
  const VU32 result = hn::IfThenElse(hn::RebindMask(kU32, hn::IsNaN(AsFloat(bits))), quiet, sum);
  if constexpr (kEncodings) return hn::ShiftRightSame(result, k.discarded);
  return hn::AndNot(Set((1u << k.discarded) - 1), result);
}

template <bool kEncodings>
HWY_INLINE VU32 RoundConverted(VU32 bits) {
  const auto encodings = RoundToF16(kF32, AsFloat(bits));
  if constexpr (kEncodings) return hn::PromoteTo(kU32, encodings);
  return AsBits(F16ToFloat(kF32, encodings));
}

// A vector of results, from the bits of FP32 values.
template <RoundingMode kMode, RoundingCore kCore, bool kEncodings, bool kSimple>
HWY_INLINE VU32 Round(const RoundConstants& k, VU32 bits, VU32 random) {
  if constexpr (kCore == RoundingCore::carried) return RoundCarried<kMode, kEncodings>(k, bits, random);
  if constexpr (kCore == RoundingCore::converted) return RoundConverted<kEncodings>(bits);
  const VU32 magnitude = hn::And(bits, Set(0x7FFFFFFF));
  VU32 result = kCore == RoundingCore::shifted ? RoundShifted<kMode, kEncodings>(k, bits, magnitude, random)
                                               : RoundScaled<kMode, kEncodings>(k, bits, magnitude, random);
  if constexpr (!kSimple) result = hn::IfThenZeroElse(Greater(Set(k.smallest_kept), result), result);

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
  VU32 signed_result = hn::Or(result, sign);
  if constexpr (!kSimple) {
    const auto drops = hn::And(hn::Eq(result, hn::Zero(kU32)), hn::Eq(Set(k.zero_sign), hn::Zero(kU32)));
    signed_result = hn::IfThenZeroElse(drops, signed_result);
  }
  const VU32 payload = hn::And(kEncodings ? hn::ShiftRightSame(bits, k.nan_shift) : bits, Set(k.nan_payload));
  const VU32 nan = hn::Or(hn::Or(payload, Set(k.nan_set)), hn::And(sign, Set(k.nan_sign)));
  return hn::IfThenElse(Greater(magnitude, infinity), nan, signed_result);
}

HWY_INLINE void Put(VU32 results, float* out) { hn::StoreU(AsFloat(results), kF32, out); }
template <typename Out>
HWY_INLINE void Put(VU32 results, Out* out) {
  const hn::Rebind<Out, U32> narrow;
  hn::StoreU(hn::TruncateTo(narrow, results), narrow, out);
}

// body(values, results) for whole vectors; the last, which is a part, from and to a copy.
template <typename Out, typename Body>
HWY_INLINE void ForVectors(const float* in, Out* out, size_t count, Body body) {
  constexpr size_t kLanes = hn::MaxLanes(F32());
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) Put(body(AsBits(hn::LoadU(kF32, in + i)), i), out + i);
  if (i == count) return;
  float rest_in[kLanes] = {};
  Out rest_out[kLanes];
  for (size_t j = i; j < count; ++j) rest_in[j - i] = in[j];
  Put(body(AsBits(hn::LoadU(kF32, rest_in)), i), rest_out);
  for (size_t j = i; j < count; ++j) out[j] = rest_out[j - i];
}

template <RoundingMode kMode, RoundingCore kCore, bool kSimple, typename Out>
HWY_NOINLINE void Loop(const RoundConstants& constants, const float* in, Out* out, size_t count, const RandomStream& stream) {
  const RoundConstants k = constants;
  constexpr bool kEncodings = !hwy::IsFloat<Out>();
  if constexpr (kMode == RoundingMode::stochastic) {
    RandomNumbers numbers(stream, k.halves);
    for (size_t begin = 0; begin < count; begin += RandomNumbers::kElements) {
      numbers.Fill();
      ForVectors(in + begin, out + begin, HWY_MIN(count - begin, RandomNumbers::kElements),
                 [&](VU32 bits, size_t i) HWY_ATTR { return Round<kMode, kCore, kEncodings, kSimple>(k, bits, numbers.Get(i)); });
    }
  } else {
    ForVectors(in, out, count,
               [&](VU32 bits, size_t) HWY_ATTR { return Round<kMode, kCore, kEncodings, kSimple>(k, bits, hn::Zero(kU32)); });
  }
}

template <RoundingMode kMode, typename Out>
void LoopOfMode(const RoundConstants& k, const float* in, Out* out, size_t count, const RandomStream& random) {
  constexpr bool kIsDirected = is_directed(kMode);
  const auto loop = [&] {
    if constexpr (kMode == RoundingMode::nearest_even) {
      if (k.core == RoundingCore::converted) return Loop<kMode, RoundingCore::converted, true, Out>;
    }
    if constexpr (!kIsDirected) {
      if (k.core == RoundingCore::carried) return Loop<kMode, RoundingCore::carried, true, Out>;
    }
    if (k.core == RoundingCore::shifted)
      return k.is_simple ? Loop<kMode, RoundingCore::shifted, true, Out> : Loop<kMode, RoundingCore::shifted, false, Out>;
    return k.is_simple ? Loop<kMode, RoundingCore::scaled, true, Out> : Loop<kMode, RoundingCore::scaled, false, Out>;
  }();
  loop(k, in, out, count, random);
}

template <typename Out>
void RoundLanes(const RoundConstants& k, const float* in, Out* out, size_t count, const RandomStream& random) {
  switch (k.mode) {
    case RoundingMode::nearest_even:
      return LoopOfMode<RoundingMode::nearest_even>(k, in, out, count, random);
    case RoundingMode::nearest_away:
      return LoopOfMode<RoundingMode::nearest_away>(k, in, out, count, random);
    case RoundingMode::toward_zero:
      return LoopOfMode<RoundingMode::toward_zero>(k, in, out, count, random);
    case RoundingMode::up:
      return LoopOfMode<RoundingMode::up>(k, in, out, count, random);
    case RoundingMode::down:
      return LoopOfMode<RoundingMode::down>(k, in, out, count, random);
    case RoundingMode::to_odd:
      return LoopOfMode<RoundingMode::to_odd>(k, in, out, count, random);
    case RoundingMode::stochastic:
      return LoopOfMode<RoundingMode::stochastic>(k, in, out, count, random);
  }
}

void RoundLanesToValues(const RoundConstants& k, const float* in, float* out, size_t count, const RandomStream& random) {
  RoundLanes(k, in, out, count, random);
}
void RoundLanesTo8(const RoundConstants& k, const float* in, uint8_t* out, size_t count, const RandomStream& random) {
  RoundLanes(k, in, out, count, random);
}
void RoundLanesTo16(const RoundConstants& k, const float* in, uint16_t* out, size_t count, const RandomStream& random) {
  RoundLanes(k, in, out, count, random);
}

}  // namespace HWY_NAMESPACE
}  // namespace ulpscope
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace ulpscope {

HWY_EXPORT(RoundLanesToValues);
HWY_EXPORT(RoundLanesTo8);
HWY_EXPORT(RoundLanesTo16);

void round_lanes(const RoundConstants& constants, const float* in, float* out, size_t count, const RandomStream& random) {
  HWY_DYNAMIC_DISPATCH(RoundLanesToValues)(constants, in, out, count, random);
}
void round_lanes(const RoundConstants& constants, const float* in, uint8_t* out, size_t count, const RandomStream& random) {
  HWY_DYNAMIC_DISPATCH(RoundLanesTo8)(constants, in, out, count, random);
}
void round_lanes(const RoundConstants& constants, const float* in, uint16_t* out, size_t count, const RandomStream& random) {
  HWY_DYNAMIC_DISPATCH(RoundLanesTo16)(constants, in, out, count, random);
}

}  // namespace ulpscope

#endif
