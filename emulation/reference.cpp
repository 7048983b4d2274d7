#include "ulpscope/emulation/reference.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "ulpscope/base/error.h"
#include "ulpscope/base/text.h"
#include "ulpscope/emulation/arithmetic.h"
#include "ulpscope/emulation/ball.h"
#include "ulpscope/emulation/real.h"

namespace ulpscope {

namespace {

using Integer = Ball::Integer;

// ---- constants

// The sum of sign^k / ((2 k + 1) n^(2 k + 1)): atan(1/n) with sign -1, atanh(1/n) with 1.
Ball inverse_series(int n, int sign, int bits) {
  const int scale = bits + 16;
  Integer power = (Integer(1) << scale) / n, sum = 0;
  int k = 0;
  for (; power != 0; ++k, power /= n * n) sum += (sign < 0 && k % 2 == 1 ? -1 : 1) * Integer(power / (2 * k + 1));
  // Every term is cut twice, and what follows the last is less than it.
  return {.middle = sum, .radius = 2 * k + 2, .exponent = -scale, .bits = bits};
}

// What a constant was computed as last: Ziv's loop asks for the same bits again and again.
template <Ball (*compute)(int bits)>
const Ball& cached(int bits) {
  thread_local Ball value = compute(bits);
  if (value.bits != bits) value = compute(bits);
  return value;
}

Ball compute_log_of_2(int bits) { return inverse_series(3, 1, bits).scaled(1); }
Ball compute_log_of_10(int bits) {  // 3 log 2 + log 5/4
  return inverse_series(3, 1, bits).scaled(1) * Ball::of(3, bits) + inverse_series(9, 1, bits).scaled(1);
}
Ball compute_pi(int bits) { return inverse_series(5, -1, bits).scaled(4) - inverse_series(239, -1, bits).scaled(2); }  // Machin

Ball log_of_2(int bits) { return cached<compute_log_of_2>(bits); }
Ball log_of_10(int bits) { return cached<compute_log_of_10>(bits); }
Ball pi(int bits) { return cached<compute_pi>(bits); }

Ball one(int bits) { return Ball::of(1, bits); }
bool is_above(const Ball& x, int value) { return (x - Ball::of(value, x.bits)).middle > 0; }

// The interval from x, which is not in it, to x (1 - 2^(1 - bits)), or, above, to x (1 + 2^(1 - bits)). Arithmetic would take x in:
// what it cuts off a middle widens the ball.
Ball just_beside(const Ball& x, int side) {
  return {
      .middle = (x.middle << x.bits) + side * x.middle, .radius = abs(x.middle), .exponent = x.exponent - x.bits, .bits = x.bits};
}
Ball just_below(const Ball& x) { return just_beside(x, -1); }
Ball just_above(const Ball& x) { return just_beside(x, 1); }

// first + first f(1) + first f(1) f(2) + ... where |f| <= 1/2 from some term on and all terms before are larger than 2^-bits of the
// first: so the rest is smaller than twice the last.
template <typename Factor>
Ball series(const Ball& first, Factor factor) {
  Ball term = first, sum = first;
  const int end = first.bound_exponent() - first.bits - 4;
  for (int n = 1; term.bound_exponent() > end; ++n) {
    term = factor(term, n);
    sum = sum + term;
  }
  return sum.widened(end + 1);
}

// ---- functions of balls

// e^(2^20) and its inverse are beyond every format; larger arguments are taken for this.
constexpr int kLargeExponent = 20;

Ball exp(const Ball& argument) {
  const int bits = argument.bits + 32;
  Ball x = argument.with_bits(bits);
  if (argument.bound_exponent() > kLargeExponent + 1)
    x = {.middle = argument.middle < 0 ? -1 : 1, .exponent = kLargeExponent, .bits = bits};
  // x = k log 2 + 2^kHalvings r, |r| < 2^-kHalvings.
  constexpr int kHalvings = 6;
  const Integer k = (x / log_of_2(bits)).nearest_integer();
  const Ball r = (x - Ball{.middle = k, .bits = bits} * log_of_2(bits)).scaled(-kHalvings);
  Ball power = series(one(bits), [&](const Ball& term, int n) { return term * r / n; });
  for (int i = 0; i < kHalvings; ++i) power = power * power;
  return power.scaled(static_cast<int>(k)).with_bits(argument.bits);
}

// Of what is above zero: m 2^e with m in [3/4, 3/2), and log m = 2 atanh((m - 1) / (m + 1)).
Ball log(const Ball& x) {
  const int bits = x.bits + 32;
  int exponent = x.bound_exponent();
  Ball m = x.scaled(-exponent).with_bits(bits);  // [1/2, 1)
  if ((m - Ball{.middle = 3, .exponent = -2, .bits = bits}).middle < 0) {
    m = m.scaled(1);
    --exponent;
  }
  const Ball ratio = (m - one(bits)) / (m + one(bits));
  const Ball times_log_of_2 = Ball::of(exponent, bits) * log_of_2(bits);
  if (ratio.is_exact() && ratio.middle == 0) return times_log_of_2.with_bits(x.bits);
  // |ratio| <= 1/5.
  const Ball square = ratio * ratio;
  Ball power = ratio;
  const Ball sum = series(ratio, [&](const Ball&, int n) {
    power = power * square;
    return power / (2 * n + 1);
  });
  return (times_log_of_2 + sum.scaled(1)).with_bits(x.bits);
}

// sin(x + quarter_turns pi / 2).
Ball sine(const Ball& x, int quarter_turns) {
  const int bits = x.bits + 32;
  const int wide = bits + std::max(0, x.bound_exponent());
  const Ball half_pi = pi(wide).scaled(-1);
  const Integer turns = (x.with_bits(wide) / half_pi).nearest_integer();
  const Ball r = (x.with_bits(wide) - Ball{.middle = turns, .bits = wide} * half_pi).with_bits(bits);  // |r| < 1
  const Ball square = (-(r * r)).with_bits(bits);
  const auto quadrant = static_cast<unsigned>(static_cast<int>(turns % 4) + 4 + quarter_turns) % 4;
  const int begin = quadrant % 2;  // cos has the terms of even powers
  const Ball value = series(begin == 1 ? one(bits) : r, [&](const Ball& term, int n) {
    const int power = 2 * n + (begin == 1 ? 0 : 1);
    return term * square / (power * (power - 1));
  });
  return (quadrant >= 2 ? -value : value).with_bits(x.bits);
}

// |x| <= 1: with three halvings of the angle, x / (1 + sqrt(1 + x^2)), below 1/10. Beyond: pi / 2 - atan(1 / x).
Ball atan(const Ball& x) {
  const int bits = x.bits + 32;
  const Ball wide = x.with_bits(bits), magnitude = x.middle < 0 ? -wide : wide;
  if (is_above(magnitude, 1)) {
    const Ball value = (pi(bits).scaled(-1) - atan(one(bits) / magnitude)).with_bits(x.bits);
    return x.middle < 0 ? -value : value;
  }
  constexpr int kHalvings = 3;
  Ball tangent = wide;
  for (int i = 0; i < kHalvings; ++i) tangent = tangent / (one(bits) + square_root(one(bits) + tangent * tangent));
  const Ball square = -(tangent * tangent);
  Ball power = tangent;
  return series(tangent,
                [&](const Ball&, int n) {
                  power = power * square;
                  return power / (2 * n + 1);
                })
      .scaled(kHalvings)
      .with_bits(x.bits);
}

// 2 / sqrt(pi) e^(-x^2) times the sum of 2^n x^(2 n + 1) / (1 * 3 * ... * (2 n + 1)), whose terms have one sign.
Ball erf(const Ball& x) {
  // Above, 1 - erf(x) < e^(-x^2) < 2^-bits.
  if (is_above(x * x, x.bits)) return x.middle < 0 ? -just_below(one(x.bits)) : just_below(one(x.bits));
  const int bits = x.bits + 32;
  const Ball wide = x.with_bits(bits), square = wide * wide;
  const int largest_terms = static_cast<int>(square.nearest_integer()) + 2;
  Ball term = wide, sum = wide;
  // From n > 2 x^2 on a term is at most half the one before.
  const int end = wide.bound_exponent() - bits;
  for (int n = 1; n <= 2 * largest_terms || term.bound_exponent() > end; ++n) {
    term = term * square.scaled(1) / (2 * n + 1);
    sum = sum + term;
  }
  return (sum.widened(end + 1) * exp(-square) / square_root(pi(bits))).scaled(1).with_bits(x.bits);
}

// e^-1024 < 2^-1477, and with what multiplies it here < 2^-1400: beyond every format, by more than the bits of a stochastic
// rounding.
constexpr int kLargeSquare = 1024, kVanishing = -1400;
// What is above zero and below 2^kVanishing.
Ball vanishing(int bits) { return {.middle = 1, .radius = 1, .exponent = kVanishing - 1, .bits = bits}; }
// An upper bound of the bits before the first of e^(-square).
int zeros_of_exp(const Ball& square) { return 3 * (static_cast<int>(square.nearest_integer()) + 1) / 2; }

Ball erfc(const Ball& x) {
  const Ball square = x * x;
  if (x.middle < 0) return is_above(square, x.bits) ? just_below(one(x.bits)).scaled(1) : one(x.bits) - erf(x);
  if (is_above(square, kLargeSquare)) return vanishing(x.bits);
  const int bits = x.bits + zeros_of_exp(square) + 32;
  return (one(bits) - erf(x.with_bits(bits))).with_bits(x.bits);
}

// ---- rows

Number integer(int value) {
  if (value == 0) return {};
  return {.kind = Number::Kind::finite, .negative = value < 0, .significand = static_cast<uint64_t>(value < 0 ? -value : value)};
}
Number power_of_two(int exponent) { return {.kind = Number::Kind::finite, .exponent = exponent, .significand = 1}; }

// With an odd significand.
Number reduced(Number finite) {
  const int zeros = std::countr_zero(finite.significand);
  finite.significand >>= zeros;
  finite.exponent += zeros;
  return finite;
}
bool is_one(const Number& x) {
  if (x.kind != Number::Kind::finite) return false;
  const Number odd = reduced(x);
  return odd.significand == 1 && odd.exponent == 0;
}

// The results that are exact: those of zeros, Inf, what is outside the domain, and numbers of finitely many bits. Nothing: others,
// which lie on no border between roundings.
using Exact = std::optional<Number>;

struct Limits {
  Number at_zero;  // with `keeps_zero`, of the argument's sign
  Number at_infinity, at_minus_infinity;
  bool keeps_zero = false;
};
Exact at_limits(const Number& x, const Limits& limits) {
  if (x.kind == Number::Kind::infinite) return x.negative ? limits.at_minus_infinity : limits.at_infinity;
  if (x.kind == Number::Kind::zero) return limits.keeps_zero ? x : limits.at_zero;
  return {};
}

const Number kInfinity = detail::infinity(false), kMinusInfinity = detail::infinity(true), kInvalid = detail::invalid();

Exact exact_exp(const Number& x) { return at_limits(x, {integer(1), kInfinity, integer(0)}); }
Exact exact_exp2(const Number& x) {
  if (x.kind != Number::Kind::finite) return exact_exp(x);
  const Ball value = Ball::of(reduced(x), 64);
  if (value.exponent < 0 || value.bound_exponent() > kLargeExponent) return {};
  return power_of_two(static_cast<int>(value.nearest_integer()));
}
Exact exact_expm1(const Number& x) { return at_limits(x, {{}, kInfinity, integer(-1), true}); }

// Of 1 the result is 0.
Exact exact_log(const Number& x) {
  if (x.kind == Number::Kind::zero) return kMinusInfinity;
  if (x.negative) return kInvalid;
  if (x.kind == Number::Kind::infinite) return kInfinity;
  if (is_one(x)) return integer(0);
  return {};
}
Exact exact_log2(const Number& x) {
  if (const Exact known = exact_log(x)) return known;
  const Number odd = reduced(x);
  if (odd.significand == 1) return integer(odd.exponent);
  return {};
}
Exact exact_log10(const Number& x) {
  if (const Exact known = exact_log(x)) return known;
  // 10^k = 5^k 2^k.
  Number odd = reduced(x);
  int power = 0;
  for (; odd.significand % 5 == 0; ++power) odd.significand /= 5;
  if (odd.significand == 1 && odd.exponent == power) return integer(power);
  return {};
}
Exact exact_log1p(const Number& x) {
  if (const Exact known = at_limits(x, {{}, kInfinity, kInvalid, true})) return known;
  if (!x.negative) return {};
  const Number sum = add(integer(1), x);
  if (sum.kind == Number::Kind::zero) return kMinusInfinity;
  if (sum.negative) return kInvalid;
  return {};
}
Exact exact_sqrt(const Number& x) { return square_root(x); }
Exact exact_rsqrt(const Number& x) {
  if (x.kind == Number::Kind::zero) return detail::infinity(x.negative);
  if (x.negative) return kInvalid;
  if (x.kind == Number::Kind::infinite) return integer(0);
  const Number odd = reduced(x);
  if (odd.significand == 1 && odd.exponent % 2 == 0) return power_of_two(-odd.exponent / 2);
  return {};
}
Exact exact_sin(const Number& x) { return at_limits(x, {{}, kInvalid, kInvalid, true}); }
Exact exact_cos(const Number& x) { return at_limits(x, {integer(1), kInvalid, kInvalid}); }
// Of what is below -1 or above 1: true.
bool is_beyond_one(const Number& x) {
  if (x.kind != Number::Kind::finite) return x.kind == Number::Kind::infinite;
  Number magnitude = x;
  magnitude.negative = false;
  const Number excess = add(magnitude, integer(-1));
  return excess.kind == Number::Kind::finite && !excess.negative;
}
Exact exact_asin(const Number& x) { return is_beyond_one(x) ? Exact(kInvalid) : exact_sin(x); }
Exact exact_acos(const Number& x) {
  if (is_beyond_one(x)) return kInvalid;
  if (is_one(x) && !x.negative) return integer(0);
  return {};
}
Exact exact_atan(const Number& x) {
  if (x.kind == Number::Kind::zero) return x;
  return {};
}
Exact exact_sinh(const Number& x) { return at_limits(x, {{}, kInfinity, kMinusInfinity, true}); }
Exact exact_cosh(const Number& x) { return at_limits(x, {integer(1), kInfinity, kInfinity}); }
Exact exact_tanh(const Number& x) { return at_limits(x, {{}, integer(1), integer(-1), true}); }
Exact exact_acosh(const Number& x) {
  if (x.negative || !(is_one(x) || is_beyond_one(x))) return kInvalid;
  if (is_one(x)) return integer(0);
  return at_limits(x, {{}, kInfinity, {}});
}
Exact exact_atanh(const Number& x) {
  if (is_one(x)) return detail::infinity(x.negative);
  return exact_asin(x);
}
Exact exact_sigmoid(const Number& x) { return at_limits(x, {power_of_two(-1), integer(1), integer(0)}); }

Exact exact_silu(const Number& x) { return at_limits(x, {{}, kInfinity, detail::zero(true), true}); }
Exact exact_softplus(const Number& x) {
  if (x.kind != Number::Kind::infinite) return {};
  return x.negative ? integer(0) : kInfinity;
}
Exact exact_erfc(const Number& x) { return at_limits(x, {integer(1), integer(0), integer(2)}); }

// The others are computed, with results that have about so many bits unless terms cancel.
Ball value_of_exp2(const Ball& x) {
  const int bits = x.bits + 32;
  return exp(x.with_bits(bits) * log_of_2(bits)).with_bits(x.bits);
}
Ball value_of_expm1(const Ball& x) {
  if (is_above(-x, x.bits)) return -just_below(one(x.bits));
  return exp(x) - one(x.bits);
}
Ball value_of_log2(const Ball& x) { return log(x) / log_of_2(x.bits + 8); }
Ball value_of_log10(const Ball& x) { return log(x) / log_of_10(x.bits + 8); }
Ball value_of_log1p(const Ball& x) { return log(one(x.bits) + x); }
Ball value_of_rsqrt(const Ball& x) { return one(x.bits) / square_root(x); }
Ball value_of_sin(const Ball& x) { return sine(x, 0); }
Ball value_of_cos(const Ball& x) { return sine(x, 1); }
Ball value_of_tan(const Ball& x) {
  return sine(x, 0) / sine(x, 1);  // no FP64 number is so near a pole that 64 bits do not keep it from zero
}
Ball value_of_asin(const Ball& x) {
  const Ball square = (one(x.bits) - x) * (one(x.bits) + x);
  if (square.middle == 0) return (x.middle < 0 ? -pi(x.bits) : pi(x.bits)).scaled(-1);
  return atan(x / square_root(square));
}
Ball value_of_acos(const Ball& x) {
  const Ball sum = one(x.bits) + x;
  if (sum.middle == 0) return pi(x.bits);
  return atan(square_root((one(x.bits) - x) / sum)).scaled(1);
}
Ball value_of_sinh(const Ball& x) { return (exp(x) - exp(-x)).scaled(-1); }
Ball value_of_cosh(const Ball& x) { return (exp(x) + exp(-x)).scaled(-1); }
Ball value_of_tanh(const Ball& x) {
  if (is_above(x, x.bits)) return just_below(one(x.bits));
  if (is_above(-x, x.bits)) return -just_below(one(x.bits));
  const Ball power = exp(x.scaled(1));
  return (power - one(x.bits)) / (power + one(x.bits));
}
Ball value_of_asinh(const Ball& x) {
  const Ball magnitude = x.middle < 0 ? -x : x, value = log(magnitude + square_root(one(x.bits) + x * x));
  return x.middle < 0 ? -value : value;
}
Ball value_of_acosh(const Ball& x) { return log(x + square_root((x - one(x.bits)) * (x + one(x.bits)))); }
Ball value_of_atanh(const Ball& x) { return log((one(x.bits) + x) / (one(x.bits) - x)).scaled(-1); }
Ball value_of_sigmoid(const Ball& x) {
  if (is_above(x, x.bits)) return just_below(one(x.bits));
  const Ball power = exp(x);
  return power / (power + one(x.bits));
}

// 1 - sigmoid(x) < e^-x.
Ball value_of_silu(const Ball& x) { return is_above(x, x.bits) ? just_below(x) : x * value_of_sigmoid(x); }
// Between x and x + e^-x, and below e^x by less than e^(2 x).
Ball value_of_softplus(const Ball& x) {
  if (x.middle == 0) return log_of_2(x.bits);
  if (is_above(x, x.bits)) return just_above(x);
  const Ball power = exp(x);
  return is_above(-x, x.bits) ? power.widened(power.bound_exponent() - x.bits) : log(one(x.bits) + power);
}
// 1 - erfc(-x / sqrt(2)) / 2 < e^(-x^2 / 2).
Ball value_of_gelu(const Ball& x) {
  const Ball half_square = (x * x).scaled(-1);
  if (x.middle > 0 && is_above(half_square, x.bits)) return just_below(x);
  if (x.middle < 0 && is_above(half_square, kLargeSquare)) return -vanishing(x.bits);
  const int bits = x.bits + zeros_of_exp(half_square) + 32;
  return (x * erfc(-x.with_bits(bits) / square_root(Ball::of(2, bits)))).scaled(-1).with_bits(x.bits);
}

struct Row {
  ElementaryFunctionName names;
  Exact (*exact)(const Number& x);
  Ball (*value)(const Ball& x);  // where the result is not exact
};

using Function = ElementaryFunction;
constexpr Row kRows[] = {
    {{"exp", Function::exp}, exact_exp, exp},
    {{"exp2", Function::exp2}, exact_exp2, value_of_exp2},
    {{"expm1", Function::expm1}, exact_expm1, value_of_expm1},
    {{"log", Function::log}, exact_log, log},
    {{"log2", Function::log2}, exact_log2, value_of_log2},
    {{"log10", Function::log10}, exact_log10, value_of_log10},
    {{"log1p", Function::log1p}, exact_log1p, value_of_log1p},
    {{"sqrt", Function::sqrt}, exact_sqrt, square_root},
    {{"rsqrt", Function::rsqrt}, exact_rsqrt, value_of_rsqrt},
    {{"sin", Function::sin}, exact_sin, value_of_sin},
    {{"cos", Function::cos}, exact_cos, value_of_cos},
    {{"tan", Function::tan}, exact_sin, value_of_tan},
    {{"asin", Function::asin}, exact_asin, value_of_asin},
    {{"acos", Function::acos}, exact_acos, value_of_acos},
    {{"atan", Function::atan}, exact_atan, atan},
    {{"sinh", Function::sinh}, exact_sinh, value_of_sinh},
    {{"cosh", Function::cosh}, exact_cosh, value_of_cosh},
    {{"tanh", Function::tanh}, exact_tanh, value_of_tanh},
    {{"asinh", Function::asinh}, exact_sinh, value_of_asinh},
    {{"acosh", Function::acosh}, exact_acosh, value_of_acosh},
    {{"atanh", Function::atanh}, exact_atanh, value_of_atanh},
    {{"sigmoid", Function::sigmoid}, exact_sigmoid, value_of_sigmoid},
    {{"silu", Function::silu}, exact_silu, value_of_silu},
    {{"softplus", Function::softplus}, exact_softplus, value_of_softplus},
    {{"erf", Function::erf}, exact_tanh, erf},
    {{"erfc", Function::erfc}, exact_erfc, erfc},
    {{"gelu", Function::gelu}, exact_silu, value_of_gelu},
};
constexpr auto kNames = [] {
  std::array<ElementaryFunctionName, std::size(kRows)> names;
  for (size_t i = 0; i < names.size(); ++i) names[i] = kRows[i].names;
  return names;
}();
static_assert(std::all_of(kNames.begin(), kNames.end(),
                          [](const auto& row) { return &row == &kNames[static_cast<size_t>(row.function)]; }),
              "rows are found by their functions");

// Ziv's loop.
template <typename Value>
uint64_t decided(std::string_view name, const Value& value, const FloatFormat& format, const Rounding& rounding, uint32_t random) {
  constexpr int kFirst = 64, kLast = 1 << 16;
  for (int bits = kFirst; bits <= kLast; bits *= 2) {
    if (const auto encoding = encode(format, value(bits), rounding, random)) return *encoding;
  }
  throw failed_error("{} into {}: {} bits do not decide its rounding", name, format.name, kLast);
}

// ---- powers

bool is_integer(const Number& finite) { return reduced(finite).exponent >= 0; }
bool is_odd_integer(const Number& finite) { return finite.kind == Number::Kind::finite && reduced(finite).exponent == 0; }

Exact pow_at_limits(const Number& x, const Number& y) {
  if (y.kind == Number::Kind::zero || (is_one(x) && !x.negative)) return integer(1);
  if (x.kind == Number::Kind::nan) return x;
  if (y.kind == Number::Kind::nan) return y;
  const bool negative = x.negative && is_odd_integer(y);
  if (x.kind == Number::Kind::zero) return y.negative ? detail::infinity(negative) : detail::zero(negative);
  if (x.kind == Number::Kind::infinite) return y.negative ? detail::zero(negative) : detail::infinity(negative);
  if (y.kind == Number::Kind::infinite) {
    if (is_one(x)) return integer(1);
    const bool is_above_one = Ball::of(x, 64).bound_exponent() > 0;
    return is_above_one == y.negative ? detail::zero(false) : detail::infinity(false);
  }
  if (x.negative && !is_integer(y)) return kInvalid;
  return {};
}

// x^y for x = m 2^e above zero, m odd, where it is rational and has few bits: y is an integer, or, x being a square as often as y
// has halves, becomes one. Below zero y asks for m = 1. A power with more than 64 bits, its last one set, is on no border between
// roundings.
std::optional<Ball> exact_power(const Number& x, const Number& y) {
  if (is_one(x)) return Ball::of(1, 64);
  const Number exponent = reduced(y);
  Number base = reduced(x);
  int halves = -std::min(0, exponent.exponent);
  for (; halves > 0; --halves) {
    if (base.significand == 1 && base.exponent % 2 == 0) {
      base.exponent /= 2;
      continue;
    }
    const Integer root = sqrt(Integer(base.significand));
    if (base.exponent % 2 != 0 || root * root != base.significand) return {};
    base.significand = static_cast<uint64_t>(root);
    base.exponent /= 2;
  }
  if (exponent.negative && base.significand != 1) return {};
  if (exponent.exponent > kLargeExponent || exponent.significand >= uint64_t{1} << kLargeExponent) return {};
  const auto power = static_cast<int64_t>(exponent.significand << std::max(0, exponent.exponent));
  const int64_t length = 64 - std::countl_zero(base.significand);
  const int64_t scale = base.exponent * (exponent.negative ? -power : power);
  if ((base.significand != 1 && length * power > 256) || std::abs(scale) > 1 << kLargeExponent) return {};
  const Integer significand =
      base.significand == 1 ? Integer(1) : Integer(pow(Integer(base.significand), static_cast<unsigned>(power)));
  return Ball{.middle = significand, .exponent = static_cast<int>(scale)};
}

}  // namespace

std::span<const ElementaryFunctionName> elementary_functions() { return kNames; }

ElementaryFunction parse_elementary_function(std::string_view name) {
  const auto* found =
      std::find_if(kNames.begin(), kNames.end(), [&](const ElementaryFunctionName& row) { return row.name == name; });
  if (found != kNames.end()) return found->function;
  std::vector<std::string> names;
  for (const ElementaryFunctionName& row : kNames) names.emplace_back(row.name);
  throw usage_error("elementary function '{}': expected {}{}", one_line(name), join_words(names, "or"), did_you_mean(name, names));
}

uint64_t evaluate(ElementaryFunction function, const Number& x, const FloatFormat& format, const Rounding& rounding,
                  uint32_t random) {
  if (x.kind == Number::Kind::nan) return encode(format, x, rounding, random);
  const Row& row = kRows[static_cast<size_t>(function)];
  if (const Exact exact = row.exact(x)) return encode(format, *exact, rounding, random);
  // Of infinities only atan has a result that is not exact: that of a number so large that no bound of an error tells it apart.
  Number finite = x;
  if (x.kind == Number::Kind::infinite) {
    finite = power_of_two(1 << kLargeExponent);
    finite.negative = x.negative;
  }
  return decided(
      row.names.name, [&](int bits) { return row.value(Ball::of(finite, bits)); }, format, rounding, random);
}

Real evaluate(ElementaryFunction function, const Real& x) {
  if (x.is_nan()) return x;
  const Row& row = kRows[static_cast<size_t>(function)];
  const bool negative = x.is_negative();
  std::optional<Number> number;
  if (!x.is_finite()) {
    number = detail::infinity(negative);
  } else if (x.ball().is_exact()) {
    Integer significand = abs(x.ball().middle);
    const int zeros = significand == 0 ? 0 : static_cast<int>(lsb(significand));
    significand >>= zeros;
    if (significand == 0) {
      number = detail::zero(negative);
    } else if (msb(significand) < 64) {
      number = {Number::Kind::finite, negative, false, x.ball().exponent + zeros, static_cast<uint64_t>(significand)};
    }
  } else {
    // An inexact number near it tells whether the function has a value there.
    const Exact near = row.exact(decode(binary64, std::bit_cast<uint64_t>(x.value())));
    if (near && near->kind == Number::Kind::nan) return Real(std::numeric_limits<double>::quiet_NaN());
  }
  if (number) {
    if (const Exact exact = row.exact(*number)) {
      if (exact->kind == Number::Kind::zero) return Real(exact->negative ? -0.0 : 0.0);
      if (exact->kind == Number::Kind::nan) return Real(std::numeric_limits<double>::quiet_NaN());
      if (exact->kind == Number::Kind::infinite) return Real(exact->negative ? -HUGE_VAL : HUGE_VAL);
      return Real(Ball::of(*exact, x.is_finite() ? x.ball().bits : Real::kBits));
    }
    if (!x.is_finite()) return evaluate(function, Real(negative ? -0x1p20 : 0x1p20));
  }
  return Real(row.value(x.ball()));
}

uint64_t evaluate_pow(const Number& x, const Number& y, const FloatFormat& format, const Rounding& rounding, uint32_t random) {
  if (const Exact exact = pow_at_limits(x, y)) return encode(format, *exact, rounding, random);
  const bool negative = x.negative && is_odd_integer(y);
  Number base = x;
  base.negative = false;
  const std::optional<Ball> exact = exact_power(base, y);
  const auto value = [&](int bits) {
    if (exact) return negative ? -*exact : *exact;
    const int wide = bits + 2 * kLargeExponent;
    const Ball power = exp(log(Ball::of(base, wide)) * Ball::of(y, wide)).with_bits(bits);
    return negative ? -power : power;
  };
  return decided("pow", value, format, rounding, random);
}

}  // namespace ulpscope
