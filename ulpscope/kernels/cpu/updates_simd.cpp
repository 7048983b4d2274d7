// The updates of updates.h on Highway vectors, compiled once per instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ulpscope/kernels/cpu/updates_simd.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h, which says which target is being compiled.
#define ULPSCOPE_SIMD_LANES
#include "hwy/highway.h"
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

template <class D, class Rule>
HWY_INLINE void UpdateVector(D d, const Rule& rule, const cpu::UpdateBlock& block, int64_t i, UpdateCounts& counts) {
  using V = Lanes<D>;
  const V weight{hn::LoadU(d, block.weight + i)};
  V old[Rule::kStates];
  for (int k = 0; k < Rule::kStates; ++k) old[k].raw = block.states[k] != nullptr ? hn::LoadU(d, block.states[k] + i) : hn::Zero(d);
  const auto updated = rule.template operator()<V>(weight, V{hn::LoadU(d, block.gradient + i)}, old);
  hn::StoreU(updated.weight.raw, d, block.weight + i);
  for (int k = 0; k < Rule::kStates; ++k) {
    if (block.states[k] != nullptr) hn::StoreU(updated.state[k].raw, d, block.states[k] + i);
  }
  if (block.d == nullptr) return;
  hn::StoreU(updated.update.raw, d, block.d + i);
  const V zero{hn::Zero(d)};
  const LanesMask<D> nonzero{hn::Not((updated.update == zero).raw)};
  const LanesMask<D> lost = nonzero & (updated.weight == weight);
  counts.nonzero += CountOf(d, nonzero);
  counts.lost += CountOf(d, lost);
  counts.lost_to_decay += CountOf(d, lost & (updated.gradient_share == zero));
}

template <class Rule>
UpdateCounts Update(const Attributes& attributes, const cpu::UpdateBlock& block) {
  const Rule rule(attributes);
  UpdateCounts counts;
  const hn::ScalableTag<float> d;
  const auto width = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + width <= block.n; i += width) UpdateVector(d, rule, block, i, counts);
  for (; i < block.n; ++i) UpdateVector(hn::CappedTag<float, 1>(), rule, block, i, counts);
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

template <class... U>
const cpu::UpdateKernel* KernelsOf(UpdateList<U...>) {
  static constexpr cpu::UpdateKernel kKernels[] = {Update<U>...};
  return kKernels;
}

const cpu::UpdateKernel* UpdateKernels() { return KernelsOf(Updates()); }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ulpscope
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ulpscope {
namespace {
HWY_EXPORT(UpdateKernels);
HWY_EXPORT(Unscale);
}  // namespace
namespace cpu {
UpdateKernel update_kernel(int index) { return HWY_DYNAMIC_DISPATCH(UpdateKernels)()[index]; }
bool unscale_block(const float* g, float factor, float* out, int64_t n) { return HWY_DYNAMIC_DISPATCH(Unscale)(g, factor, out, n); }
}  // namespace cpu
}  // namespace ulpscope
#endif
