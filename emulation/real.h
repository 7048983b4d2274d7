// Real numbers in arithmetic that loses next to nothing: what computed numbers are compared with. A finite one lies in a ball
// (ball.h) whose middle keeps kBits bits, and whose radius is what was lost; Inf, NaN and the sign of a zero are what IEEE 754
// makes of them in rounding to nearest.
#pragma once

#include <memory>

#include "ulpscope/emulation/format.h"
#include "ulpscope/emulation/reference.h"

namespace ulpscope {

struct Ball;

class Real {
 public:
  static constexpr int kBits = 160;

  Real() : Real(0.0) {}
  explicit Real(double value);
  explicit Real(Ball ball);

  bool is_finite() const { return ball_ != nullptr; }
  bool is_nan() const { return special_ != special_; }
  // Whether the number is known without an error.
  bool is_exact() const;
  bool is_zero() const;
  // A number below zero, -0 or -Inf.
  bool is_negative() const;
  // Whether it is exact, finite, and a number of the format as it is.
  bool is_in(const FloatFormat& format) const;

  const Ball& ball() const { return *ball_; }  // of finite numbers
  double value() const;                        // the middle in FP64, to within 2^-52 of it
  double radius() const;                       // at least that of the ball; 0 where there is none

  Real operator-() const;

 private:
  std::shared_ptr<const Ball> ball_;
  double special_ = 0;  // Inf or NaN where there is no ball, else the sign of an exact zero

  static Real zero(bool negative);
  friend Real operator+(const Real& a, const Real& b);
  friend Real operator*(const Real& a, const Real& b);
  friend Real operator/(const Real& a, const Real& b);
};

Real operator+(const Real& a, const Real& b);
Real operator-(const Real& a, const Real& b);
Real operator*(const Real& a, const Real& b);
Real operator/(const Real& a, const Real& b);
// NaN of a number that may lie on either side of zero.
Real square_root(const Real& x);
Real magnitude(const Real& x);
// -1, 0 or 1 by the middles; 0 where there is a NaN.
int compare(const Real& a, const Real& b);
Real evaluate(ElementaryFunction function, const Real& x);
// x^y as C's pow has it.
Real power(const Real& x, const Real& y);

}  // namespace ulpscope
