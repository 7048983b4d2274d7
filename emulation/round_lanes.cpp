// The vector loops of round_array.h.
#include "ulpscope/base/philox.h"
#include "ulpscope/emulation/round_kernel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ulpscope/emulation/round_lanes.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "ulpscope/emulation/round_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ulpscope {
namespace HWY_NAMESPACE {

// The random bits of consecutive elements (random_bits_of), some hundred at a time: the first halves, and the whole where those do
// not decide.
class RandomNumbers {
 public:
  static constexpr size_t kElements = 256;  // of a fill

  RandomNumbers(const RandomStream& random, int random_bits) : random_(random), kept_(~0u << (32 - random_bits)) {
    for (int round = 0; round < kRandomRounds; ++round)
      for (int i = 0; i < 2; ++i)
        keys_[round][i] = static_cast<uint32_t>(random.seed >> (32 * i)) + static_cast<uint32_t>(round) * kPhiloxKeySteps[i];
    stream_[0] = static_cast<uint32_t>(random.stream);
    stream_[1] = static_cast<uint32_t>(random.stream >> 32);
  }

  void Fill() {
    constexpr size_t kChains = 4;  // independent of each other, as a round's multiplications have to wait for those of the last
    for (size_t i = 0; i < kElements / 2; i += kChains * kNumbers) Draw<kChains>((random_.first + next_ + 2 * i) / 8, numbers_ + i);
    filled_ = next_;
    next_ += kElements;
  }

  // Of the elements i, i + 1, ... of a fill.
  HWY_INLINE RandomLanes FirstHalves(size_t i) const {
    const hn::Rebind<uint16_t, U32> half;
    return {hn::PromoteTo(kU32, hn::Load(half, reinterpret_cast<const uint16_t*>(numbers_) + i)), 16};
  }
  // All bits of the lanes that are undecided, and the first halves of the others.
  RandomLanes Whole(size_t i, const RandomLanes& first_halves) const {
    constexpr size_t kLanes = hn::MaxLanes(F32());
    alignas(64) uint32_t numbers[kLanes], undecided[kLanes];
    hn::Store(hn::ShiftLeft<8>(first_halves.numbers), kU32, numbers);
    hn::Store(hn::ShiftRight<31>(first_halves.undecided), kU32, undecided);
    for (size_t lane = 0; lane < kLanes; ++lane) {
      if (undecided[lane] != 0) numbers[lane] = (random_bits_of(random_, filled_ + i + lane) & kept_) >> 8;
    }
    return {hn::Load(kU32, numbers), 24};
  }

 private:
  static constexpr size_t kCounters = hn::MaxLanes(U64()), kNumbers = 4 * kCounters;  // of a chain

  template <size_t kChains>
  HWY_INLINE void Draw(uint64_t block, uint32_t* HWY_RESTRICT out) {
    // The order in which pairs of words, interleaved within 128 bits, come out in the order of counters: the even 64-bit lanes hold
    // the first half of them.
    alignas(64) static constexpr uint64_t kOrder[3][8] = {{0, 1}, {0, 2, 1, 3}, {0, 4, 1, 5, 2, 6, 3, 7}};
    constexpr int kRow = kCounters == 2 ? 0 : kCounters == 4 ? 1 : 2;
    const VU64 order = hn::Load(kU64, kOrder[kRow]);
    // Each 64-bit lane is a counter; of a word the upper half is whatever comes, and is not used.
    const VU32 m0 = hn::BitCast(kU32, hn::Set(kU64, kPhiloxMultipliers[0])),
               m1 = hn::BitCast(kU32, hn::Set(kU64, kPhiloxMultipliers[1]));
    VU64 c0[kChains], c1[kChains], c2[kChains], c3[kChains];
    for (size_t j = 0; j < kChains; ++j) {
      c0[j] = hn::Add(hn::Set(kU64, block + j * kCounters), order);
      c1[j] = hn::ShiftRight<32>(c0[j]);
      c2[j] = hn::Set(kU64, stream_[0]);
      c3[j] = hn::Set(kU64, stream_[1]);
    }
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
    const VU32 kept = Set(kept_ >> 16 | (kept_ & 0xFFFF0000));
    for (size_t j = 0; j < kChains; ++j) {
      const VU64 first = hn::Or(hn::And(c0[j], low), hn::ShiftLeft<32>(c1[j]));
      const VU64 second = hn::Or(hn::And(c2[j], low), hn::ShiftLeft<32>(c3[j]));
      uint32_t* numbers = out + j * kNumbers;
      hn::Store(hn::And(kept, hn::BitCast(kU32, hn::InterleaveLower(kU64, first, second))), kU32, numbers);
      hn::Store(hn::And(kept, hn::BitCast(kU32, hn::InterleaveUpper(kU64, first, second))), kU32, numbers + 2 * kCounters);
    }
  }

  RandomStream random_;
  uint64_t filled_ = 0, next_ = 0;   // elements of the stream: the first of the last fill, and of the next
  uint32_t kept_;                    // the leading bits that are asked for
  uint64_t keys_[kRandomRounds][2];  // of 32 bits, as wide as the lanes that read them
  uint32_t stream_[2];
  alignas(64) uint32_t numbers_[kElements / 2];
};

// result(bits, i, unusual) for the vector of elements i, i + 1, ..., and where AnyIsUnusual() of what that says
// result_of_unusual(bits, i), which is right for all. Some vectors at a time, which share the test; the last, which is a part, from
// and to a copy.
template <RoundingCore kCore, typename Out, typename Usual, typename Unusual>
HWY_INLINE void ForVectors(const float* in, Out* out, size_t count, Usual result, Unusual result_of_unusual) {
  // Found by measuring: more were slower on one instruction set or the other.
  constexpr size_t kMost = kCore == RoundingCore::carried ? 8 : 4;
  constexpr size_t kVectors = HWY_TARGET <= HWY_AVX3 ? kMost : HWY_TARGET <= HWY_AVX2 ? kMost / 2 : 2;
  constexpr size_t kLanes = hn::MaxLanes(F32()), kTogether = kVectors * kLanes;
  size_t i = 0;
  for (; i + kTogether <= count; i += kTogether) {
    VU32 bits[kVectors], results[kVectors], unusual[kVectors];
    for (size_t j = 0; j < kVectors; ++j) bits[j] = AsBits(hn::LoadU(kF32, in + i + j * kLanes));
    for (size_t j = 0; j < kVectors; ++j) results[j] = result(bits[j], i + j * kLanes, unusual[j]);
    if (HWY_UNLIKELY(AnyIsUnusual<kCore>(unusual))) {
      for (size_t j = 0; j < kVectors; ++j)
        results[j] = result_of_unusual(AsBits(hn::LoadU(kF32, in + i + j * kLanes)), i + j * kLanes);
    }
    for (size_t j = 0; j < kVectors; ++j) Put(results[j], out + i + j * kLanes);
  }
  for (; i + kLanes <= count; i += kLanes) Put(result_of_unusual(AsBits(hn::LoadU(kF32, in + i)), i), out + i);
  if (i == count) return;
  float rest_in[kLanes] = {};
  Out rest_out[kLanes];
  for (size_t j = i; j < count; ++j) rest_in[j - i] = in[j];
  Put(result_of_unusual(AsBits(hn::LoadU(kF32, rest_in)), i), rest_out);
  for (size_t j = i; j < count; ++j) out[j] = rest_out[j - i];
}

// `numbers`: of stochastic rounding.
template <RoundingMode kMode, RoundingCore kCore, bool kEncodings, bool kSimple>
HWY_NOINLINE VU32 RoundUnusual(const RoundConstants& k, VU32 bits, size_t i, const RandomNumbers* numbers) {
  if constexpr (kMode != RoundingMode::stochastic) return Round<kMode, kCore, kEncodings, kSimple>(k, bits);
  RandomLanes random = numbers->FirstHalves(i);
  const VU32 result = Round<kMode, kCore, kEncodings, kSimple>(k, bits, &random);
  if (!AnyIsNegative(random.undecided)) return result;
  random = numbers->Whole(i, random);
  return Round<kMode, kCore, kEncodings, kSimple>(k, bits, &random);
}

template <RoundingMode kMode, RoundingCore kCore, bool kSimple, typename Out>
HWY_NOINLINE void Loop(const RoundConstants& constants, const float* in, Out* out, size_t count, const RandomStream& stream) {
  const RoundConstants k = constants;  // a copy that no call can change, so that vectors of them stay in registers
  constexpr bool kEncodings = !hwy::IsFloat<Out>();
  if constexpr (kMode == RoundingMode::stochastic) {
    RandomNumbers numbers(stream, k.random_bits);
    for (size_t begin = 0; begin < count; begin += RandomNumbers::kElements) {
      numbers.Fill();
      ForVectors<kCore>(
          in + begin, out + begin, HWY_MIN(count - begin, RandomNumbers::kElements),
          [&](VU32 bits, size_t i, VU32& unusual) HWY_ATTR {
            RandomLanes random = numbers.FirstHalves(i);
            return RoundUsual<kMode, kCore, kEncodings, kSimple>(k, bits, unusual, &random);
          },
          [&](VU32 bits, size_t i)
              HWY_ATTR { return RoundUnusual<kMode, kCore, kEncodings, kSimple>(constants, bits, i, &numbers); });
    }
  } else {
    ForVectors<kCore>(
        in, out, count,
        [&](VU32 bits, size_t, VU32& unusual) HWY_ATTR { return RoundUsual<kMode, kCore, kEncodings, kSimple>(k, bits, unusual); },
        [&](VU32 bits, size_t i) HWY_ATTR { return RoundUnusual<kMode, kCore, kEncodings, kSimple>(constants, bits, i, nullptr); });
  }
}

// Only training's own modes have loops that leave out what flushed subnormals and a lost sign of zero take: each loop is compiled
// for every output and instruction set.
template <RoundingMode kMode, RoundingCore kCore, typename Out>
auto LoopOfCore(const RoundConstants& k) {
  if constexpr (kMode == RoundingMode::nearest_even || kMode == RoundingMode::stochastic) {
    if (k.is_simple) return Loop<kMode, kCore, true, Out>;
  }
  return Loop<kMode, kCore, false, Out>;
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
    if (k.core == RoundingCore::shifted) return LoopOfCore<kMode, RoundingCore::shifted, Out>(k);
    if constexpr (kMode == RoundingMode::stochastic) {
      if (k.core == RoundingCore::counted) return LoopOfCore<kMode, RoundingCore::counted, Out>(k);
    }
    return LoopOfCore<kMode, RoundingCore::scaled, Out>(k);
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
