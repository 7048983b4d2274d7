// Formulas (formulas.h, rows.h) on Highway vectors of floats: those of elementary functions in FP64, half a vector at a time.
// Included by SIMD sources, once per target.
#if defined(ULPSCOPE_KERNELS_CPU_EVALUATE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ULPSCOPE_KERNELS_CPU_EVALUATE_INL_H
#undef ULPSCOPE_KERNELS_CPU_EVALUATE_INL_H
#else
#define ULPSCOPE_KERNELS_CPU_EVALUATE_INL_H
#endif

#include <algorithm>
#include <array>
#include <tuple>

#include "hwy/highway.h"
#include "ulpscope/kernels/lanes.h"

HWY_BEFORE_NAMESPACE();
namespace ulpscope {
namespace HWY_NAMESPACE {

using FloatTag = hn::ScalableTag<float>;
using WideTag = hn::ScalableTag<double>;
constexpr int64_t kWidth = hn::MaxLanes(FloatTag());

// f of kWidth floats that lie at each pointer.
template <class F, class... P>
HWY_INLINE hn::Vec<FloatTag> Evaluate(const F& f, const P*... in) {
  const FloatTag d;
  if constexpr (F::kWide) {
    const WideTag wide;
    const hn::Half<FloatTag> half;
    const int64_t h = kWidth / 2;
    using V = Lanes<WideTag>;
    const V lower = f.template operator()<V>(V{hn::PromoteTo(wide, hn::LoadU(half, in))}...);
    const V upper = f.template operator()<V>(V{hn::PromoteTo(wide, hn::LoadU(half, in + h))}...);
    return hn::Combine(d, hn::DemoteTo(half, upper.raw), hn::DemoteTo(half, lower.raw));
  } else {
    using V = Lanes<FloatTag>;
    return f.template operator()<V>(V{hn::LoadU(d, in)}...).raw;
  }
}

// The last n values of each array, filled up to a vector.
template <class F, class... P>
HWY_INLINE hn::Vec<FloatTag> EvaluateRest(const F& f, [[maybe_unused]] int64_t n, const P*... in) {
  [[maybe_unused]] HWY_ALIGN float buffers[sizeof...(in) + 1][kWidth] = {};
  [[maybe_unused]] int next = 0;
  (static_cast<void>(std::copy_n(in, n, buffers[next++])), ...);
  next = 0;
  // Braces evaluate from left to right.
  const std::array<const float*, sizeof...(in)> filled{((void)in, static_cast<const float*>(buffers[next++]))...};
  return std::apply([&](auto... pointers) HWY_ATTR { return Evaluate(f, pointers...); }, filled);
}

// out[i] = f(in[i]...) for n elements; `out` may be one of the inputs.
template <class F, class... P>
HWY_INLINE void Map(const F& f, int64_t n, float* out, const P*... in) {
  const FloatTag d;
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) hn::StoreU(Evaluate(f, (in + i)...), d, out + i);
  if (i == n) return;
  HWY_ALIGN float rest[kWidth];
  hn::Store(EvaluateRest(f, n - i, (in + i)...), d, rest);
  std::copy_n(rest, n - i, out + i);
}

}  // namespace HWY_NAMESPACE
}  // namespace ulpscope
HWY_AFTER_NAMESPACE();

#endif
