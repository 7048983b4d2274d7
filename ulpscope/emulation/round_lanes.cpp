// The vector loops of round_array.h.
#include "ulpscope/emulation/round_kernel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ulpscope/emulation/round_lanes.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "ulpscope/emulation/round_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ulpscope {
namespace HWY_NAMESPACE {

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
