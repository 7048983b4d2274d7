// A lane type (lanes.h) that is computed without rounding and knows how far a computed value may be from that: the formulas of ops,
// run with it, give their own error bounds. It is a running error analysis (N. J. Higham, "Accuracy and Stability of Numerical
// Algorithms", section 3.3): an operation adds its own rounding to what it hands on of its operands' errors, so that a difference
// of near values keeps their errors while it shrinks. Bounds are worst cases over all roundings that the arithmetic allows.
#pragma once

#include <algorithm>
#include <array>
#include <cfloat>
#include <cmath>
#include <limits>
#include <type_traits>

#include "ulpscope/emulation/error_measures.h"
#include "ulpscope/emulation/real.h"
#include "ulpscope/kernels/lanes.h"

namespace ulpscope::plain {

// What values are computed in: `unit` bounds the relative error of an operation, `tiny` the one below the normal numbers,
// `function` that of an elementary function (docs/numerics.md).
struct InFloat {
  using Machine = float;
  static constexpr const FloatFormat& kFormat = binary32;
  static constexpr double kUnit = 0x1p-24, kTiny = 0x1p-150, kLargest = FLT_MAX, kFunction = 0;  // functions are of wide values
};
// FP32 values that are computed on in FP64 (functions.h).
struct InWide {
  using Machine = double;
  static constexpr const FloatFormat& kFormat = binary64;
  static constexpr double kUnit = 0x1p-53, kTiny = 0x1p-1000, kLargest = DBL_MAX, kFunction = 0x1p-32;
};
struct InDouble {
  using Machine = double;
  static constexpr const FloatFormat& kFormat = binary64;
  static constexpr double kUnit = 0x1p-53, kTiny = 0x1p-1074, kLargest = DBL_MAX, kFunction = 0x1p-49;
};

// How a comparison turns out, and whether it would by all values within the bounds.
struct Truth {
  bool value, certain;
  operator bool() const { return value; }
  friend Truth operator&(Truth a, Truth b) {
    const bool decided = (a.certain && !a.value) || (b.certain && !b.value);
    return {a.value && b.value, (a.certain && b.certain) || decided};
  }
  friend Truth operator|(Truth a, Truth b) {
    const bool decided = (a.certain && a.value) || (b.certain && b.value);
    return {a.value || b.value, (a.certain && b.certain) || decided};
  }
};

// The product of two bounds, of which one may be infinite and the other 0.
inline double bounds_product(double a, double b) { return a == 0 || b == 0 ? 0 : a * b; }

template <class A>
class Bounded {
 public:
  static constexpr double kUnknown = HUGE_VAL;

  Bounded() = default;
  // A number of the machine, or what it makes of one.
  template <class T>
  requires std::is_arithmetic_v<T>
  explicit(!std::is_same_v<T, int>) Bounded(T number) : exact_(static_cast<double>(number)) {
    error_ = std::isfinite(static_cast<double>(number))
                 ? std::fabs(static_cast<double>(static_cast<typename A::Machine>(number)) - static_cast<double>(number))
                 : 0;
  }
  Bounded(Real exact, double error) : exact_(std::move(exact)), error_(error) {}
  // From an arithmetic into another one: rounded where that is narrower.
  template <class B>
  explicit Bounded(const Bounded<B>& other) : exact_(other.exact()), error_(other.error()) {
    if constexpr (A::kUnit > B::kUnit) *this = rounded(exact_, error_, A::kTiny);
  }

  const Real& exact() const { return exact_; }
  // At least |computed - exact|; kUnknown where nothing is known, as where a value on the way may overflow.
  double error() const { return error_; }
  bool is_known() const { return error_ < kUnknown; }
  explicit operator float() const { return static_cast<float>(exact_.value()); }

  // An operation's result from what it would be of the exact operands, and the error that theirs make of it.
  static Bounded rounded(const Real& exact, double error, double tiny) {
    if (!(error < kUnknown)) return {exact, kUnknown};
    if (!exact.is_finite() || (error == 0 && exact.is_in(A::kFormat))) return {exact, error};
    const double reach = std::fabs(exact.value()) + error;
    if (reach * (1 + A::kUnit) > A::kLargest) return {exact, kUnknown};
    return {exact, (error + A::kUnit * reach + tiny) * kSlack};
  }

  friend Bounded operator-(const Bounded& a) { return {-a.exact_, a.error_}; }
  friend Bounded operator+(const Bounded& a, const Bounded& b) {
    if (a.is_certainly(0)) return b;
    if (b.is_certainly(0)) return a;
    return rounded(a.exact_ + b.exact_, a.error_ + b.error_, 0);
  }
  friend Bounded operator-(const Bounded& a, const Bounded& b) { return a + -b; }
  friend Bounded operator*(const Bounded& a, const Bounded& b) {
    if (a.is_certainly(1)) return b;
    if (b.is_certainly(1)) return a;
    return rounded(a.exact_ * b.exact_, product_error(a, b), A::kTiny);
  }
  friend Bounded operator/(const Bounded& a, const Bounded& b) {
    if (b.is_certainly(1)) return a;
    const Real quotient = a.exact_ / b.exact_;
    if (a.error_ == 0 && b.error_ == 0) return rounded(quotient, 0, A::kTiny);
    const double room = b.size() - b.error_;
    if (!(room > 0)) return {quotient, kUnknown};
    if (!b.exact_.is_finite()) return {quotient, a.is_known() ? 0 : kUnknown};
    return rounded(quotient, (a.error_ + bounds_product(std::fabs(quotient.value()), b.error_)) / room, A::kTiny);
  }
  Bounded& operator+=(const Bounded& other) { return *this = *this + other; }

  friend Truth operator>(const Bounded& a, const Bounded& b) {
    return compared(a, b, [](int order) { return order > 0; });
  }
  friend Truth operator<(const Bounded& a, const Bounded& b) {
    return compared(a, b, [](int order) { return order < 0; });
  }
  friend Truth operator>=(const Bounded& a, const Bounded& b) {
    return compared(a, b, [](int order) { return order >= 0; });
  }
  friend Truth operator<=(const Bounded& a, const Bounded& b) {
    return compared(a, b, [](int order) { return order <= 0; });
  }
  friend Truth operator==(const Bounded& a, const Bounded& b) {
    return compared(a, b, [](int order) { return order == 0; });
  }
  friend Truth operator!=(const Bounded& a, const Bounded& b) {
    const Truth equal = a == b;
    return {!equal.value, equal.certain};
  }
  friend Truth is_nan(const Bounded& a) { return {a.exact_.is_nan(), a.is_known()}; }
  // Where the comparison is not certain either may be the computed one.
  friend Bounded select(const Truth& mask, const Bounded& yes, const Bounded& no) {
    const Bounded &chosen = mask.value ? yes : no, &other = mask.value ? no : yes;
    if (mask.certain) return chosen;
    const Real apart = yes.exact_ - no.exact_;
    const double distance = apart.is_finite() ? std::fabs(apart.value()) + apart.radius() : kUnknown;
    return {chosen.exact_, std::max(chosen.error_, distance + other.error_)};
  }
  friend Bounded magnitude(const Bounded& a) { return {magnitude(a.exact_), a.error_}; }
  // |sqrt(x) - sqrt(v)| <= e / (sqrt(v) + sqrt(v - e)).
  friend Bounded square_root(const Bounded& a) {
    const Real root = square_root(a.exact_);
    if (a.error_ == 0 || !a.exact_.is_finite()) return rounded(root, a.error_, 0);
    const double value = a.exact_.value(), least = value - a.error_;
    if (!(least >= 0)) return {root, kUnknown};
    return rounded(root, a.error_ / (root.value() + std::sqrt(least)), 0);
  }
  // a b + c in one rounding.
  friend Bounded fused(const Bounded& a, const Bounded& b, const Bounded& c) {
    return rounded(a.exact_ * b.exact_ + c.exact_, product_error(a, b) + c.error_, A::kTiny);
  }

  // Stored in a narrower format and read again.
  friend Bounded round_through(const FloatFormat& format, const Bounded& a) {
    if (!a.is_known() || !a.exact_.is_finite() || (a.error_ == 0 && a.exact_.is_in(format))) return a;
    const double reach = a.size() + a.error_;
    return {a.exact_, reach < format.overflow_threshold() ? a.error_ + ulp(format, reach) / 2 : kUnknown};
  }

  // Elementary functions; `carried` bounds what the operand's error makes of the result.
  friend Bounded exp(const Bounded& x) {
    const Real value = evaluate(ElementaryFunction::exp, x.exact_);
    return x.function(value, bounds_product(value.value(), std::expm1(x.error_)));
  }
  friend Bounded log(const Bounded& x) { return x.function(ElementaryFunction::log, 1, x.exact_.value()); }
  friend Bounded log1p_of_share(const Bounded& x) { return x.function(ElementaryFunction::log1p, 1, 1 + x.exact_.value()); }
  friend Bounded log_of_complement(const Bounded& x) {
    const Bounded complement(Real(1.0) - x.exact_, x.error_);
    return complement.function(ElementaryFunction::log, 1, complement.exact_.value());
  }
  friend Bounded tanh(const Bounded& x) { return x.function(evaluate(ElementaryFunction::tanh, x.exact_), x.error_); }
  friend Bounded softplus(const Bounded& x) { return x.function(evaluate(ElementaryFunction::softplus, x.exact_), x.error_); }
  friend Bounded erfc(const Bounded& x) {
    const double nearest = std::max(0.0, x.size() - x.error_), slope = 2 / std::sqrt(M_PI) * std::exp(-nearest * nearest);
    return x.function(evaluate(ElementaryFunction::erfc, x.exact_), bounds_product(slope, x.error_));
  }
  // d(a^b) = a^b (b da / a + log(a) db).
  friend Bounded pow(const Bounded& a, const Bounded& b) {
    const Real value = power(a.exact_, b.exact_);
    if (a.error_ == 0 && b.error_ == 0) return a.function(value, 0);
    const double room = a.size() - a.error_;
    if (!(room > 0) || !value.is_finite()) return {value, kUnknown};
    const double relative = bounds_product(b.size() + b.error_, a.error_ / room) +
                            bounds_product(std::fabs(std::log(room)) + a.error_ / room, b.error_);
    return a.function(value, bounds_product(std::fabs(value.value()), std::expm1(relative)));
  }

 private:
  // Bounds are themselves formed in FP64, by a few operations a step.
  static constexpr double kSlack = 1 + 0x1p-40;

  double size() const { return std::fabs(exact_.value()); }
  bool is_certainly(int number) const { return error_ == 0 && exact_.is_exact() && exact_.value() == number; }
  static double product_error(const Bounded& a, const Bounded& b) {
    if (!a.is_known() || !b.is_known()) return kUnknown;
    // Inf times what may have become 0 is NaN.
    if ((!a.exact_.is_finite() && b.error_ > 0 && b.error_ >= b.size()) ||
        (!b.exact_.is_finite() && a.error_ > 0 && a.error_ >= a.size()))
      return kUnknown;
    if (!a.exact_.is_finite() || !b.exact_.is_finite()) return 0;
    return bounds_product(a.size(), b.error_) + bounds_product(b.size(), a.error_) + a.error_ * b.error_;
  }
  template <class Holds>
  static Truth compared(const Bounded& a, const Bounded& b, Holds holds) {
    if (a.exact_.is_nan() || b.exact_.is_nan()) return {false, a.is_known() && b.is_known()};
    const int order = compare(a.exact_, b.exact_);
    const double error = a.error_ + b.error_;
    return {holds(order), error == 0 || std::fabs((a.exact_ - b.exact_).value()) > error};
  }
  Bounded function(const Real& value, double carried) const {
    if (!is_known() || !(carried < kUnknown)) return {value, kUnknown};
    if (!value.is_finite()) return {value, error_ == 0 ? 0 : kUnknown};
    const double size = std::fabs(value.value()) + carried;
    if (size > A::kLargest) return {value, kUnknown};
    return {value, carried + A::kFunction * size + A::kTiny};
  }
  // Of one with a slope of at most numerator / (place - error).
  Bounded function(ElementaryFunction function_, double numerator, double place) const {
    const Real value = evaluate(function_, exact_);
    if (error_ == 0) return function(value, 0);
    const double room = place - error_;
    return room > 0 ? function(value, numerator * error_ / room) : Bounded(value, kUnknown);
  }

  Real exact_;
  double error_ = 0;
};

// The largest of computed values is as far from that of the exact ones as the one farthest off is.
template <class A>
Bounded<A> largest_of(int64_t n, const Bounded<A>* x) {
  Bounded<A> value = x[0];
  double error = value.error();
  for (int64_t i = 1; i < n; ++i) {
    error = std::max(error, x[i].error());
    if ((x[i] > value).value || x[i].exact().is_nan()) value = x[i];
  }
  return {value.exact(), error};
}

}  // namespace ulpscope::plain

namespace ulpscope::lanes {

template <>
struct WideLane<plain::Bounded<plain::InFloat>> {
  using Type = plain::Bounded<plain::InWide>;
};

}  // namespace ulpscope::lanes
