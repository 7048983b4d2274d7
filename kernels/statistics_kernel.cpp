// Two passes over a block that the first one brings into the cache. The first takes sums, smallest and largest magnitude and signs,
// and leaves the exponent of each value as a byte. The second counts the exponents between the smallest and the largest: eight of
// them at a time become the bits of a byte (one set where the exponent matches), and bits are added by carry-save adders, which
// count a whole vector of bytes with three logical instructions. Where a block spans very many binades, tables of counters do.
#include "ulpscope/kernels/statistics_kernel.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>

#include "ulpscope/base/error.h"
#include "ulpscope/kernels/statistics.h"
#include "ulpscope/kernels/sum_order.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ulpscope/kernels/statistics_kernel.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "ulpscope/emulation/simd_rounding-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ulpscope {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

constexpr uint32_t kInfinityBits = 0x7F800000;
constexpr int kGroup = 64;  // floats that are taken together: whole vectors of exponent bytes on every target

using F32 = hn::ScalableTag<float>;
using U32 = hn::RebindToUnsigned<F32>;
using I32 = hn::RebindToSigned<F32>;
using F64 = hn::Repartition<double, F32>;
using U8 = hn::Repartition<uint8_t, F32>;
using VF32 = hn::Vec<F32>;
using VU32 = hn::Vec<U32>;
using VF64 = hn::Vec<F64>;
using VU8 = hn::Vec<U8>;
constexpr int kFloats = hn::MaxLanes(F32());
constexpr int kDoubles = hn::MaxLanes(F64());
constexpr int kBytes = hn::MaxLanes(U8());

// Signed comparison, which is one instruction on every target: of magnitudes, whose sign bits are clear.
HWY_INLINE auto Greater(VU32 magnitude, VU32 limit) { return hn::Gt(hn::BitCast(I32(), magnitude), hn::BitCast(I32(), limit)); }

HWY_INLINE VU32 Magnitude(VU32 bits) { return hn::And(bits, hn::Set(U32(), 0x7FFFFFFF)); }

// What the first pass finds.
struct Scan {
  BlockSums sums;
  uint32_t smallest =
      ~0u;  // magnitude of a nonzero value, or where zeros were not expected 0 if there is one; all ones: there is none
  uint32_t largest = 0;  // magnitude; kInfinityBits or more where some value is not finite and none was left out
  uint64_t negatives = 0;
  uint64_t nonfinite = 0, infinities = 0;
};

// What a block is expected to hold. Each expectation costs time where it is wrong and nothing else: `Scan` tells, and the block is
// taken again.
enum class Expect { nonzero, finite, any };

// Expect::nonzero: neither zeros nor NaN nor Inf. Expect::finite: no NaN or Inf. Expect::any leaves NaN and Inf out and counts
// them.
template <Expect kExpect>
class FirstPass {
 public:
  HWY_INLINE FirstPass() {
    for (VF64& lane : sum_) lane = hn::Zero(F64());
    for (VF64& lane : squares_) lane = hn::Zero(F64());
    smallest_ = smallest_less_one_ = hn::Set(U32(), ~0u);
    largest_ = negatives_ = hn::Zero(U32());
  }

  // kGroup values, whose exponents go to kGroup bytes, in an order of their own. kZeros: some may be zero.
  template <bool kZeros>
  HWY_INLINE void Take(const float* HWY_RESTRICT values, uint8_t* HWY_RESTRICT exponents) {
    for (int i = 0; i < kGroup; i += 4 * kFloats) {
      const VU32 a = TakeVector<kZeros>(values, i), b = TakeVector<kZeros>(values, i + kFloats);
      const VU32 c = TakeVector<kZeros>(values, i + 2 * kFloats), d = TakeVector<kZeros>(values, i + 3 * kFloats);
      hn::Store(PackExponents(a, b, c, d), U8(), exponents + i);
    }
  }

  HWY_INLINE Scan Finish() {
    alignas(64) double sum[kSumLanes], squares[kSumLanes];
    for (int i = 0; i < kSumLanes / kDoubles; ++i) {
      hn::Store(sum_[i], F64(), sum + i * kDoubles);
      hn::Store(squares_[i], F64(), squares + i * kDoubles);
    }
    add_lanes(sum);
    add_lanes(squares);
    scan_.sums = {sum[0], squares[0]};
    const uint32_t smallest = hn::GetLane(hn::MinOfLanes(U32(), smallest_));
    const uint32_t less_one = hn::GetLane(hn::MinOfLanes(U32(), smallest_less_one_));
    if (smallest != ~0u) scan_.smallest = smallest / 2;
    if (less_one != ~0u) scan_.smallest = std::min(scan_.smallest, (less_one + 1) / 2);
    scan_.largest = hn::GetLane(hn::MaxOfLanes(U32(), largest_)) / 2;
    scan_.negatives = hn::GetLane(hn::SumOfLanes(U32(), negatives_));
    return scan_;
  }

 private:
  // Takes the vector at values[i] and gives its magnitudes, doubled: their sign bits are shifted out.
  template <bool kZeros>
  HWY_INLINE VU32 TakeVector(const float* HWY_RESTRICT values, int i) {
    const hn::Half<F32> half;
    VU32 bits = hn::BitCast(U32(), hn::LoadU(F32(), values + i));
    VF64 lower, upper;
    if constexpr (kExpect == Expect::any) {
      const auto nonfinite = hn::RebindMask(U32(), Greater(Magnitude(bits), hn::Set(U32(), kInfinityBits - 1)));
      scan_.nonfinite += hn::CountTrue(U32(), nonfinite);
      scan_.infinities += hn::CountTrue(U32(), hn::Eq(hn::Add(bits, bits), hn::Set(U32(), 2 * kInfinityBits)));
      if (hn::AllTrue(U32(), nonfinite)) return hn::Zero(U32());  // tensors of nothing but NaN should cost least
      bits = hn::IfThenZeroElse(nonfinite, bits);
      const VF32 value = hn::BitCast(F32(), bits);
      lower = hn::PromoteTo(F64(), hn::LowerHalf(half, value));
      upper = hn::PromoteTo(F64(), hn::UpperHalf(half, value));
    } else {
      lower = hn::PromoteTo(F64(), hn::LoadU(half, values + i));
      upper = hn::PromoteTo(F64(), hn::LoadU(half, values + i + kFloats / 2));
    }
    const int lane = i % kSumLanes / kDoubles;
    sum_[lane] = hn::Add(sum_[lane], lower);
    sum_[lane + 1] = hn::Add(sum_[lane + 1], upper);
    // The square of an FP32 value is exact in FP64, so fusing changes nothing.
    squares_[lane] = hn::MulAdd(lower, lower, squares_[lane]);
    squares_[lane + 1] = hn::MulAdd(upper, upper, squares_[lane + 1]);

    const VU32 doubled = hn::Add(bits, bits);
    largest_ = hn::Max(largest_, doubled);
    if constexpr (kZeros) {
      // Zero minus one is the largest integer, so zeros are never the smallest.
      smallest_less_one_ = hn::Min(smallest_less_one_, hn::Sub(doubled, hn::Set(U32(), 1)));
    } else {
      smallest_ = hn::Min(smallest_, doubled);
    }
    // The sign of zero does not count.
    const VU32 counted = kZeros ? hn::IfThenZeroElse(hn::Eq(doubled, hn::Zero(U32())), bits) : bits;
    negatives_ = hn::Add(negatives_, hn::ShiftRight<31>(counted));
    return doubled;
  }

  // The top bytes of four vectors.
  HWY_INLINE VU8 PackExponents(VU32 a, VU32 b, VU32 c, VU32 d) {
#if HWY_TARGET <= HWY_AVX3
    VU32 packed = hn::IfVecThenElse(hn::Set(U32(), 0xFF0000), hn::ShiftRight<8>(c), d);
    packed = hn::IfVecThenElse(hn::Set(U32(), 0xFF00), hn::ShiftRight<16>(b), packed);
    packed = hn::IfVecThenElse(hn::Set(U32(), 0xFF), hn::ShiftRight<24>(a), packed);
#else
    VU32 packed = hn::Or(hn::And(d, hn::Set(U32(), 0xFF000000)), hn::ShiftRight<24>(a));
    packed = hn::Or(packed, hn::And(hn::ShiftRight<8>(c), hn::Set(U32(), 0xFF0000)));
    packed = hn::Or(packed, hn::And(hn::ShiftRight<16>(b), hn::Set(U32(), 0xFF00)));
#endif
    return hn::BitCast(U8(), packed);
  }

  VF64 sum_[kSumLanes / kDoubles], squares_[kSumLanes / kDoubles];
  VU32 smallest_, smallest_less_one_, largest_, negatives_;
  Scan scan_;
};

// Counters for exponents as bytes. Eight tables, so that equal exponents in a row do not wait for each other.
class Tables {
 public:
  // kGroup exponents, of at most a block.
  HWY_INLINE void Take(const uint8_t* HWY_RESTRICT exponents) {
    for (int i = 0; i < kGroup; i += 8) {
      for (int k = 0; k < 8; ++k) ++tables_[k][exponents[i + k]];
    }
  }

  // Adds all counts but those of exponent 0.
  HWY_NOINLINE void AddTo(uint64_t* HWY_RESTRICT bins) {
    for (int k = 1; k < 8; ++k) {
      for (int bin = 0; bin < 256; ++bin) tables_[0][bin] += tables_[k][bin];
    }
    for (int bin = 1; bin < ExponentHistogram::kBins; ++bin) bins[bin] += tables_[0][bin];
  }

 private:
  alignas(64) uint16_t tables_[8][256] = {};
};

// How far ahead of the first pass its values are fetched from memory into the second-level cache: a whole block, so that the second
// pass, which reads no memory, does not starve the first.
constexpr int64_t kFetchAhead = kStatisticsBlock;

HWY_INLINE void Fetch(const float* group) {
  for (int line = 0; line < kGroup; line += 16) __builtin_prefetch(group + kFetchAhead + line, 0, 2);
}

// With `tables`, which must be there where kTables is set, it counts the exponents as well: what fills the vector units and what
// fills the store unit then overlap.
template <Expect kExpect, bool kTables>
HWY_NOINLINE Scan ScanBlock(const float* HWY_RESTRICT values, int64_t n, bool streamed, uint8_t* HWY_RESTRICT exponents,
                            Tables* HWY_RESTRICT tables) {
  FirstPass<kExpect> pass;
  int64_t i = 0;
  for (; i + kGroup <= n; i += kGroup) {
    if (streamed) Fetch(values + i);
    pass.template Take<kExpect != Expect::nonzero>(values + i, exponents + i);
    // One group late: those of this one are still on their way to the cache.
    if (kTables && i > 0) tables->Take(exponents + i - kGroup);
  }
  if (kTables && i > 0) tables->Take(exponents + i - kGroup);
  if (i < n) {
    // Zeros, which fill the last group, change no sum and no magnitude.
    alignas(64) float rest[kGroup] = {};
    std::copy(values + i, values + n, rest);
    pass.template Take<true>(rest, exponents + i);
    if (kTables) tables->Take(exponents + i);
  }
  return pass.Finish();
}

// Bytes whose bit k counts values of exponent base + k, as binary numbers spread over vectors: counter[l] holds bit l of each.
constexpr int kUnrolled = 4;  // a step of the second pass takes 2^kUnrolled vectors
constexpr int kCounterBits = std::bit_width(static_cast<unsigned>(kStatisticsBlock / kBytes));

// sum <- the low bits of a + b + sum; gives the carries.
HWY_INLINE VU8 FullAdd(VU8& sum, VU8 a, VU8 b) {
#if HWY_TARGET <= HWY_AVX3
  const VU8 carry{_mm512_ternarylogic_epi32(a.raw, b.raw, sum.raw, 0xE8)};  // the majority
  sum = hn::Xor3(a, b, sum);
#else
  const VU8 different = hn::Xor(a, b);
  const VU8 carry = hn::Or(hn::And(a, b), hn::And(different, sum));
  sum = hn::Xor(different, sum);
#endif
  return carry;
}

// One-hot bytes of the exponents from `base` on, 8 of them in group 0 and 8 in group 1.
struct OneHot {
  VU8 base, table[2];

  HWY_INLINE explicit OneHot(int first) {
    alignas(64) uint8_t entries[2][kBytes];
    for (int i = 0; i < kBytes; ++i) {
      entries[0][i] = i % 16 < 8 ? 1 << (i % 8) : 0;
      entries[1][i] = i % 16 < 8 ? 0 : 1 << (i % 8);
    }
    table[0] = hn::Load(U8(), entries[0]);
    table[1] = hn::Load(U8(), entries[1]);
    base = hn::Set(U8(), static_cast<uint8_t>(first));
  }
  // Below 16, or at least 0x80, where a table gives 0.
  HWY_INLINE VU8 Index(VU8 exponents) const { return hn::SaturatedAdd(hn::Sub(exponents, base), hn::Set(U8(), 0x70)); }
};

// Adds 2^kLevel vectors of bytes to the counters below kLevel, for each group, and gives the carries of weight 2^kLevel.
template <int kGroups>
struct Carries {
  VU8 of[kGroups];
};
template <int kGroups, int kLevel>
HWY_INLINE Carries<kGroups> AddVectors(const OneHot& one_hot, const uint8_t* HWY_RESTRICT exponents,
                                       VU8 (&counter)[kGroups][kUnrolled]) {
  Carries<kGroups> result;
  if constexpr (kLevel == 0) {
    const VU8 index = one_hot.Index(hn::Load(U8(), exponents));
    for (int g = 0; g < kGroups; ++g) result.of[g] = hn::TableLookupBytesOr0(one_hot.table[g], index);
  } else {
    const auto a = AddVectors<kGroups, kLevel - 1>(one_hot, exponents, counter);
    const auto b = AddVectors<kGroups, kLevel - 1>(one_hot, exponents + (kBytes << (kLevel - 1)), counter);
    for (int g = 0; g < kGroups; ++g) result.of[g] = FullAdd(counter[g][kLevel - 1], a.of[g], b.of[g]);
  }
  return result;
}

template <int kGroups>
HWY_NOINLINE void CountGroups(const uint8_t* HWY_RESTRICT exponents, int64_t bytes, int first, int last,
                              uint64_t* HWY_RESTRICT bins) {
  const OneHot one_hot(first);
  VU8 low[kGroups][kUnrolled], high[kGroups][kCounterBits - kUnrolled];
  for (auto& group : low) {
    for (VU8& counter : group) counter = hn::Zero(U8());
  }
  for (auto& group : high) {
    for (VU8& counter : group) counter = hn::Zero(U8());
  }
  constexpr int64_t kStep = kBytes << kUnrolled;
  for (int64_t i = 0; i < bytes; i += kStep) {
    const auto carries = AddVectors<kGroups, kUnrolled>(one_hot, exponents + i, low);
    for (int g = 0; g < kGroups; ++g) {
      VU8 carry = carries.of[g];
      for (VU8& counter : high[g]) {
        const VU8 next = hn::And(counter, carry);
        counter = hn::Xor(counter, carry);
        carry = next;
      }
    }
  }
  for (int g = 0; g < kGroups; ++g) {
    for (int bit = 0; bit < 8 && first + 8 * g + bit <= last; ++bit) {
      const VU8 wanted = hn::Set(U8(), static_cast<uint8_t>(1 << bit));
      uint64_t count = 0;
      for (int l = 0; l < kUnrolled; ++l) count += hn::CountTrue(U8(), hn::TestBit(low[g][l], wanted)) << l;
      for (int l = kUnrolled; l < kCounterBits; ++l) count += hn::CountTrue(U8(), hn::TestBit(high[g][l - kUnrolled], wanted)) << l;
      bins[first + 8 * g + bit] += count;
    }
  }
}

// Counts one by one the exponents in (0, end), if they are few; else false, and nothing is counted.
HWY_NOINLINE bool CountFew(const uint8_t* HWY_RESTRICT exponents, int64_t bytes, int end, uint64_t* HWY_RESTRICT bins) {
  constexpr int kFew = 64;
  uint8_t found[kFew + kBytes];
  int count = 0;
  const VU8 one = hn::Set(U8(), 1), limit = hn::Set(U8(), static_cast<uint8_t>(end - 2));
  const auto wanted = [&](VU8 less_one) HWY_ATTR { return hn::Eq(hn::Min(less_one, limit), less_one); };
  for (int64_t group = 0; group < bytes; group += 4 * kBytes) {
    VU8 least = hn::Set(U8(), 0xFF);
    for (int k = 0; k < 4; ++k) least = hn::Min(least, hn::Sub(hn::Load(U8(), exponents + group + k * kBytes), one));
    if (HWY_LIKELY(hn::AllFalse(U8(), wanted(least)))) continue;
    for (int64_t i = group; i < group + 4 * kBytes; i += kBytes) {
      uint64_t bits = 0;
      hn::StoreMaskBits(U8(), wanted(hn::Sub(hn::Load(U8(), exponents + i), one)), reinterpret_cast<uint8_t*>(&bits));
      for (uint64_t left = bits; left != 0; left &= left - 1) found[count++] = exponents[i + std::countr_zero(left)];
      if (count > kFew) return false;
    }
  }
  for (int i = 0; i < count; ++i) ++bins[found[i]];
  return true;
}

// A block whose exponents span more binades than this is counted by tables.
constexpr int kTablesPayFrom = 64;

// Adds the counts of the exponents from `first` to `last`, first > 0. `bytes` exponents, a multiple of kGroup.
HWY_INLINE void CountExponents(uint8_t* HWY_RESTRICT exponents, int64_t bytes, int first, int last, uint64_t* HWY_RESTRICT bins) {
  if (last - first > kTablesPayFrom) {
    Tables tables;
    for (int64_t i = 0; i < bytes; i += kGroup) tables.Take(exponents + i);
    return tables.AddTo(bins);
  }
  constexpr int64_t kStep = kBytes << kUnrolled;
  const int64_t whole = (bytes + kStep - 1) / kStep * kStep;
  std::fill(exponents + bytes, exponents + whole, uint8_t{0});
  // From the top: in most data a binade holds half of what the one above holds, and the lowest ones hold next to nothing.
  while (last - first >= 8) {
    const int base = std::max(last - 15, 1);
    CountGroups<2>(exponents, whole, base, last, bins);
    last = base - 1;
    if (first > last || CountFew(exponents, bytes, base, bins)) return;
  }
  CountGroups<1>(exponents, whole, std::max(last - 7, 1), last, bins);
}

uint64_t CountBits(const float* HWY_RESTRICT values, int64_t n, uint32_t bits) {
  uint32_t count = 0;
  for (int64_t i = 0; i < n; ++i) count += std::bit_cast<uint32_t>(values[i]) == bits;
  return count;
}

uint64_t CountSubnormals(const float* HWY_RESTRICT values, int64_t n) {
  uint32_t count = 0;
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t magnitude = std::bit_cast<uint32_t>(values[i]) & 0x7FFFFFFF;
    count += magnitude > 0 && magnitude < 0x800000;
  }
  return count;
}

// What rounding does to the nonzero values of a block: how many are at most rescue_last, and what becomes of those below
// normal_first, of which most blocks hold few or none. Magnitudes come doubled, as they do in the first pass.
class RoundingPass {
 public:
  static constexpr int kVectors = 4;
  static_assert(kGroup % (kVectors * kFloats) == 0);

  explicit HWY_INLINE RoundingPass(const RoundingThresholds& thresholds)
      : subnormal_last_(Doubled(thresholds.normal_first - 1)),
        flush_last_(Doubled(thresholds.flush_last)),
        rescue_last_(Doubled(thresholds.rescue_last)),
        step_(hn::Set(F32(), thresholds.subnormal_step)) {}

  template <bool kRescuable>
  HWY_INLINE void Take(const VU32 (&doubled)[kVectors]) {
    // Zero minus one is the largest integer, so zeros are never among the smallest.
    VU32 less_one[kVectors], least = hn::Set(U32(), ~0u);
    for (int k = 0; k < kVectors; ++k) {
      less_one[k] = hn::Sub(doubled[k], hn::Set(U32(), 1));
      least = hn::Min(least, less_one[k]);
      if (kRescuable) rescuable_ += hn::CountTrue(U32(), hn::Lt(less_one[k], rescue_last_));
    }
    if (HWY_LIKELY(hn::AllFalse(U32(), hn::Lt(least, subnormal_last_)))) return;
    for (int k = 0; k < kVectors; ++k) {
      const auto below = hn::Lt(less_one[k], subnormal_last_);
      const VF32 value = hn::BitCast(F32(), hn::ShiftRight<1>(doubled[k]));
      const auto changed = hn::Ne(hn::Sub(hn::Add(value, step_), step_), value);
      below_normal_ += hn::CountTrue(U32(), below);
      flushed_ += hn::CountTrue(U32(), hn::Lt(less_one[k], flush_last_));
      inexact_ += hn::CountTrue(F32(), hn::And(hn::RebindMask(F32(), below), changed));
    }
  }

  void AddTo(RoundingCounts& rounding) const {
    rounding.flushed += flushed_;
    rounding.subnormal += below_normal_ - flushed_;
    rounding.inexact_subnormal += inexact_ - flushed_;  // what is flushed is changed
    if (rescuable_ > flushed_) rounding.rescued += rescuable_ - flushed_;
  }

 private:
  static HWY_INLINE VU32 Doubled(uint32_t magnitude) { return hn::Set(U32(), 2 * magnitude); }

  const VU32 subnormal_last_, flush_last_, rescue_last_;
  const VF32 step_;
  uint64_t rescuable_ = 0, flushed_ = 0, below_normal_ = 0, inexact_ = 0;
};

template <bool kRescuable>
HWY_NOINLINE void TakeRounding(const float* HWY_RESTRICT values, int64_t n, const RoundingThresholds& thresholds,
                               RoundingCounts& rounding) {
  RoundingPass pass(thresholds);
  const auto take = [&](const float* group) HWY_ATTR {
    for (int i = 0; i < kGroup; i += RoundingPass::kVectors * kFloats) {
      VU32 doubled[RoundingPass::kVectors];
      for (int k = 0; k < RoundingPass::kVectors; ++k) {
        const VU32 bits = hn::BitCast(U32(), hn::LoadU(F32(), group + i + k * kFloats));
        doubled[k] = hn::Add(bits, bits);
      }
      pass.Take<kRescuable>(doubled);
    }
  };
  int64_t i = 0;
  for (; i + kGroup <= n; i += kGroup) take(values + i);
  if (i < n) {
    alignas(64) float rest[kGroup] = {};
    std::copy(values + i, values + n, rest);
    take(rest);
  }
  pass.AddTo(rounding);
}

uint64_t CountOverflows(const float* HWY_RESTRICT values, int64_t n, uint32_t overflow_first) {
  uint32_t count = 0;
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t magnitude = std::bit_cast<uint32_t>(values[i]) & 0x7FFFFFFF;
    count += magnitude >= overflow_first && magnitude < kInfinityBits;
  }
  return count;
}

// `smallest` and `largest` magnitude of the nonzero values.
void CountRounding(const float* HWY_RESTRICT values, int64_t n, const RoundingThresholds& thresholds, uint32_t smallest,
                   uint32_t largest, RoundingCounts& rounding) {
  if (largest >= thresholds.overflow_first) rounding.overflowed += CountOverflows(values, n, thresholds.overflow_first);
  if (smallest <= thresholds.rescue_last && thresholds.rescue_last > thresholds.flush_last) {
    TakeRounding<true>(values, n, thresholds, rounding);
  } else if (smallest < thresholds.normal_first) {
    TakeRounding<false>(values, n, thresholds, rounding);
  }
}

double ToDouble(uint32_t magnitude) { return std::bit_cast<float>(magnitude); }

BlockSums CountFull(const float* HWY_RESTRICT values, int64_t n, const RoundingThresholds* thresholds, bool streamed,
                    BlockCounts& counts) {
  constexpr int kSeen = 16;
  // Room for the zeros that fill the last step of the second pass.
  alignas(64) uint8_t exponents[kStatisticsBlock + (kBytes << kUnrolled)];
  // The first values tell what to expect: activations hold zeros, and a tensor with some NaN often has nothing else.
  uint32_t less_one = ~0u, greatest = 0, zeros_seen = 0;
  if (n >= kSeen) {
    for (int i = 0; i < kSeen; ++i) {
      const uint32_t magnitude = std::bit_cast<uint32_t>(values[i]) & 0x7FFFFFFF;
      less_one = std::min(less_one, magnitude - 1);
      greatest = std::max(greatest, magnitude);
      zeros_seen += magnitude == 0;
    }
  }
  const Expect expect = greatest >= kInfinityBits ? Expect::any : zeros_seen > 0 ? Expect::finite : Expect::nonzero;
  const bool wide = greatest > 0 && static_cast<int>(greatest >> 23) - static_cast<int>((less_one + 1) >> 23) > kTablesPayFrom;
  Scan scan;
  std::optional<Tables> tables;
  if (wide && expect != Expect::any) {
    scan = ScanBlock<Expect::finite, true>(values, n, streamed, exponents, &tables.emplace());
  } else if (expect == Expect::nonzero) {
    scan = ScanBlock<Expect::nonzero, false>(values, n, streamed, exponents, nullptr);
    if (scan.smallest == 0) scan = ScanBlock<Expect::finite, false>(values, n, streamed, exponents, nullptr);
  } else if (expect == Expect::finite) {
    scan = ScanBlock<Expect::finite, false>(values, n, streamed, exponents, nullptr);
  }
  if (expect == Expect::any || scan.largest >= kInfinityBits) {
    scan = ScanBlock<Expect::any, false>(values, n, streamed, exponents, nullptr);
    tables.reset();
  }

  TensorStatistics& statistics = counts.statistics;
  uint64_t nonzero = 0;
  if (scan.largest > 0) {
    uint64_t bins[ExponentHistogram::kBins + 16] = {};
    const int first = std::max<int>(scan.smallest >> 23, 1), last = scan.largest >> 23;
    const int64_t bytes = (n + kGroup - 1) / kGroup * kGroup;
    if (tables) {
      tables->AddTo(bins);
    } else if (first <= last) {
      CountExponents(exponents, bytes, first, last, bins);
    }
    if (scan.smallest < 0x800000) bins[0] = CountSubnormals(values, n);
    for (int bin = std::min<int>(scan.smallest >> 23, first); bin <= last; ++bin) {
      nonzero += bins[bin];
      statistics.histogram.bins[bin] += bins[bin];
    }
    const double smallest = ToDouble(scan.smallest);
    statistics.smallest = statistics.smallest == 0 ? smallest : std::min(statistics.smallest, smallest);
    statistics.largest = std::max(statistics.largest, ToDouble(scan.largest));
  }
  const uint64_t zeros = n - scan.nonfinite - nonzero;
  statistics.count += n;
  statistics.nan += scan.nonfinite - scan.infinities;
  if (scan.infinities > 0) {
    const uint64_t negative = CountBits(values, n, kInfinityBits | 0x80000000);
    statistics.negative_infinity += negative;
    statistics.positive_infinity += scan.infinities - negative;
  }
  statistics.zeros += zeros;
  statistics.negatives += scan.negatives;
  if (thresholds && nonzero > 0) CountRounding(values, n, *thresholds, scan.smallest, scan.largest, counts.rounding);
  return scan.sums;
}

HWY_NOINLINE void CountNonfinite(const float* HWY_RESTRICT values, int64_t n, TensorStatistics& statistics) {
  for (int64_t i = 0; i < n; ++i) {
    const auto bits = std::bit_cast<uint32_t>(values[i]);
    statistics.nan += (bits & 0x7FFFFFFF) > kInfinityBits;
    statistics.positive_infinity += bits == kInfinityBits;
    statistics.negative_infinity += bits == (kInfinityBits | 0x80000000);
  }
}

// How a vector is stored while it is counted.
struct StoreNothing {
  static constexpr bool kStores = false;
  HWY_INLINE void operator()(VF32, uint16_t*) const {}
};
struct StoreF16 {
  static constexpr bool kStores = true;
  HWY_INLINE void operator()(VF32 value, uint16_t* out) const {
    hn::StoreU(RoundToF16(F32(), value), hn::Rebind<uint16_t, F32>(), out);
  }
};
struct StoreBf16 {
  static constexpr bool kStores = true;
  HWY_INLINE void operator()(VF32 value, uint16_t* out) const {
    hn::StoreU(RoundToBf16(F32(), value), hn::Rebind<uint16_t, F32>(), out);
  }
};

struct NoRounding {
  template <bool kRescuable>
  HWY_INLINE void Take(const VU32 (&)[RoundingPass::kVectors]) const {}
  void AddTo(RoundingCounts&) const {}
};

// Level health; `out` gets the encodings where Store stores them.
template <bool kRescuable, class Rounding, class Store>
HWY_NOINLINE void CountHealthOf(const float* HWY_RESTRICT values, int64_t n, bool streamed, uint16_t* HWY_RESTRICT out,
                                uint32_t overflow_first, Rounding rounding, const Store& store, BlockCounts& counts) {
  VU32 largest = hn::Zero(U32());
  uint64_t zeros = 0;
  const auto take = [&](const float* group, uint16_t* rounded) HWY_ATTR {
    for (int i = 0; i < kGroup; i += RoundingPass::kVectors * kFloats) {
      VU32 doubled[RoundingPass::kVectors];
      for (int k = 0; k < RoundingPass::kVectors; ++k) {
        const VF32 value = hn::LoadU(F32(), group + i + k * kFloats);
        const VU32 bits = hn::BitCast(U32(), value);
        doubled[k] = hn::Add(bits, bits);
        largest = hn::Max(largest, doubled[k]);
        zeros += hn::CountTrue(U32(), hn::Eq(doubled[k], hn::Zero(U32())));
        store(value, rounded + i + k * kFloats);
      }
      rounding.template Take<kRescuable>(doubled);
    }
  };
  int64_t i = 0;
  for (; i + kGroup <= n; i += kGroup) {
    if (streamed) Fetch(values + i);
    take(values + i, out + i);
  }
  if (i < n) {
    alignas(64) float rest[kGroup] = {};
    alignas(64) uint16_t rounded[kGroup];
    std::copy(values + i, values + n, rest);
    take(rest, rounded);
    zeros -= i + kGroup - n;
    if (Store::kStores) std::copy_n(rounded, n - i, out + i);
  }
  counts.statistics.count += n;
  counts.statistics.zeros += zeros;
  const uint32_t largest_magnitude = hn::GetLane(hn::MaxOfLanes(U32(), largest)) / 2;
  if (largest_magnitude >= kInfinityBits) CountNonfinite(values, n, counts.statistics);
  if (largest_magnitude >= overflow_first) counts.rounding.overflowed += CountOverflows(values, n, overflow_first);
  rounding.AddTo(counts.rounding);
}

template <class Store>
void CountHealthAndStore(const float* HWY_RESTRICT values, int64_t n, const RoundingThresholds& thresholds, bool streamed,
                         uint16_t* HWY_RESTRICT out, const Store& store, BlockCounts& counts) {
  const RoundingPass rounding(thresholds);
  if (thresholds.rescue_last > thresholds.flush_last) {
    CountHealthOf<true>(values, n, streamed, out, thresholds.overflow_first, rounding, store, counts);
  } else {
    CountHealthOf<false>(values, n, streamed, out, thresholds.overflow_first, rounding, store, counts);
  }
}

void CountHealth(const float* HWY_RESTRICT values, int64_t n, const RoundingThresholds* thresholds, bool streamed,
                 BlockCounts& counts) {
  if (thresholds) return CountHealthAndStore(values, n, *thresholds, streamed, nullptr, StoreNothing(), counts);
  CountHealthOf<false>(values, n, streamed, nullptr, ~0u, NoRounding(), StoreNothing(), counts);
}

template <class Store>
void CountHealthAndRound(const float* HWY_RESTRICT values, int64_t n, const RoundingThresholds& thresholds,
                         uint16_t* HWY_RESTRICT out, BlockCounts& counts) {
  CountHealthAndStore(values, n, thresholds, false, out, Store(), counts);
}

// nullptr where no row is of this format.
CountAndRound HealthAndRound(const FloatFormat& format) {
  struct Row {
    const FloatFormat* format;
    CountAndRound run;
  };
  constexpr Row kRows[] = {{&binary16, CountHealthAndRound<StoreF16>}, {&bfloat16, CountHealthAndRound<StoreBf16>}};
  for (const Row& row : kRows) {
    if (row.format == &format) return row.run;
  }
  return nullptr;
}

// `infinity` is the encoding of +Inf.
void CountHealthNarrow(const uint16_t* HWY_RESTRICT encodings, int64_t n, uint16_t infinity, TensorStatistics& statistics) {
  const hn::ScalableTag<uint16_t> d;
  constexpr int kLanes = hn::MaxLanes(d);
  auto largest = hn::Zero(d);
  uint64_t zeros = 0;
  const auto take = [&](const uint16_t* p) HWY_ATTR {
    const auto bits = hn::LoadU(d, p);
    const auto doubled = hn::Add(bits, bits);
    largest = hn::Max(largest, doubled);
    zeros += hn::CountTrue(d, hn::Eq(doubled, hn::Zero(d)));
  };
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) take(encodings + i);
  if (i < n) {
    alignas(64) uint16_t rest[kLanes] = {};
    std::copy(encodings + i, encodings + n, rest);
    take(rest);
    zeros -= i + kLanes - n;
  }
  statistics.count += n;
  statistics.zeros += zeros;
  if (hn::GetLane(hn::MaxOfLanes(d, largest)) / 2 < infinity) return;
  for (i = 0; i < n; ++i) {
    statistics.nan += (encodings[i] & 0x7FFF) > infinity;
    statistics.positive_infinity += encodings[i] == infinity;
    statistics.negative_infinity += encodings[i] == (infinity | 0x8000);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ulpscope
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace ulpscope {

HWY_EXPORT(CountFull);
HWY_EXPORT(CountHealth);
HWY_EXPORT(HealthAndRound);
HWY_EXPORT(CountHealthNarrow);

namespace {

// The bit pattern of the largest FP32 magnitude that is not above `limit`, a real number >= 0, and finite.
uint32_t last_magnitude(double limit) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  if (limit >= kLargest) return std::bit_cast<uint32_t>(kLargest);
  const auto nearest = static_cast<float>(limit);
  return std::bit_cast<uint32_t>(nearest) - (nearest > limit);
}
// That of the smallest that is not below it.
uint32_t first_magnitude(double limit) {
  const uint32_t last = last_magnitude(limit);
  return last + (std::bit_cast<float>(last) < limit);
}

}  // namespace

RoundingThresholds::RoundingThresholds(const FloatFormat& format, double scale)
    : flush_last(last_magnitude(format.flush_threshold())),
      // The tie below the smallest normal value goes to it, whose last bit is 0.
      normal_first(last_magnitude(format.smallest_normal() - format.flush_threshold())),
      overflow_first(first_magnitude(format.overflow_threshold())),
      rescue_last(scale > 0 ? std::min(last_magnitude(scale * format.flush_threshold()), overflow_first - 1) : 0),
      // An ulp of it is the smallest subnormal.
      subnormal_step(static_cast<float>(std::ldexp(1.0, format.smallest_exponent() + binary32.fraction_bits))) {}

BlockSums count_block(const float* values, int64_t n, StatisticsLevel level, const RoundingThresholds* thresholds, bool streamed,
                      BlockCounts& counts) {
  if (level == StatisticsLevel::values) return HWY_DYNAMIC_DISPATCH(CountFull)(values, n, thresholds, streamed, counts);
  HWY_DYNAMIC_DISPATCH(CountHealth)(values, n, thresholds, streamed, counts);
  return {};
}

CountAndRound count_health_and_round(const FloatFormat& format) { return HWY_DYNAMIC_DISPATCH(HealthAndRound)(format); }

void count_health(const FloatFormat& format, const uint16_t* encodings, int64_t n, TensorStatistics& statistics) {
  HWY_DYNAMIC_DISPATCH(CountHealthNarrow)(encodings, n, static_cast<uint16_t>(format.infinity_encoding()), statistics);
}

}  // namespace ulpscope

#endif
