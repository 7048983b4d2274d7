#include "ulpscope/emulation/real.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "ulpscope/emulation/ball.h"

namespace ulpscope {

namespace {

using Integer = Ball::Integer;

const double kNotANumber = std::numeric_limits<double>::quiet_NaN();

// value 2^exponent in FP64: cut to 64 bits, and, `up`, not below it.
double number_of(const Integer& value, int exponent, bool up) {
  if (value == 0) return 0;
  Integer cut = abs(value);
  const int excess = static_cast<int>(msb(cut)) - 62;
  if (excess > 0) cut >>= excess;
  const uint64_t leading = static_cast<uint64_t>(cut) + (up && excess > 0 ? 1 : 0);
  double number = std::ldexp(static_cast<double>(leading), exponent + std::max(0, excess));
  if (up) number = std::nextafter(number, HUGE_VAL);
  return value < 0 ? -number : number;
}

// A number that Inf, NaN or a zero meets: only its sign matters, and it may be 0 in FP64 alone.
double in_signs(const Real& x) {
  if (!x.is_finite() || x.is_zero()) return x.value();
  return x.is_negative() ? -1 : 1;
}

}  // namespace

Real::Real(double value) {
  if (std::isfinite(value)) {
    ball_ = std::make_shared<const Ball>(Ball::of(decode(binary64, std::bit_cast<uint64_t>(value)), kBits));
    if (value == 0) special_ = value;
  } else {
    special_ = value;
  }
}

Real::Real(Ball ball) : ball_(std::make_shared<const Ball>(std::move(ball))) {}

Real Real::zero(bool negative) { return Real(negative ? -0.0 : 0.0); }

bool Real::is_exact() const { return !is_finite() || ball_->is_exact(); }
bool Real::is_zero() const { return is_finite() && ball_->middle == 0 && ball_->is_exact(); }
bool Real::is_negative() const { return is_finite() && ball_->middle != 0 ? ball_->middle < 0 : std::signbit(special_); }

bool Real::is_in(const FloatFormat& format) const {
  if (!is_finite() || !ball_->is_exact()) return false;
  if (ball_->middle == 0) return true;
  const int top = ball_->bound_exponent() - 1, last = static_cast<int>(lsb(abs(ball_->middle))) + ball_->exponent;
  const int step = std::max(top, format.smallest_normal_exponent()) - format.fraction_bits;
  return last >= step && std::fabs(value()) <= format.largest_finite();
}

double Real::value() const {
  return is_finite() && ball_->middle != 0 ? number_of(ball_->middle, ball_->exponent, false) : special_;
}
double Real::radius() const { return is_finite() ? number_of(ball_->radius, ball_->exponent, true) : 0; }

Real Real::operator-() const {
  if (!is_finite() || is_zero()) return Real(-value());
  return Real(-*ball_);
}

Real operator+(const Real& a, const Real& b) {
  if (!a.is_finite() || !b.is_finite() || (a.is_zero() && b.is_zero())) return Real(a.value() + b.value());
  return Real(*a.ball_ + *b.ball_);
}

Real operator-(const Real& a, const Real& b) { return a + -b; }

Real operator*(const Real& a, const Real& b) {
  if (!a.is_finite() || !b.is_finite()) return Real(in_signs(a) * in_signs(b));
  if (a.is_zero() || b.is_zero()) return Real::zero(a.is_negative() != b.is_negative());
  return Real(*a.ball_ * *b.ball_);
}

Real operator/(const Real& a, const Real& b) {
  if (!a.is_finite() || !b.is_finite() || b.is_zero()) return Real(in_signs(a) / in_signs(b));
  if (a.is_zero()) return Real::zero(a.is_negative() != b.is_negative());
  if (b.ball_->is_around_zero()) return Real(kNotANumber);
  return Real(*a.ball_ / *b.ball_);
}

Real square_root(const Real& x) {
  if (!x.is_finite() || x.is_zero()) return Real(std::sqrt(x.value()));
  if (x.is_negative() || x.ball().is_around_zero()) return Real(kNotANumber);
  return Real(square_root(x.ball()));
}

Real magnitude(const Real& x) { return x.is_negative() ? -x : x; }

int compare(const Real& a, const Real& b) {
  if (!a.is_finite() || !b.is_finite()) return a.value() < b.value() ? -1 : a.value() > b.value() ? 1 : 0;
  const Integer difference = (a.ball() - b.ball()).middle;
  return difference < 0 ? -1 : difference > 0 ? 1 : 0;
}

Real power(const Real& x, const Real& y) {
  const Real one(1.0);
  if (y.is_zero() || (x.is_exact() && compare(x, one) == 0 && !x.is_nan())) return one;
  if (!x.is_finite() || !y.is_finite() || x.is_zero()) return Real(std::pow(x.value(), y.value()));
  const bool is_integer = y.is_exact() && static_cast<int>(lsb(abs(y.ball().middle))) + y.ball().exponent >= 0;
  if (x.is_negative() && !is_integer) return Real(kNotANumber);
  // The exponent's integer part costs bits.
  const int wide = Real::kBits + 64;
  const Real of_size = evaluate(ElementaryFunction::log, Real(magnitude(x).ball().with_bits(wide)));
  const Real result(evaluate(ElementaryFunction::exp, of_size * y).ball().with_bits(Real::kBits));
  const bool is_odd = is_integer && static_cast<int>(lsb(abs(y.ball().middle))) + y.ball().exponent == 0;
  return x.is_negative() && is_odd ? -result : result;
}

}  // namespace ulpscope
