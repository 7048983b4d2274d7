// The updates of updates.h on Highway vectors, compiled once per instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ulpscope/kernels/cpu/updates_simd.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h, which says which target is being compiled.
#define ULPSCOPE_SIMD_LANES
#include "hwy/highway.h"
#include "ulpscope/emulation/rounding.h"
#include "ulpscope/emulation/simd_rounding-inl.h"
#include "ulpscope/kernels/cpu/update_kernels.h"
#include "ulpscope/kernels/update_sums_lanes-inl.h"
#include "ulpscope/kernels/updates.h"

HWY_BEFORE_NAMESPACE();
namespace ulpscope {
namespace HWY_NAMESPACE {
namespace {

template <class D>
HWY_INLINE uint64_t CountOf(D d, LanesMask<D> mask) {
  return hn::CountTrue(d, mask.raw);
}

// The types of weights: what a value becomes when it is stored.
struct StoredF32 {
  template <class D>
  static HWY_INLINE hn::Vec<D> Rounded(D, hn::Vec<D> v) {
    return v;
  }
};
struct StoredF16 {
  template <class D>
  static HWY_INLINE hn::Vec<D> Rounded(D d, hn::Vec<D> v) {
    // One lane by itself: on SSE4, Highway's shifts by a lane's amount then read more than that lane.
    if constexpr (hn::MaxLanes(D()) == 1) return hn::Set(d, f16_to_float(round_to_f16(hn::GetLane(v))));
    return F16ToFloat(d, RoundToF16(d, v));
  }
};
struct StoredBf16 {
  template <class D>
  static HWY_INLINE hn::Vec<D> Rounded(D d, hn::Vec<D> v) {
    return hn::BitCast(d, hn::And(RoundToBf16InPlace(d, v), hn::Set(hn::RebindToUnsigned<D>(), 0xFFFF0000)));
  }
};

// `stored` (updates.h) of a 16-bit type.
template <class Stored>
struct RoundedIntermediates {
  static constexpr bool kRounds = true;
  template <class D>
  HWY_INLINE Lanes<D> operator()(Lanes<D> v) const {
    return {Stored::Rounded(D(), v.raw)};
  }
};

// How an update computes: in FP32, and rounds when it stores; or with roundings on the way.
template <class Stored>
struct Once : Stored {
  using Intermediates = WideIntermediates;
};
template <class Stored>
struct EveryStep : Stored {
  using Intermediates = RoundedIntermediates<Stored>;
};

// The places of a block, by value: the compiler then knows that no store changes them.
template <class Rule>
struct Places {
  explicit Places(const cpu::UpdateBlock& block)
      : weight(block.weight),
        gradient(block.gradient),
        d(block.d),
        gradient_share(block.gradient_share),
        decay(block.decay),
        without_decay(block.without_decay),
        has_wide(block.wide != nullptr) {
    for (int k = 0; k < Rule::kStates; ++k) states[k] = block.states[k];
    for (int k = 0; has_wide && k <= Rule::kStates; ++k) wide[k] = block.wide[k];
  }

  float* weight;
  const float* gradient;
  float* states[Rule::kStates];
  float *d, *gradient_share, *decay, *without_decay;
  bool has_wide;
  float* wide[Rule::kStates + 1] = {};
};

// Of so many elements the values that sums are taken of, as FP32, stay in the first cache until they are summed.
constexpr int kSummedTogether = 32 * kSumLanes;
struct Terms {
  alignas(64) float weight[kSummedTogether];  // before the update
  alignas(64) float update[kSummedTogether];
  alignas(64) float decay[kSummedTogether], with_decay[kSummedTogether], without_decay[kSummedTogether];  // the latter as stored
};

// The lanes of the sums while they are in registers.
template <bool kDecay>
class Sums {
 public:
  HWY_INLINE explicit Sums(const cpu::UpdateSums& sums) : lanes_(sums) {
    for (int sum = 0; sum < kSums; ++sum)
      for (int i = 0; i < kSumVectors; ++i) decay_[sum][i] = hn::Load(SumTag(), sums.lanes[kFirst + sum] + i * kSumWidth);
  }
  HWY_INLINE void Store(cpu::UpdateSums& sums) const {
    lanes_.Store(sums);
    for (int sum = 0; sum < kSums; ++sum)
      for (int i = 0; i < kSumVectors; ++i) hn::Store(decay_[sum][i], SumTag(), sums.lanes[kFirst + sum] + i * kSumWidth);
  }
  // Reads the kSumLanes elements at `at`.
  HWY_INLINE void Add(const Terms& terms, const float* gradient, int at) {
    for (int i = 0; i < kSumVectors; ++i) {
      const int first = at + i * kSumWidth;
      lanes_.Add(i, terms.weight + first, terms.update + first, gradient + first);
      if constexpr (kDecay) {
        const auto c = LoadWide(terms.decay + first), zero = hn::Zero(SumTag()), one = hn::Set(SumTag(), 1.0);
        const auto sign = hn::IfThenElse(hn::Gt(c, zero), one, hn::IfThenElse(hn::Lt(c, zero), hn::Neg(one), c));
        const auto change = hn::Sub(LoadWide(terms.with_decay + first), LoadWide(terms.without_decay + first));
        auto& asked = decay_[cpu::UpdateSums::decay_asked - kFirst][i];
        auto& applied = decay_[cpu::UpdateSums::decay_applied - kFirst][i];
        asked = hn::Add(asked, hn::Abs(c));
        applied = hn::MulAdd(sign, change, applied);
      }
    }
  }

 private:
  static constexpr int kFirst = cpu::UpdateSums::decay_asked, kSums = kDecay ? cpu::UpdateSums::kSums - kFirst : 0;

  UpdateLanes lanes_;
  hn::Vec<SumTag> decay_[kDecay ? kSums : 1][kSumVectors];
};

template <bool kDecay>
HWY_INLINE void AddTerms(const Terms& terms, const float* gradient, int n, cpu::UpdateSums& totals) {
  int i = 0;
  {
    Sums<kDecay> sums(totals);
    for (; i + kSumLanes <= n; i += kSumLanes) sums.Add(terms, gradient, i);
    sums.Store(totals);
  }
  for (int lane = 0; i < n; ++i, ++lane) {
    const double w = terms.weight[i], d = terms.update[i], g = gradient[i];
    totals.lanes[cpu::UpdateSums::weight_squares][lane] += w * w;
    totals.lanes[cpu::UpdateSums::update_squares][lane] += d * d;
    totals.lanes[cpu::UpdateSums::gradient_dot_update][lane] += g * d;
    if constexpr (kDecay) {
      const double c = terms.decay[i];
      totals.lanes[cpu::UpdateSums::decay_asked][lane] += std::abs(c);
      totals.lanes[cpu::UpdateSums::decay_applied][lane] +=
          sign_of(c) * (double{terms.with_decay[i]} - double{terms.without_decay[i]});
    }
  }
}

template <class Rule, class Intermediates, class D>
HWY_INLINE Updated<Lanes<D>, Rule::kStates> UpdatedLanes(D d, const Rule& rule, const Places<Rule>& places, int64_t i,
                                                         Intermediates stored) {
  Lanes<D> old[Rule::kStates];
  for (int k = 0; k < Rule::kStates; ++k)
    old[k].raw = places.states[k] != nullptr ? hn::LoadU(d, places.states[k] + i) : hn::Zero(d);
  return rule(Lanes<D>{hn::LoadU(d, places.weight + i)}, Lanes<D>{hn::LoadU(d, places.gradient + i)}, old, stored);
}

template <class D, int kStates>
HWY_INLINE void StoreUpdated(D d, const Updated<Lanes<D>, kStates>& updated, float* const* states, float* weight, float* const* to,
                             int64_t i) {
  hn::StoreU(updated.weight.raw, d, weight + i);
  for (int k = 0; k < kStates; ++k) {
    if (states[k] != nullptr) hn::StoreU(updated.state[k].raw, d, to[k] + i);
  }
}

// Where there are roundings on the way: what the values become without.
template <class Rule, class Arithmetic, class D>
HWY_INLINE void UpdateWide(D d, const Rule& rule, const Places<Rule>& places, int64_t i) {
  if (!Arithmetic::Intermediates::kRounds || !places.has_wide) return;
  StoreUpdated(d, UpdatedLanes(d, rule, places, i, WideIntermediates()), places.states, places.wide[0], places.wide + 1, i);
}

template <class Rule, class Arithmetic, class D>
HWY_INLINE void UpdateVector(D d, const Rule& rule, const Places<Rule>& places, int64_t i) {
  UpdateWide<Rule, Arithmetic>(d, rule, places, i);
  const auto updated = UpdatedLanes(d, rule, places, i, typename Arithmetic::Intermediates());
  StoreUpdated(d, updated, places.states, places.weight, places.states, i);
  if (places.d != nullptr) hn::StoreU(updated.update.raw, d, places.d + i);
}

// The same, with what is counted, and element `at` and the following of `terms`. `kDecay`: with what the caller needs of decay.
template <class Rule, class Arithmetic, bool kDecay, class D>
HWY_INLINE void CountedVector(D d, const Rule& rule, const Places<Rule>& places, int64_t i, cpu::UpdateCounters& counts,
                              Terms& terms, int at) {
  UpdateWide<Rule, Arithmetic>(d, rule, places, i);
  const Lanes<D> weight{hn::LoadU(d, places.weight + i)};
  const auto updated = UpdatedLanes(d, rule, places, i, typename Arithmetic::Intermediates());
  StoreUpdated(d, updated, places.states, places.weight, places.states, i);
  if (places.d != nullptr) hn::StoreU(updated.update.raw, d, places.d + i);
  const Lanes<D> zero{hn::Zero(d)}, stored{Arithmetic::Rounded(d, updated.weight.raw)};
  hn::StoreU(weight.raw, d, terms.weight + at);
  hn::StoreU(updated.update.raw, d, terms.update + at);
  if constexpr (kDecay) {
    if (places.gradient_share != nullptr) {
      hn::StoreU(updated.gradient_share.raw, d, places.gradient_share + i);
      hn::StoreU(updated.decay.raw, d, places.decay + i);
      hn::StoreU(updated.without_decay.raw, d, places.without_decay + i);
    }
    hn::StoreU(updated.decay.raw, d, terms.decay + at);
    hn::StoreU(stored.raw, d, terms.with_decay + at);
    hn::StoreU(Arithmetic::Rounded(d, updated.without_decay.raw), d, terms.without_decay + at);
  }
  const LanesMask<D> nonzero{hn::Not((updated.update == zero).raw)};
  const LanesMask<D> lost = nonzero & (stored == weight);
  counts.nonzero += CountOf(d, nonzero);
  if (!hn::AllFalse(d, lost.raw)) {
    counts.lost += CountOf(d, lost);
    counts.lost_to_decay += CountOf(d, lost & (updated.gradient_share == zero));
  }
  if (HWY_UNLIKELY(!hn::AllTrue(d, hn::IsFinite(updated.update.raw)))) {
    counts.nan += CountOf(d, LanesMask<D>{hn::IsNaN(updated.update.raw)});
    const auto infinite = hn::IsInf(updated.update.raw);
    counts.positive_infinity += CountOf(d, LanesMask<D>{hn::And(infinite, hn::Gt(updated.update.raw, hn::Zero(d)))});
    counts.negative_infinity += CountOf(d, LanesMask<D>{hn::And(infinite, hn::Lt(updated.update.raw, hn::Zero(d)))});
  }
}

template <class Rule, class Arithmetic>
void UpdateAlone(const Rule rule, const cpu::UpdateBlock& block) {
  const Places<Rule> places(block);
  const hn::ScalableTag<float> d;
  const auto width = static_cast<int64_t>(hn::Lanes(d));
  const int64_t n = block.n;
  int64_t i = 0;
  for (; i + width <= n; i += width) UpdateVector<Rule, Arithmetic>(d, rule, places, i);
  for (; i < n; ++i) UpdateVector<Rule, Arithmetic>(hn::CappedTag<float, 1>(), rule, places, i);
}

template <class Rule, class Arithmetic, bool kDecay>
void UpdateAndSum(const Rule rule, const cpu::UpdateBlock& block, cpu::UpdateTotals& totals) {
  const Places<Rule> places(block);
  const hn::ScalableTag<float> d;
  const auto width = static_cast<int>(hn::Lanes(d));
  cpu::UpdateCounters counts = totals.counts;
  Terms terms;
  for (int64_t begin = 0; begin < block.n; begin += kSummedTogether) {
    const int n = static_cast<int>(std::min<int64_t>(kSummedTogether, block.n - begin));
    int at = 0;
    for (; at + width <= n; at += width) CountedVector<Rule, Arithmetic, kDecay>(d, rule, places, begin + at, counts, terms, at);
    for (; at < n; ++at)
      CountedVector<Rule, Arithmetic, kDecay>(hn::CappedTag<float, 1>(), rule, places, begin + at, counts, terms, at);
    AddTerms<kDecay>(terms, block.gradient + begin, n, totals.sums);
  }
  totals.counts = counts;
}

template <class Rule, class Arithmetic>
void Update(const Attributes& attributes, const cpu::UpdateBlock& block, cpu::UpdateTotals* totals) {
  const Rule rule(attributes);
  if (totals == nullptr) {
    UpdateAlone<Rule, Arithmetic>(rule, block);
  } else if (adds_some_decay(rule) || block.gradient_share != nullptr) {
    UpdateAndSum<Rule, Arithmetic, true>(rule, block, *totals);
  } else {
    UpdateAndSum<Rule, Arithmetic, false>(rule, block, *totals);
  }
}

bool Unscale(const float* g, float factor, float* out, int64_t n) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  const auto width = static_cast<int64_t>(hn::Lanes(d));
  // The largest exponent and fraction bits seen: Inf's or above where something was not finite.
  auto largest = hn::Zero(di);
  const auto magnitude = hn::Set(di, 0x7FFFFFFF);
  int64_t i = 0;
  for (; i + width <= n; i += width) {
    const auto value = hn::LoadU(d, g + i);
    largest = hn::Max(largest, hn::And(hn::BitCast(di, value), magnitude));
    hn::StoreU(hn::Mul(value, hn::Set(d, factor)), d, out + i);
  }
  bool nonfinite = !hn::AllFalse(di, hn::Gt(largest, hn::Set(di, 0x7F7FFFFF)));
  for (; i < n; ++i) {
    nonfinite = nonfinite || !(g[i] - g[i] == 0);
    out[i] = g[i] * factor;
  }
  return nonfinite;
}

template <class Arithmetic, class... U>
cpu::UpdateKernel KernelOf(UpdateList<U...>, int index) {
  static constexpr cpu::UpdateKernel kKernels[] = {Update<U, Arithmetic>...};
  return kKernels[index];
}

cpu::UpdateKernel KernelFor(int index, DType weights, bool stepwise) {
  const Updates rules;
  switch (weights) {
    case DType::f16:
      return stepwise ? KernelOf<EveryStep<StoredF16>>(rules, index) : KernelOf<Once<StoredF16>>(rules, index);
    case DType::bf16:
      return stepwise ? KernelOf<EveryStep<StoredBf16>>(rules, index) : KernelOf<Once<StoredBf16>>(rules, index);
    default:
      return KernelOf<Once<StoredF32>>(rules, index);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ulpscope
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ulpscope {
namespace {
HWY_EXPORT(KernelFor);
HWY_EXPORT(Unscale);
}  // namespace
namespace cpu {
UpdateKernel update_kernel(int index, DType weights, bool stepwise) {
  return HWY_DYNAMIC_DISPATCH(KernelFor)(index, weights, stepwise);
}
bool unscale_block(const float* g, float factor, float* out, int64_t n) { return HWY_DYNAMIC_DISPATCH(Unscale)(g, factor, out, n); }
}  // namespace cpu
}  // namespace ulpscope
#endif
