// The lane types that formulas are written for, and the operations they may use: + - * /, comparisons, select, is_nan, square_root,
// magnitude, constant, and `fused`, which is a * b + c in one rounding: for rules whose definition has one. A lane type is float,
// double or Wide (the plain twin, also what a device thread runs) or Lanes<D>, a Highway vector of floats or doubles. Wide and a
// vector of doubles hold FP32 values that are computed on in FP64 (functions.h): for them there are also nearest_integer,
// power_of_two, fraction and exponent.
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
#include <cstdint>
#include <cstring>

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
template <class D> HWY_INLINE Lanes<D> magnitude(Lanes<D> a) { return {hn::Abs(a.raw)}; }
template <class D> HWY_INLINE Lanes<D> select(LanesMask<D> mask, Lanes<D> yes, Lanes<D> no) {
  return {hn::IfThenElse(mask.raw, yes.raw, no.raw)};
}
template <class V, class T> HWY_INLINE V constant(T value) {
  return {hn::Set(typename V::Tag(), static_cast<hn::TFromD<typename V::Tag>>(value))};
}
template <class D> HWY_INLINE Lanes<D> nearest_integer(Lanes<D> a) { return {hn::Round(a.raw)}; }
// clang-format on
template <class D>
HWY_INLINE Lanes<D> fused(Lanes<D> a, Lanes<D> b, Lanes<D> c) {
#if HWY_NATIVE_FMA
  return {hn::MulAdd(a.raw, b.raw, c.raw)};
#else
  // SSE4 has no such instruction. The C library's function is exact, with the CPU's instruction or without.
  const D d;
  hn::TFromD<D> x[hn::MaxLanes(D())], y[hn::MaxLanes(D())], z[hn::MaxLanes(D())];
  hn::StoreU(a.raw, d, x);
  hn::StoreU(b.raw, d, y);
  hn::StoreU(c.raw, d, z);
  for (size_t i = 0; i < hn::MaxLanes(D()); ++i) z[i] = std::fma(x[i], y[i], z[i]);
  return {hn::LoadU(d, z)};
#endif
}

// The bits of doubles as integers and back, for the functions below that both kinds of wide lanes share.
template <class D>
struct WideBits {
  hn::Vec<hn::RebindToUnsigned<D>> raw;
};
template <class D>
HWY_INLINE WideBits<D> bits_of(Lanes<D> a) {
  return {hn::BitCast(hn::RebindToUnsigned<D>(), a.raw)};
}
template <class D>
HWY_INLINE Lanes<D> from_bits(WideBits<D> a) {
  return {hn::BitCast(D(), a.raw)};
}
template <int kBits, class D>
HWY_INLINE WideBits<D> shift_left(WideBits<D> a) {
  return {hn::ShiftLeft<kBits>(a.raw)};
}
template <int kBits, class D>
HWY_INLINE WideBits<D> shift_right(WideBits<D> a) {
  return {hn::ShiftRight<kBits>(a.raw)};
}
template <class D>
HWY_INLINE WideBits<D> keep_and_set(WideBits<D> a, uint64_t kept, uint64_t set) {
  const hn::RebindToUnsigned<D> d;
  return {hn::Or(hn::And(a.raw, hn::Set(d, kept)), hn::Set(d, set))};
}

#else

// An FP32 value that is computed on in FP64. A type of its own, since formulas of doubles use the C library's functions.
struct Wide {
  double raw;
  ULPSCOPE_LANE_FUNCTION explicit Wide(double value) : raw(value) {}
  ULPSCOPE_LANE_FUNCTION explicit operator float() const { return static_cast<float>(raw); }
};

// clang-format off
ULPSCOPE_LANE_FUNCTION bool is_nan(float a) { return a != a; }
ULPSCOPE_LANE_FUNCTION bool is_nan(double a) { return a != a; }
ULPSCOPE_LANE_FUNCTION float square_root(float a) { return sqrtf(a); }
ULPSCOPE_LANE_FUNCTION double square_root(double a) { return sqrt(a); }
ULPSCOPE_LANE_FUNCTION float fused(float a, float b, float c) { return fmaf(a, b, c); }
ULPSCOPE_LANE_FUNCTION double fused(double a, double b, double c) { return fma(a, b, c); }
ULPSCOPE_LANE_FUNCTION float magnitude(float a) { return fabsf(a); }
ULPSCOPE_LANE_FUNCTION double magnitude(double a) { return fabs(a); }
ULPSCOPE_LANE_FUNCTION float select(bool mask, float yes, float no) { return mask ? yes : no; }
ULPSCOPE_LANE_FUNCTION double select(bool mask, double yes, double no) { return mask ? yes : no; }
template <class V, class T> ULPSCOPE_LANE_FUNCTION V constant(T value) { return static_cast<V>(value); }

ULPSCOPE_LANE_FUNCTION Wide operator+(Wide a, Wide b) { return Wide(a.raw + b.raw); }
ULPSCOPE_LANE_FUNCTION Wide operator-(Wide a, Wide b) { return Wide(a.raw - b.raw); }
ULPSCOPE_LANE_FUNCTION Wide operator*(Wide a, Wide b) { return Wide(a.raw * b.raw); }
ULPSCOPE_LANE_FUNCTION Wide operator/(Wide a, Wide b) { return Wide(a.raw / b.raw); }
ULPSCOPE_LANE_FUNCTION Wide operator-(Wide a) { return Wide(-a.raw); }
ULPSCOPE_LANE_FUNCTION bool operator>(Wide a, Wide b) { return a.raw > b.raw; }
ULPSCOPE_LANE_FUNCTION bool operator<(Wide a, Wide b) { return a.raw < b.raw; }
ULPSCOPE_LANE_FUNCTION bool operator>=(Wide a, Wide b) { return a.raw >= b.raw; }
ULPSCOPE_LANE_FUNCTION bool operator<=(Wide a, Wide b) { return a.raw <= b.raw; }
ULPSCOPE_LANE_FUNCTION bool operator==(Wide a, Wide b) { return a.raw == b.raw; }
ULPSCOPE_LANE_FUNCTION bool is_nan(Wide a) { return a.raw != a.raw; }
ULPSCOPE_LANE_FUNCTION Wide square_root(Wide a) { return Wide(sqrt(a.raw)); }
ULPSCOPE_LANE_FUNCTION Wide magnitude(Wide a) { return Wide(fabs(a.raw)); }
ULPSCOPE_LANE_FUNCTION Wide nearest_integer(Wide a) { return Wide(rint(a.raw)); }
ULPSCOPE_LANE_FUNCTION Wide select(bool mask, Wide yes, Wide no) { return mask ? yes : no; }
// clang-format on

struct WideBits {
  uint64_t raw;
};
ULPSCOPE_LANE_FUNCTION WideBits bits_of(Wide a) {
  WideBits bits;
  memcpy(&bits.raw, &a.raw, sizeof bits.raw);
  return bits;
}
ULPSCOPE_LANE_FUNCTION Wide from_bits(WideBits a) {
  double value;
  memcpy(&value, &a.raw, sizeof value);
  return Wide(value);
}
template <int kBits>
ULPSCOPE_LANE_FUNCTION WideBits shift_left(WideBits a) {
  return {a.raw << kBits};
}
template <int kBits>
ULPSCOPE_LANE_FUNCTION WideBits shift_right(WideBits a) {
  return {a.raw >> kBits};
}
ULPSCOPE_LANE_FUNCTION WideBits keep_and_set(WideBits a, uint64_t kept, uint64_t set) { return {(a.raw & kept) | set}; }

// The lane that elementary functions of values of type C are computed in.
template <class C>
struct WideLane {
  using Type = C;
};
template <>
struct WideLane<float> {
  using Type = Wide;
};

// The value of a formula (formulas.h) or of what a row op maps (rows.h) at values of type C, or ones that become it: those of
// elementary functions in its wide lane, rounded to C once.
template <typename C, class F, class... T>
ULPSCOPE_LANE_FUNCTION C evaluate(const F& f, T... values) {
  if constexpr (F::kWide) {
    using V = typename WideLane<C>::Type;
    return static_cast<C>(f.template operator()<V>(static_cast<V>(values)...));
  } else {
    return f.template operator()<C>(values...);
  }
}

#endif

// 2^n for an integer n in [-1022, 1023]. Added to 1.5 * 2^52, an integer is the low bits of the sum.
template <class V>
ULPSCOPE_LANE_FUNCTION V power_of_two(V n) {
  return from_bits(shift_left<52>(bits_of(n + constant<V>(0x1.8p52 + 1023))));
}

// x = fraction * 2^exponent with 1 <= fraction < 2, for x > 0 that is finite and not subnormal in FP64.
template <class V>
ULPSCOPE_LANE_FUNCTION V fraction(V x) {
  return from_bits(keep_and_set(bits_of(x), 0xFFFFFFFFFFFFF, 0x3FF0000000000000));
}
template <class V>
ULPSCOPE_LANE_FUNCTION V exponent(V x) {
  // The exponent's bits as the low bits of 2^52 + them.
  const V biased = from_bits(keep_and_set(shift_right<52>(bits_of(x)), 0x7FF, 0x4330000000000000));
  return biased - constant<V>(0x1p52 + 1023);
}

ULPSCOPE_LANES_END

#endif
