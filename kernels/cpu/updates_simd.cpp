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

// FP64 to FP32 with the last bit set where it is not exact (round to odd): rounding that to 16 bits is one rounding of `v`.
template <class D, class D64 = hn::Rebind<double, D>>
HWY_INLINE hn::Vec<D> RoundToOdd(D d, hn::Vec<D64> v) {
  const hn::RebindToSigned<D> di;
  const D64 wide;
  const auto near = hn::DemoteTo(d, v);
  const auto back = hn::PromoteTo(wide, near);
  const auto one_where = [&](auto mask) HWY_ATTR { return hn::DemoteTo(di, hn::IfThenElseZero(mask, hn::Set(wide, 1.0))); };
  const auto inexact = one_where(hn::Or(hn::Lt(back, v), hn::Gt(back, v)));
  const auto above = one_where(hn::Gt(hn::Abs(back), hn::Abs(v)));
  return hn::BitCast(d, hn::Or(hn::Sub(hn::BitCast(di, near), above), inexact));
}

// Lanes of a 16-bit type: every operation on them is rounded to that type. Constants keep their value, as in the plain twin, and
// FP64 results of such operands are exact enough to be rounded as the exact ones.
template <class D, class Stored>
struct Step {
  using Tag = D;
  using Wide = hn::Rebind<double, D>;
  HWY_INLINE hn::Vec<Wide> wide() const { return hn::PromoteTo(Wide(), raw); }
  static HWY_INLINE Step of(hn::Vec<Wide> v) { return {Stored::Rounded(D(), RoundToOdd(D(), v))}; }

  hn::Vec<D> raw;
};
template <class D, class S>
HWY_INLINE Step<D, S> operator+(Step<D, S> a, Step<D, S> b) {
  return a.of(hn::Add(a.wide(), b.wide()));
}
template <class D, class S>
HWY_INLINE Step<D, S> operator-(Step<D, S> a, Step<D, S> b) {
  return a.of(hn::Sub(a.wide(), b.wide()));
}
template <class D, class S>
HWY_INLINE Step<D, S> operator*(Step<D, S> a, Step<D, S> b) {
  return a.of(hn::Mul(a.wide(), b.wide()));
}
template <class D, class S>
HWY_INLINE Step<D, S> operator/(Step<D, S> a, Step<D, S> b) {
  return a.of(hn::Div(a.wide(), b.wide()));
}
template <class D, class S>
HWY_INLINE Step<D, S> square_root(Step<D, S> a) {
  return a.of(hn::Sqrt(a.wide()));
}
template <class D, class S>
HWY_INLINE LanesMask<D> operator>(Step<D, S> a, Step<D, S> b) {
  return {hn::Gt(a.raw, b.raw)};
}
template <class D, class S>
HWY_INLINE LanesMask<D> operator<(Step<D, S> a, Step<D, S> b) {
  return {hn::Lt(a.raw, b.raw)};
}
template <class D, class S>
HWY_INLINE LanesMask<D> operator==(Step<D, S> a, Step<D, S> b) {
  return {hn::Eq(a.raw, b.raw)};
}
template <class D, class S>
HWY_INLINE Step<D, S> select(LanesMask<D> mask, Step<D, S> yes, Step<D, S> no) {
  return {hn::IfThenElse(mask.raw, yes.raw, no.raw)};
}

// How an update computes: wide, and rounds when it stores; or with a rounding at every step.
template <class Stored>
struct Once : Stored {
  static constexpr bool kStepwise = false;
  using Vectors = hn::ScalableTag<float>;
  template <class D>
  using V = Lanes<D>;
};
template <class Stored>
struct EveryStep : Stored {
  static constexpr bool kStepwise = true;
  using Vectors = hn::Half<hn::ScalableTag<float>>;  // as many as there are doubles in a vector
  template <class D>
  using V = Step<D, Stored>;
};

template <class Rule, class V>
HWY_INLINE Updated<V, Rule::kStates> UpdatedLanes(const Rule& rule, const cpu::UpdateBlock& block, int64_t i) {
  const typename V::Tag d;
  V old[Rule::kStates];
  for (int k = 0; k < Rule::kStates; ++k) old[k].raw = block.states[k] != nullptr ? hn::LoadU(d, block.states[k] + i) : hn::Zero(d);
  return rule.template operator()<V>(V{hn::LoadU(d, block.weight + i)}, V{hn::LoadU(d, block.gradient + i)}, old);
}

template <class Rule, class Arithmetic, class D>
HWY_INLINE void UpdateVector(D d, const Rule& rule, const cpu::UpdateBlock& block, int64_t i, UpdateCounts& counts) {
  using V = typename Arithmetic::template V<D>;
  const auto store = [&](const auto& updated, float* weight, float* const* states) HWY_ATTR {
    hn::StoreU(updated.weight.raw, d, weight + i);
    for (int k = 0; k < Rule::kStates; ++k) {
      if (block.states[k] != nullptr) hn::StoreU(updated.state[k].raw, d, states[k] + i);
    }
  };
  if (Arithmetic::kStepwise && block.wide != nullptr)
    store(UpdatedLanes<Rule, Lanes<D>>(rule, block, i), block.wide[0], block.wide + 1);
  const V weight{hn::LoadU(d, block.weight + i)};
  const auto updated = UpdatedLanes<Rule, V>(rule, block, i);
  store(updated, block.weight, block.states);
  if (block.d == nullptr) return;
  hn::StoreU(updated.update.raw, d, block.d + i);
  if (block.gradient_share != nullptr) hn::StoreU(updated.gradient_share.raw, d, block.gradient_share + i);
  const V zero{hn::Zero(d)}, stored{Arithmetic::Rounded(d, updated.weight.raw)};
  const LanesMask<D> nonzero{hn::Not((updated.update == zero).raw)};
  const LanesMask<D> lost = nonzero & (stored == weight);
  counts.nonzero += CountOf(d, nonzero);
  counts.lost += CountOf(d, lost);
  counts.lost_to_decay += CountOf(d, lost & (updated.gradient_share == zero));
}

template <class Rule, class Arithmetic>
UpdateCounts Update(const Attributes& attributes, const cpu::UpdateBlock& block) {
  const Rule rule(attributes);
  UpdateCounts counts;
  const typename Arithmetic::Vectors d;
  const auto width = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + width <= block.n; i += width) UpdateVector<Rule, Arithmetic>(d, rule, block, i, counts);
  for (; i < block.n; ++i) UpdateVector<Rule, Arithmetic>(hn::CappedTag<float, 1>(), rule, block, i, counts);
  return counts;
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
