// Arithmetic in any format: each operation is computed exactly, as integers, and rounded once by encode() of number.h.
//
// Operations on Numbers serve operands and results of different formats; those on encodings are for operands and result of one.
//   encode(binary32, fused_multiply_add(decode(e4m3, a), decode(e5m2, b), decode(binary32, c)))
//
// Operands are what decode() makes of an encoding: significands of at most 53 bits, FP64's, and not sticky. Stochastic rounding
// into FP64 sees the 11 leading bits of what lies below the last place; into all other formats it sees 32 or more.
//
// IEEE 754-2019, section 6, on what is no ordinary number:
//   zero   a product's or quotient's sign is that of its operands together, sqrt(-0) is -0. An exact sum of zero is +0, in mode
//          `down` -0, but for zeros of one sign, which keep it.
//   Inf    Inf - Inf, 0 * Inf, 0 / 0, Inf / Inf and the square root of a number below zero are NaN: positive, quiet, without a
//          payload (as on ARM; x86 gives the negative one). x / 0 is Inf.
//   NaN    the first operand that is one, made quiet, with its sign and payload, as the SSE instructions do; fma(0, Inf, NaN) is
//          that NaN.
// What a format without Inf, NaN or -0 has instead is encode()'s rule.
#pragma once

#include <bit>
#include <cstdint>
#include <initializer_list>
#include <utility>

#include "ulpscope/emulation/number.h"

namespace ulpscope {

namespace detail {

__extension__ using uint128 = unsigned __int128;

constexpr int leading_bit(uint128 value) {
  const auto high = static_cast<uint64_t>(value >> 64);
  return high != 0 ? 127 - std::countl_zero(high) : 63 - std::countl_zero(static_cast<uint64_t>(value));
}

// A finite number as a whole one times a power of two, its leading bit at kWideLeading: a sum of two cannot overflow.
struct WideNumber {
  bool negative = false;
  int exponent = 0;
  uint128 significand = 0;
};
inline constexpr int kWideLeading = 126;

constexpr WideNumber widen(bool negative, uint128 significand, int exponent) {
  const int shift = kWideLeading - leading_bit(significand);
  return {negative, exponent - shift, significand << shift};
}
constexpr WideNumber widen(const Number& number) { return widen(number.negative, number.significand, number.exponent); }

// The 64 leading bits, and whether others follow.
constexpr Number leading_bits(bool negative, uint128 significand, int exponent, bool sticky) {
  Number number{Number::Kind::finite, negative, sticky, exponent, 0};
  const int shift = leading_bit(significand) - 63;
  if (shift <= 0) {
    number.significand = static_cast<uint64_t>(significand) << -shift;
  } else {
    number.significand = static_cast<uint64_t>(significand >> shift);
    number.sticky = sticky || significand << (128 - shift) != 0;
  }
  number.exponent += shift;
  return number;
}

constexpr Number zero(bool negative) { return {.kind = Number::Kind::zero, .negative = negative}; }
constexpr Number infinity(bool negative) { return {.kind = Number::Kind::infinite, .negative = negative}; }
constexpr Number invalid() { return {.kind = Number::Kind::nan, .significand = uint64_t{1} << 63}; }
constexpr bool is_nan(const Number& number) { return number.kind == Number::Kind::nan; }
constexpr bool is_infinite(const Number& number) { return number.kind == Number::Kind::infinite; }
constexpr bool is_zero(const Number& number) { return number.kind == Number::Kind::zero; }

// What is subtracted, as it is added: a NaN keeps its sign.
constexpr Number opposite(Number number) {
  if (!is_nan(number)) number.negative = !number.negative;
  return number;
}

// Of what cancels, or of two zeros with different signs.
constexpr Number cancelled(RoundingMode mode) { return zero(mode == RoundingMode::down); }

// Of two numbers or exact products. Bits are lost only where the exponents differ by more than 20 (a product has 106 bits), and
// then at most one leading bit cancels.
constexpr Number sum(WideNumber a, WideNumber b, RoundingMode mode) {
  if (a.exponent < b.exponent || (a.exponent == b.exponent && a.significand < b.significand)) std::swap(a, b);
  const int distance = a.exponent - b.exponent;
  const uint128 shifted = distance < 128 ? b.significand >> distance : 0;
  const bool sticky = distance >= 128 || shifted << distance != b.significand;
  if (a.negative == b.negative) return leading_bits(a.negative, a.significand + shifted, a.exponent, sticky);
  // What is lost makes the difference smaller: one less, and something.
  const uint128 difference = a.significand - shifted - (sticky ? 1 : 0);
  return difference == 0 ? cancelled(mode) : leading_bits(a.negative, difference, a.exponent, sticky);
}

constexpr WideNumber product(const Number& a, const Number& b) {
  return widen(a.negative != b.negative, uint128{a.significand} * b.significand, a.exponent + b.exponent);
}

}  // namespace detail

// `mode` decides the sign of an exact zero.
constexpr Number add(const Number& a, const Number& b, RoundingMode mode = RoundingMode::nearest_even) {
  if (detail::is_nan(a)) return a;
  if (detail::is_nan(b)) return b;
  if (detail::is_infinite(a)) return detail::is_infinite(b) && a.negative != b.negative ? detail::invalid() : a;
  if (detail::is_infinite(b)) return b;
  if (detail::is_zero(a) && detail::is_zero(b)) return a.negative == b.negative ? a : detail::cancelled(mode);
  if (detail::is_zero(a)) return b;
  if (detail::is_zero(b)) return a;
  return detail::sum(detail::widen(a), detail::widen(b), mode);
}

constexpr Number subtract(const Number& a, const Number& b, RoundingMode mode = RoundingMode::nearest_even) {
  return add(a, detail::opposite(b), mode);
}

constexpr Number multiply(const Number& a, const Number& b) {
  if (detail::is_nan(a)) return a;
  if (detail::is_nan(b)) return b;
  const bool negative = a.negative != b.negative;
  if (detail::is_infinite(a) || detail::is_infinite(b))
    return detail::is_zero(a) || detail::is_zero(b) ? detail::invalid() : detail::infinity(negative);
  if (detail::is_zero(a) || detail::is_zero(b)) return detail::zero(negative);
  const detail::WideNumber product = detail::product(a, b);
  return detail::leading_bits(negative, product.significand, product.exponent, false);
}

constexpr Number divide(const Number& a, const Number& b) {
  if (detail::is_nan(a)) return a;
  if (detail::is_nan(b)) return b;
  const bool negative = a.negative != b.negative;
  if (detail::is_infinite(a)) return detail::is_infinite(b) ? detail::invalid() : detail::infinity(negative);
  if (detail::is_zero(b)) return detail::is_zero(a) ? detail::invalid() : detail::infinity(negative);
  if (detail::is_zero(a) || detail::is_infinite(b)) return detail::zero(negative);
  // 2^127 over a divisor below 2^53 leaves 74 bits or more.
  const detail::WideNumber numerator = detail::widen(a);
  const detail::uint128 quotient = numerator.significand / b.significand;
  const bool sticky = quotient * b.significand != numerator.significand;
  return detail::leading_bits(negative, quotient, numerator.exponent - b.exponent, sticky);
}

constexpr Number square_root(const Number& a) {
  if (detail::is_nan(a) || detail::is_zero(a)) return a;
  if (a.negative) return detail::invalid();
  if (detail::is_infinite(a)) return a;
  detail::WideNumber square = detail::widen(a);
  if (square.exponent % 2 != 0) {
    square.significand <<= 1;
    --square.exponent;
  }
  // Digit by digit: the largest root whose square is not above the significand. It has 64 bits.
  detail::uint128 root = 0, rest = square.significand;
  for (detail::uint128 bit = detail::uint128{1} << 126; bit != 0; bit >>= 2) {
    const bool fits = rest >= root + bit;
    if (fits) rest -= root + bit;
    root = (root >> 1) + (fits ? bit : 0);
  }
  return detail::leading_bits(false, root, square.exponent / 2, rest != 0);
}

// a b + c d, rounded once.
constexpr Number sum_of_products(const Number& a, const Number& b, const Number& c, const Number& d,
                                 RoundingMode mode = RoundingMode::nearest_even) {
  const auto is_finite = [](const Number& number) { return number.kind == Number::Kind::finite; };
  if (is_finite(a) && is_finite(b) && is_finite(c) && is_finite(d))
    return detail::sum(detail::product(a, b), detail::product(c, d), mode);
  for (const Number* number : {&a, &b, &c, &d})
    if (detail::is_nan(*number)) return *number;
  // At most one of the products is a number that could need rounding.
  return add(multiply(a, b), multiply(c, d), mode);
}

// a b + c, rounded once.
constexpr Number fused_multiply_add(const Number& a, const Number& b, const Number& c,
                                    RoundingMode mode = RoundingMode::nearest_even) {
  return sum_of_products(a, b, c, {.kind = Number::Kind::finite, .significand = 1}, mode);
}

// Operands and result of one format. `random`: uniform bits, for stochastic rounding.
constexpr uint64_t add(const FloatFormat& format, uint64_t a, uint64_t b, const Rounding& rounding = {}, uint32_t random = 0) {
  return encode(format, add(decode(format, a), decode(format, b), rounding.mode), rounding, random);
}
constexpr uint64_t subtract(const FloatFormat& format, uint64_t a, uint64_t b, const Rounding& rounding = {}, uint32_t random = 0) {
  return encode(format, subtract(decode(format, a), decode(format, b), rounding.mode), rounding, random);
}
constexpr uint64_t multiply(const FloatFormat& format, uint64_t a, uint64_t b, const Rounding& rounding = {}, uint32_t random = 0) {
  return encode(format, multiply(decode(format, a), decode(format, b)), rounding, random);
}
constexpr uint64_t divide(const FloatFormat& format, uint64_t a, uint64_t b, const Rounding& rounding = {}, uint32_t random = 0) {
  return encode(format, divide(decode(format, a), decode(format, b)), rounding, random);
}
constexpr uint64_t square_root(const FloatFormat& format, uint64_t a, const Rounding& rounding = {}, uint32_t random = 0) {
  return encode(format, square_root(decode(format, a)), rounding, random);
}
constexpr uint64_t fused_multiply_add(const FloatFormat& format, uint64_t a, uint64_t b, uint64_t c, const Rounding& rounding = {},
                                      uint32_t random = 0) {
  return encode(format, fused_multiply_add(decode(format, a), decode(format, b), decode(format, c), rounding.mode), rounding,
                random);
}

}  // namespace ulpscope
