// Elementary functions of lanes (lanes.h). Of Wide and of vectors of doubles, which hold FP32 values: their relative error is below
// 2^-32, and a formula rounds its result to FP32 once, so that it is within 0.51 ulp of the exact one (docs/numerics.md). Of
// double, for FP64 tensors: the C library's.
#if defined(ULPSCOPE_KERNELS_FUNCTIONS_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ULPSCOPE_KERNELS_FUNCTIONS_H
#undef ULPSCOPE_KERNELS_FUNCTIONS_H
#else
#define ULPSCOPE_KERNELS_FUNCTIONS_H
#endif

#include "ulpscope/kernels/lanes.h"

ULPSCOPE_LANES_BEGIN

#if !defined(ULPSCOPE_SIMD_LANES)

ULPSCOPE_LANE_FUNCTION double exp(double x) { return ::exp(x); }
ULPSCOPE_LANE_FUNCTION double log(double x) { return ::log(x); }
ULPSCOPE_LANE_FUNCTION double tanh(double x) { return ::tanh(x); }
ULPSCOPE_LANE_FUNCTION double softplus(double x) { return (x > 0 ? x : 0) + ::log1p(::exp(-fabs(x))); }
ULPSCOPE_LANE_FUNCTION double log_of_complement(double x) { return ::log1p(-x); }
ULPSCOPE_LANE_FUNCTION double erfc(double x) { return ::erfc(x); }
ULPSCOPE_LANE_FUNCTION double pow(double a, double b) { return ::pow(a, b); }

#endif

inline constexpr double kInfinity = HUGE_VAL;
inline constexpr double kNotANumber = NAN;

// c[0] + c[1] x + ... (Horner).
template <class V, size_t n>
ULPSCOPE_LANE_FUNCTION V polynomial(V x, const double (&c)[n]) {
  V sum = constant<V>(c[n - 1]);
  for (size_t i = n - 1; i-- > 0;) sum = sum * x + constant<V>(c[i]);
  return sum;
}

// x = n log(2) + rest with |rest| <= log(2) / 2, and e^rest - 1 by its Taylor series to rest^10: the next term is below 2^-40 rest.
template <class V>
struct ReducedExponent {
  V n, less_one;
};
template <class V>
ULPSCOPE_LANE_FUNCTION ReducedExponent<V> reduce_exponent(V x) {
  // log(2) in two parts, the first with 21 zero bits at its end, so that n times it is exact.
  constexpr double kHigh = 0x1.62e42fee00000p-1, kLow = 0x1.a39ef35793c76p-33, kInverse = 0x1.71547652b82fep0;
  constexpr double kTaylor[] = {1.0,       1.0 / 2,    1.0 / 6,     1.0 / 24,     1.0 / 120,
                                1.0 / 720, 1.0 / 5040, 1.0 / 40320, 1.0 / 362880, 1.0 / 3628800};
  const V n = nearest_integer(x * constant<V>(kInverse));
  const V rest = (x - n * constant<V>(kHigh)) - n * constant<V>(kLow);
  return {n, rest * polynomial(rest, kTaylor)};
}

// Beyond this e^x and e^-x are 0 or Inf in FP32 and far within the range of FP64.
inline constexpr double kExponentLimit = 700;

template <class V>
ULPSCOPE_LANE_FUNCTION V within_exponent_limit(V x) {
  const V limit = constant<V>(kExponentLimit);
  return select(x > limit, limit, select(x < -limit, -limit, x));
}

template <class V>
ULPSCOPE_LANE_FUNCTION V exp(V x) {
  const ReducedExponent<V> reduced = reduce_exponent(within_exponent_limit(x));
  const V power = power_of_two(reduced.n), value = power + power * reduced.less_one;
  const V limit = constant<V>(kExponentLimit);
  return select(x > limit, constant<V>(kInfinity), select(x < -limit, constant<V>(0), value));
}

// e^x - 1.
template <class V>
ULPSCOPE_LANE_FUNCTION V expm1(V x) {
  const ReducedExponent<V> reduced = reduce_exponent(within_exponent_limit(x));
  const V power = power_of_two(reduced.n);
  return power * reduced.less_one + (power - constant<V>(1));
}

// 2 atanh(z) for |z| <= 1/3: with squares up to 1/9, what is left out is below 2^-42 of the sum.
template <class V>
ULPSCOPE_LANE_FUNCTION V twice_atanh(V z) {
  constexpr double kOdd[] = {2.0,      2.0 / 3,  2.0 / 5,  2.0 / 7,  2.0 / 9,  2.0 / 11,
                             2.0 / 13, 2.0 / 15, 2.0 / 17, 2.0 / 19, 2.0 / 21, 2.0 / 23};
  return z * polynomial(z * z, kOdd);
}

template <class V>
ULPSCOPE_LANE_FUNCTION V log(V x) {
  constexpr double kHigh = 0x1.62e42fee00000p-1, kLow = 0x1.a39ef35793c76p-33;
  const V zero = constant<V>(0), one = constant<V>(1);
  const V ordinary = select((x > zero) & (x < constant<V>(kInfinity)), x, one);
  const V whole = fraction(ordinary);
  const auto large = whole > constant<V>(0x1.6a09e667f3bcdp0);  // the square root of 2
  const V m = select(large, whole * constant<V>(0.5), whole);
  const V e = exponent(ordinary) + select(large, one, zero);
  const V value = e * constant<V>(kHigh) + (e * constant<V>(kLow) + twice_atanh((m - one) / (m + one)));
  const V special = select(x == zero, constant<V>(-kInfinity), select(x < zero, constant<V>(kNotANumber), x));
  return select((x > zero) & (x < constant<V>(kInfinity)), value, special);
}

// log(1 + x) for 0 <= x <= 1.
template <class V>
ULPSCOPE_LANE_FUNCTION V log1p_of_share(V x) {
  return twice_atanh(x / (constant<V>(2) + x));
}

// log(1 - x).
template <class V>
ULPSCOPE_LANE_FUNCTION V log_of_complement(V x) {
  const auto small = magnitude(x) < constant<V>(0.5);
  const V near = select(small, x, constant<V>(0));
  return select(small, -twice_atanh(near / (constant<V>(2) - near)), log(constant<V>(1) - x));
}

template <class V>
ULPSCOPE_LANE_FUNCTION V tanh(V x) {
  // Beyond 20 it is 1 in FP32.
  const V twice = magnitude(x) + magnitude(x), limit = constant<V>(40);
  const V less_one = expm1(select(twice > limit, limit, twice));
  const V value = less_one / (less_one + constant<V>(2));
  // A zero keeps its sign.
  return select(is_nan(x) | (x == constant<V>(0)), x, select(x < constant<V>(0), -value, value));
}

// 1 / (1 + e^-x), and the same of -x.
template <class V>
struct Sigmoids {
  V of_x, of_negative;
};
template <class V>
ULPSCOPE_LANE_FUNCTION Sigmoids<V> sigmoids(V x) {
  const V small = exp(-magnitude(x)), upper = constant<V>(1) / (constant<V>(1) + small), lower = small * upper;
  const auto positive = x > constant<V>(0);
  return {select(positive, upper, lower), select(positive, lower, upper)};
}
template <class V>
ULPSCOPE_LANE_FUNCTION V sigmoid(V x) {
  return sigmoids(x).of_x;
}

// log(1 + e^x).
template <class V>
ULPSCOPE_LANE_FUNCTION V softplus(V x) {
  const V zero = constant<V>(0);
  return select(x > zero, x, zero) + log1p_of_share(exp(-magnitude(x)));
}

// The complementary error function. For x >= 0 it is e^(-x^2) p(t) / (1 + 2 x) with t = (x - 3) / (x + 3) (the form of M. Shepherd
// and J. Laframboise, Math. Comp. 36, 1981); p interpolates the exact values at 16 Chebyshev nodes, and is within 2^-36.
template <class V>
ULPSCOPE_LANE_FUNCTION V erfc(V x) {
  constexpr double kP[] = {0x1.40c522d7e2780p+0,  -0x1.15c084bb49121p-3,  -0x1.85a15c3678a38p-5,  0x1.0983667ae64d4p-3,
                           -0x1.e88b81aa3f792p-4, 0x1.17ca2f8ac8da5p-4,   -0x1.857493d3bcce6p-6,  0x1.4b8121d7f645bp-9,
                           0x1.ef0f1031dcbeep-10, -0x1.9867e8391a0d5p-11, -0x1.b722a3b1e39f2p-14, 0x1.025a43d5ac9f1p-13,
                           0x1.1edb067af1d78p-18, -0x1.28bcd8d056052p-16, -0x1.fa676fb082214p-24, 0x1.da852f73dbba8p-20};
  const V two = constant<V>(2), three = constant<V>(3), limit = constant<V>(100);
  const V a = select(magnitude(x) > limit, limit, magnitude(x));
  const V right = exp(-(a * a)) * polynomial((a - three) / (a + three), kP) / (constant<V>(1) + two * a);
  return select(is_nan(x), x, select(x < constant<V>(0), two - right, right));
}

// The distribution function of the standard normal distribution, and its density.
template <class V>
ULPSCOPE_LANE_FUNCTION V normal_distribution(V x) {
  return constant<V>(0.5) * erfc(-x * constant<V>(0x1.6a09e667f3bcdp-1));
}
template <class V>
ULPSCOPE_LANE_FUNCTION V normal_density(V x) {
  return constant<V>(0x1.9884533d43651p-2) * exp(constant<V>(-0.5) * (x * x));
}

// a^b as C's pow has it: 1 for b = 0 and for a = 1 whatever the other is, NaN for a negative a and a b that is not an integer.
template <class V>
ULPSCOPE_LANE_FUNCTION V pow(V a, V b) {
  const V zero = constant<V>(0), one = constant<V>(1), half = constant<V>(0.5), infinity = constant<V>(kInfinity);
  const V size = magnitude(a), logarithm = log(size);
  const V product = select(logarithm == zero, zero, b * logarithm);
  const V value = exp(select(is_nan(b), b, product));
  const auto negative = (a < zero) | ((a == zero) & (one / a < zero));
  const V integer = nearest_integer(b), halved = integer * half;
  const auto odd = (integer == b) & ((nearest_integer(halved) > halved) | (nearest_integer(halved) < halved));
  const V broken = select((integer == b) | (size == infinity) | (size == zero), value, constant<V>(kNotANumber));
  const V of_negative = select(odd, -value, broken);
  const V result = select(negative, of_negative, value);
  return select((b == zero) | (a == one), one, select(is_nan(a), a, select(is_nan(b), b, result)));
}

ULPSCOPE_LANES_END

#endif
