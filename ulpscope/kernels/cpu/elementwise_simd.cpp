// The formulas of formulas.h on Highway vectors, compiled once per instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ulpscope/kernels/cpu/elementwise_simd.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h, which says which target is being compiled.
#define ULPSCOPE_SIMD_LANES
#include <cstring>
#include <utility>

#include "hwy/highway.h"
#include "ulpscope/kernels/cpu/formula_kernels.h"
#include "ulpscope/kernels/formulas.h"

HWY_BEFORE_NAMESPACE();
namespace ulpscope {
namespace HWY_NAMESPACE {
namespace {

using WideTag = hn::ScalableTag<double>;

// As many floats as a formula takes at a time: a vector, or what is a vector when it is widened.
template <class F>
struct Step {
  using Tag = hn::ScalableTag<float>;
};
template <class F>
requires(F::kWide) struct Step<F> {
  using Tag = hn::Rebind<float, WideTag>;
};
template <class F>
using StepTag = typename Step<F>::Tag;

template <class F, size_t... i>
HWY_INLINE void ApplyOnce(const F& formula, const float* const* inputs, float* out, int64_t at, std::index_sequence<i...>) {
  const StepTag<F> d;
  if constexpr (F::kWide) {
    const WideTag wide;
    using V = Lanes<WideTag>;
    const V result = formula.template operator()<V>(V{hn::PromoteTo(wide, hn::LoadU(d, inputs[i] + at))}...);
    hn::StoreU(hn::DemoteTo(d, result.raw), d, out + at);
  } else {
    using V = Lanes<StepTag<F>>;
    hn::StoreU(formula.template operator()<V>(V{hn::LoadU(d, inputs[i] + at)}...).raw, d, out + at);
  }
}

// The last elements go through buffers of a whole vector.
template <class F, size_t... i>
HWY_INLINE void ApplyRest(const F& formula, const float* const* inputs, float* out, int64_t at, int64_t n,
                          std::index_sequence<i...> sequence) {
  HWY_ALIGN float buffers[sizeof...(i) + 1][hn::MaxLanes(StepTag<F>())] = {};
  const size_t bytes = static_cast<size_t>(n) * sizeof(float);
  const float* padded[sizeof...(i) + 1] = {buffers[i]..., nullptr};
  (std::memcpy(buffers[i], inputs[i] + at, bytes), ...);
  ApplyOnce(formula, padded, buffers[sizeof...(i)], 0, sequence);
  std::memcpy(out + at, buffers[sizeof...(i)], bytes);
}

template <class F>
void Apply(const Attributes& attributes, const float* const* inputs, float* out, int64_t n) {
  const F formula(attributes);
  const auto sequence = std::make_index_sequence<F::kInputs>();
  const auto lanes = static_cast<int64_t>(hn::Lanes(StepTag<F>()));
  int64_t at = 0;
  for (; at + lanes <= n; at += lanes) ApplyOnce(formula, inputs, out, at, sequence);
  if (at < n) ApplyRest(formula, inputs, out, at, n - at, sequence);
}

template <class... F>
const cpu::FormulaKernel* KernelsOf(FormulaList<F...>) {
  static constexpr cpu::FormulaKernel kKernels[] = {Apply<F>...};
  return kKernels;
}

const cpu::FormulaKernel* FormulaKernels() { return KernelsOf(Formulas()); }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ulpscope
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ulpscope {
namespace {

HWY_EXPORT(FormulaKernels);

}  // namespace

namespace cpu {

FormulaKernel formula_kernel(int index) { return HWY_DYNAMIC_DISPATCH(FormulaKernels)()[index]; }

}  // namespace cpu
}  // namespace ulpscope
#endif
