// Real numbers in arithmetic that loses next to nothing: what computed numbers are compared with. A finite one lies in a ball
// (ball.h) whose middle keeps kBits bits, and whose radius is what was lost; Inf and NaN are what IEEE 754 makes of them. A zero
// has no sign, so that a number over zero is an Inf of the number's sign.
#pragma once

#include "ulpscope/emulation/ball.h"
#include "ulpscope/emulation/reference.h"

namespace ulpscope {

class Real {
 public:
  static constexpr int kBits = 160;

  Real() : Real(0.0) {}
  explicit Real(double value);
  explicit Real(const Ball& ball) : ball_(ball) {}

  bool is_finite() const { return special_ == 0; }
  bool is_nan() const { return special_ != special_; }
  // Whether the number is known without an error.
  bool is_exact() const { return !is_finite() || ball_.is_exact(); }
  bool is_zero() const { return is_finite() && ball_.is_exact() && ball_.middle == 0; }
  // Whether it is exact, finite, and a number of the format as it is.
  bool is_in(const FloatFormat& format) const;

  const Ball& ball() const { return ball_; }  // of finite numbers
  double value() const;                       // the middle in FP64, to within 2^-52 of it
  double radius() const;                      // at least that of the ball; 0 of what is not finite

  Real operator-() const;

  friend Real operator+(const Real& a, const Real& b);
  friend Real operator-(const Real& a, const Real& b);
  friend Real operator*(const Real& a, const Real& b);
  friend Real operator/(const Real& a, const Real& b);
  friend Real square_root(const Real& x);
  // -1, 0 or 1 by the middles; of a NaN 0.
  friend int compare(const Real& a, const Real& b);

 private:
  Ball ball_{.bits = kBits};
  double special_ = 0;  // Inf or NaN
};

Real magnitude(const Real& x);
Real evaluate(ElementaryFunction function, const Real& x);
// x^y as C's pow has it.
Real power(const Real& x, const Real& y);

}  // namespace ulpscope
