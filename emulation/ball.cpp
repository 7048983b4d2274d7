#include "ulpscope/emulation/ball.h"

#include <algorithm>
#include <utility>

#include "ulpscope/emulation/arithmetic.h"

namespace ulpscope {

namespace {

using Integer = Ball::Integer;

int length(const Integer& value) { return value == 0 ? 0 : static_cast<int>(msb(abs(value))) + 1; }

// value / 2^shift, towards zero. Boost 1.74's own right shift of -(5 2^64 + 1), for one, is positive.
Integer shifted_down(const Integer& value, int shift) {
  const Integer magnitude = abs(value) >> shift;
  return value < 0 ? Integer(-magnitude) : magnitude;
}

// With a larger exponent: the middle loses bits, less than one of what is left.
Ball coarser(Ball ball, int shift) {
  const bool is_exact = ball.radius == 0 && (ball.middle == 0 || static_cast<int>(lsb(abs(ball.middle))) >= shift);
  ball.middle = shifted_down(ball.middle, shift);
  if (!is_exact) ball.radius = (ball.radius >> shift) + 2;
  ball.exponent += shift;
  return ball;
}

// What an operation gives: no more bits than it is asked to keep, of the middle or, where that is larger, of the radius.
Ball kept(Ball ball) {
  const int excess = std::max(length(ball.middle), length(ball.radius)) - ball.bits;
  return excess > 0 ? coarser(std::move(ball), excess) : ball;
}

Ball at_exponent(const Ball& ball, int exponent) {
  if (ball.exponent < exponent) return coarser(ball, exponent - ball.exponent);
  Ball result = ball;
  result.middle <<= ball.exponent - exponent;
  result.radius <<= ball.exponent - exponent;
  result.exponent = exponent;
  return result;
}

// The 64 leading bits of a positive number that is a little above (or, `below`, under) value 2^exponent.
Number beside(bool negative, const Integer& value, int exponent, bool below) {
  constexpr int kMore = 66;
  const Integer shifted = (value << kMore) - (below ? 1 : 0);
  const int cut = length(shifted) - 64;
  return {Number::Kind::finite, negative, true, exponent - kMore + cut, static_cast<uint64_t>(Integer(shifted >> cut))};
}

}  // namespace

Ball Ball::of(const Number& finite, int bits) {
  Ball ball{.middle = finite.kind == Number::Kind::zero ? 0 : finite.significand, .exponent = finite.exponent, .bits = bits};
  if (finite.negative) ball.middle = -ball.middle;
  return ball;
}

Ball Ball::of(int value, int bits) { return {.middle = value, .bits = bits}; }

int Ball::bound_exponent() const { return exponent + length(abs(middle) + radius); }

Ball Ball::operator-() const {
  Ball ball = *this;
  ball.middle = -ball.middle;
  return ball;
}

Ball Ball::scaled(int power_of_two) const {
  Ball ball = *this;
  ball.exponent += power_of_two;
  return ball;
}

Ball Ball::widened(int error_exponent) const {
  Ball ball = *this;
  ball.radius += error_exponent <= exponent ? Integer(1) : Integer(1) << (error_exponent - exponent);
  return ball;
}

Ball Ball::with_bits(int other_bits) const {
  Ball ball = *this;
  ball.bits = other_bits;
  return ball;
}

Ball::Integer Ball::nearest_integer() const {
  if (exponent >= 0) return Integer(middle << exponent);
  const Integer half = Integer(1) << (-exponent - 1);
  return shifted_down(middle < 0 ? Integer(middle - half) : Integer(middle + half), -exponent);
}

Ball operator+(const Ball& a, const Ball& b) {
  const int bits = std::max(a.bits, b.bits);
  if (a.is_exact() && a.middle == 0) return b.with_bits(bits);
  if (b.is_exact() && b.middle == 0) return a.with_bits(bits);
  // What lies far below both the larger one's leading bit and what is kept needs no bits of its own. Exact terms are kept whole
  // as far as their sum has a bounded length.
  const int top = std::max(a.bound_exponent(), b.bound_exponent());
  const int exponent = std::max(std::min(a.exponent, b.exponent), top - 2 * bits - 128);
  Ball sum = at_exponent(a, exponent);
  const Ball other = at_exponent(b, exponent);
  sum.middle += other.middle;
  sum.radius += other.radius;
  sum.bits = bits;
  return sum.is_exact() ? sum : kept(std::move(sum));
}

Ball operator-(const Ball& a, const Ball& b) { return a + -b; }

Ball operator*(const Ball& a, const Ball& b) {
  Ball product{.middle = a.middle * b.middle, .exponent = a.exponent + b.exponent, .bits = std::max(a.bits, b.bits)};
  product.radius = abs(a.middle) * b.radius + a.radius * abs(b.middle) + a.radius * b.radius;
  return kept(std::move(product));
}

// |x / y - a / b| <= (|a| r_b + |b| r_a) / (|b| (|b| - r_b)).
Ball operator/(const Ball& a, const Ball& b) {
  const int bits = std::max(a.bits, b.bits);
  const int shift = std::max(0, bits + length(b.middle) - length(a.middle) + 1);
  const Integer divisor = abs(b.middle);
  Ball quotient{.middle = Integer(a.middle << shift) / b.middle, .exponent = a.exponent - b.exponent - shift, .bits = bits};
  const Integer error = (abs(a.middle) * b.radius + divisor * a.radius) << shift;
  const bool is_exact = error == 0 && quotient.middle * b.middle == Integer(a.middle << shift);
  if (!is_exact) quotient.radius = error / (divisor * (divisor - b.radius)) + 2;
  return kept(std::move(quotient));
}

Ball operator/(const Ball& a, int divisor) { return a / Ball::of(divisor, a.bits); }

// |sqrt(x) - sqrt(a)| <= r / sqrt(a - r).
Ball square_root(const Ball& square) {
  int shift = std::max(0, 2 * square.bits - length(square.middle)) + 2;
  if ((square.exponent - shift) % 2 != 0) ++shift;
  const Integer low = Integer(square.middle - square.radius) << shift;
  Ball root{.middle = sqrt(Integer(square.middle << shift)), .exponent = (square.exponent - shift) / 2, .bits = square.bits};
  root.radius = Integer(square.radius << shift) / std::max(Integer(1), Integer(sqrt(low))) + 2;
  return kept(std::move(root));
}

std::optional<uint64_t> encode(const FloatFormat& format, const Ball& ball, const Rounding& rounding, uint32_t random) {
  const bool negative = ball.middle < 0;
  const Integer magnitude = abs(ball.middle);
  if (ball.is_exact()) {
    if (magnitude == 0) return encode(format, detail::zero(false), rounding, random);
    const int cut = std::max(0, length(magnitude) - 64);
    const bool sticky = cut > static_cast<int>(lsb(magnitude));
    return encode(format,
                  {Number::Kind::finite, negative, sticky, ball.exponent + cut, static_cast<uint64_t>(Integer(magnitude >> cut))},
                  rounding, random);
  }
  if (magnitude < ball.radius) return {};
  // Below every format where the interval begins at zero.
  constexpr int kFarBelow = -(1 << 24);
  const Integer low = magnitude - ball.radius;
  const Number above_low =
      low == 0 ? Number{Number::Kind::finite, negative, false, kFarBelow, 1} : beside(negative, low, ball.exponent, false);
  const Number below_high = beside(negative, magnitude + ball.radius, ball.exponent, true);
  const uint64_t encoding = encode(format, above_low, rounding, random);
  if (encoding != encode(format, below_high, rounding, random)) return {};
  return encoding;
}

}  // namespace ulpscope
