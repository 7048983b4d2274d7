// The formulas of formulas.h on Highway vectors, compiled once per instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ulpscope/kernels/cpu/elementwise_simd.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h, which says which target is being compiled.
#define ULPSCOPE_SIMD_LANES
#include <utility>

#include "hwy/highway.h"
#include "ulpscope/kernels/cpu/evaluate-inl.h"
#include "ulpscope/kernels/cpu/formula_kernels.h"
#include "ulpscope/kernels/formulas.h"

HWY_BEFORE_NAMESPACE();
namespace ulpscope {
namespace HWY_NAMESPACE {
namespace {

template <class F, size_t... i>
HWY_INLINE void MapInputs(const F& formula, const float* const* inputs, float* out, int64_t n, std::index_sequence<i...>) {
  Map(formula, n, out, inputs[i]...);
}

template <class F>
void Apply(const Attributes& attributes, const float* const* inputs, float* out, int64_t n) {
  MapInputs(F(attributes), inputs, out, n, std::make_index_sequence<F::kInputs>());
}

template <class... F>
const cpu::FormulaKernel* KernelsOf(FormulaList<F...>) {
  static constexpr cpu::FormulaKernel kKernels[] = {Apply<F>...};
  return kKernels;
}

const cpu::FormulaKernel* FormulaKernels() { return KernelsOf(Formulas()); }
const cpu::FormulaKernel* LossTermKernels() { return KernelsOf(LossTerms()); }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ulpscope
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ulpscope {
namespace {

HWY_EXPORT(FormulaKernels);
HWY_EXPORT(LossTermKernels);

}  // namespace

namespace cpu {

FormulaKernel formula_kernel(int index) { return HWY_DYNAMIC_DISPATCH(FormulaKernels)()[index]; }
FormulaKernel loss_term_kernel(int index) { return HWY_DYNAMIC_DISPATCH(LossTermKernels)()[index]; }

}  // namespace cpu
}  // namespace ulpscope
#endif
