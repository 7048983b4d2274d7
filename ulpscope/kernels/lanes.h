// The lane types that formulas are written for, and the operations they may use: + - * /, comparisons, select, is_nan, square_root
// and constant. A lane type is float or double (the plain twin, also what a device thread runs) or Lanes<D>, a Highway vector.
//
// A SIMD source defines ULPSCOPE_SIMD_LANES before it includes this header or one built on it; the header is then read once per
// Highway target, into that target's namespace. Otherwise it is an ordinary header with everything in ulpscope::lanes.
#if defined(ULPSCOPE_KERNELS_LANES_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ULPSCOPE_KERNELS_LANES_H
#undef ULPSCOPE_KERNELS_LANES_H
#else
#define ULPSCOPE_KERNELS_LANES_H
#endif

#include <cmath>

#undef ULPSCOPE_LANES_BEGIN
#undef ULPSCOPE_LANES_END
#undef ULPSCOPE_LANE_FUNCTION

#if defined(ULPSCOPE_SIMD_LANES)
#include "hwy/highway.h"
// clang-format off
#define ULPSCOPE_LANES_BEGIN HWY_BEFORE_NAMESPACE(); namespace ulpscope { namespace HWY_NAMESPACE {
#define ULPSCOPE_LANES_END } } HWY_AFTER_NAMESPACE();
// clang-format on
#define ULPSCOPE_LANE_FUNCTION HWY_INLINE
#else
#define ULPSCOPE_LANES_BEGIN namespace ulpscope::lanes {
#define ULPSCOPE_LANES_END }
#if defined(__CUDACC__)
#define ULPSCOPE_LANE_FUNCTION __host__ __device__ inline
#else
#define ULPSCOPE_LANE_FUNCTION inline
#endif
#endif

ULPSCOPE_LANES_BEGIN

#if defined(ULPSCOPE_SIMD_LANES)

namespace hn = hwy::HWY_NAMESPACE;

template <class D>
struct Lanes {
  using Tag = D;
  hn::Vec<D> raw;
};

template <class D>
struct LanesMask {
  hn::Mask<D> raw;
};

// clang-format off
template <class D> HWY_INLINE Lanes<D> operator+(Lanes<D> a, Lanes<D> b) { return {hn::Add(a.raw, b.raw)}; }
template <class D> HWY_INLINE Lanes<D> operator-(Lanes<D> a, Lanes<D> b) { return {hn::Sub(a.raw, b.raw)}; }
template <class D> HWY_INLINE Lanes<D> operator*(Lanes<D> a, Lanes<D> b) { return {hn::Mul(a.raw, b.raw)}; }
template <class D> HWY_INLINE Lanes<D> operator/(Lanes<D> a, Lanes<D> b) { return {hn::Div(a.raw, b.raw)}; }
template <class D> HWY_INLINE Lanes<D> operator-(Lanes<D> a) { return {hn::Neg(a.raw)}; }
template <class D> HWY_INLINE LanesMask<D> operator>(Lanes<D> a, Lanes<D> b) { return {hn::Gt(a.raw, b.raw)}; }
template <class D> HWY_INLINE LanesMask<D> operator<(Lanes<D> a, Lanes<D> b) { return {hn::Lt(a.raw, b.raw)}; }
template <class D> HWY_INLINE LanesMask<D> operator>=(Lanes<D> a, Lanes<D> b) { return {hn::Ge(a.raw, b.raw)}; }
template <class D> HWY_INLINE LanesMask<D> operator<=(Lanes<D> a, Lanes<D> b) { return {hn::Le(a.raw, b.raw)}; }
template <class D> HWY_INLINE LanesMask<D> operator==(Lanes<D> a, Lanes<D> b) { return {hn::Eq(a.raw, b.raw)}; }
template <class D> HWY_INLINE LanesMask<D> operator&(LanesMask<D> a, LanesMask<D> b) { return {hn::And(a.raw, b.raw)}; }
template <class D> HWY_INLINE LanesMask<D> operator|(LanesMask<D> a, LanesMask<D> b) { return {hn::Or(a.raw, b.raw)}; }
template <class D> HWY_INLINE LanesMask<D> is_nan(Lanes<D> a) { return {hn::IsNaN(a.raw)}; }
template <class D> HWY_INLINE Lanes<D> square_root(Lanes<D> a) { return {hn::Sqrt(a.raw)}; }
template <class D> HWY_INLINE Lanes<D> select(LanesMask<D> mask, Lanes<D> yes, Lanes<D> no) {
  return {hn::IfThenElse(mask.raw, yes.raw, no.raw)};
}
template <class V> HWY_INLINE V constant(double value) {
  return {hn::Set(typename V::Tag(), static_cast<hn::TFromD<typename V::Tag>>(value))};
}
// clang-format on

#else

// clang-format off
ULPSCOPE_LANE_FUNCTION bool is_nan(float a) { return a != a; }
ULPSCOPE_LANE_FUNCTION bool is_nan(double a) { return a != a; }
ULPSCOPE_LANE_FUNCTION float square_root(float a) { return sqrtf(a); }
ULPSCOPE_LANE_FUNCTION double square_root(double a) { return sqrt(a); }
ULPSCOPE_LANE_FUNCTION float select(bool mask, float yes, float no) { return mask ? yes : no; }
ULPSCOPE_LANE_FUNCTION double select(bool mask, double yes, double no) { return mask ? yes : no; }
template <class V> ULPSCOPE_LANE_FUNCTION V constant(double value) { return static_cast<V>(value); }
// clang-format on

#endif

ULPSCOPE_LANES_END

#endif
