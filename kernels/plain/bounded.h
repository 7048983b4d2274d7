// A lane type (lanes.h) that is computed without rounding and knows how far a computed value may be from that: the formulas of ops,
// run with it, give their own error bounds. It is a running error analysis (N. J. Higham, "Accuracy and Stability of Numerical
// Algorithms", 2002, section 3.3): an operation adds its own rounding to what it hands on of its operands' errors, so that a
// difference of near values keeps their errors while it shrinks. Bounds are worst cases over all roundings to nearest.
#pragma once

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "ulpscope/emulation/error_measures.h"
#include "ulpscope/emulation/real.h"
#include "ulpscope/kernels/lanes.h"

namespace ulpscope::plain {

// An arithmetic that values are computed in: kUnit bounds the relative error of an operation, kFunction that of an elementary
// function (docs/numerics.md), with kTiny where its result vanishes. Beyond kLargest nothing is known.
struct InFloat {
  using Machine = float;
  static constexpr const FloatFormat& kFormat = binary32;
  static constexpr double kUnit = 0x1p-24, kLargest = FLT_MAX;
  static constexpr double kFunction = 0, kTiny = 0;  // there are none: functions take wide values
};
// FP32 values that are computed on in FP64 (functions.h), where e^x ends at e^700.
struct InWide {
  using Machine = double;
  static constexpr const FloatFormat& kFormat = binary64;
  static constexpr double kUnit = 0x1p-53, kTiny = 0x1p-1000, kLargest = 0x1p1009, kFunction = 0x1p-32;
};
struct InDouble {
  using Machine = double;
  static constexpr const FloatFormat& kFormat = binary64;
  static constexpr double kUnit = 0x1p-53, kTiny = 0x1p-1074, kLargest = DBL_MAX, kFunction = 0x1p-49;
};

// How a comparison turns out, and whether it would by all values within the bounds. A definition that branches by one does not see
// `certain`: its branches have to meet where the comparison turns, as those of a maximum do.
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

inline constexpr double kUnknownBound = HUGE_VAL;
// Bounds are themselves formed in FP64, by a few operations a step.
inline constexpr double kBoundSlack = 1 + 0x1p-40;

// The product of two bounds, of which one may be infinite and the other 0.
inline double bounds_product(double a, double b) { return a == 0 || b == 0 ? 0 : a * b; }
// No computed value that lies so near an exact one is larger.
inline double reach_of(const Real& exact, double error) {
  return (std::fabs(exact.value()) + exact.radius() + error) * kBoundSlack;
}

template <class A>
class Bounded {
 public:
  Bounded() = default;
  // A number, and what the arithmetic makes of one that it does not have.
  template <class T>
  requires std::is_arithmetic_v<T>
  explicit(!std::is_same_v<T, int>) Bounded(T number) : exact_(static_cast<double>(number)) {
    const auto wide = static_cast<double>(number);
    if (std::isfinite(wide)) error_ = std::fabs(static_cast<double>(static_cast<typename A::Machine>(number)) - wide);
  }
  // `held`: a format that the computed value is known to be a number of, narrower than the arithmetic's; nullptr: none.
  Bounded(Real exact, double error, const FloatFormat* held = nullptr) : exact_(std::move(exact)), error_(error), held_(held) {}
  // The value in another arithmetic, rounded where that is narrower.
  template <class B>
  explicit Bounded(const Bounded<B>& other) : exact_(other.exact()), error_(other.error()) {
    if constexpr (A::kUnit > B::kUnit) *this = rounded(exact_, error_);
  }

  const Real& exact() const { return exact_; }
  // At least |computed - exact|; kUnknownBound where nothing is known, as where a value on the way may overflow.
  double error() const { return error_; }
  const FloatFormat* held() const { return held_; }
  bool is_known() const { return error_ < kUnknownBound; }
  explicit operator float() const { return static_cast<float>(exact_.value()); }

  friend Bounded operator-(const Bounded& a) { return {-a.exact_, a.error_, a.held_}; }
  friend Bounded operator+(const Bounded& a, const Bounded& b) {
    if (a.is_certainly(0) && !b.exact_.is_zero()) return b;
    if (b.is_certainly(0) && !a.exact_.is_zero()) return a;
    return rounded(a.exact_ + b.exact_, a.error_ + b.error_);
  }
  friend Bounded operator-(const Bounded& a, const Bounded& b) { return a + -b; }
  friend Bounded operator*(const Bounded& a, const Bounded& b) {
    if (a.is_certainly(1)) return b;
    if (b.is_certainly(1)) return a;
    return rounded(a.exact_ * b.exact_, product_error(a, b));
  }
  friend Bounded operator/(const Bounded& a, const Bounded& b) {
    if (b.is_certainly(1)) return a;
    const Real quotient = a.exact_ / b.exact_;
    if (a.error_ == 0 && b.error_ == 0) return rounded(quotient, 0);
    const double room = b.least_size();
    if (!(room > 0)) return {quotient, kUnknownBound};
    if (!b.exact_.is_finite()) return {quotient, a.is_known() ? 0 : kUnknownBound};
    return rounded(quotient, (a.error_ + bounds_product(reach_of(quotient, 0), b.error_)) / room);
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
    const double distance = apart.is_finite() ? reach_of(apart, 0) : kUnknownBound;
    return {chosen.exact_, std::max(chosen.error_, distance + other.error_)};
  }
  friend Bounded magnitude(const Bounded& a) { return {magnitude(a.exact_), a.error_, a.held_}; }
  // |sqrt(x) - sqrt(v)| <= e / (sqrt(v) + sqrt(v - e)).
  friend Bounded square_root(const Bounded& a) {
    const Real root = square_root(a.exact_);
    if (a.error_ == 0) return rounded(root, a.exact_.is_exact() || root.is_finite() ? 0 : kUnknownBound);
    const double least = a.exact_.value() - a.exact_.radius() - a.error_;
    if (!a.exact_.is_finite() || !(least >= 0)) return {root, kUnknownBound};
    return rounded(root, a.error_ / (root.value() + std::sqrt(least)));
  }
  // a b + c in one rounding.
  friend Bounded fused(const Bounded& a, const Bounded& b, const Bounded& c) {
    return rounded(a.exact_ * b.exact_ + c.exact_, product_error(a, b) + c.error_);
  }
  // A value that is stored in a narrower format and read again.
  friend Bounded round_through(const FloatFormat& format, const Bounded& a) {
    if (!a.is_known() || !a.exact_.is_finite() || (a.error_ == 0 && a.exact_.is_in(format))) return {a.exact_, a.error_, &format};
    const double reach = reach_of(a.exact_, a.error_);
    if (reach >= format.overflow_threshold()) return {a.exact_, kUnknownBound};
    return {a.exact_, (a.error_ + ulp(format, reach) / 2) * kBoundSlack, &format};
  }

  // Elementary functions, with what the operand's error makes of the result.
  friend Bounded exp(const Bounded& x) {
    const Real value = evaluate(ElementaryFunction::exp, x.exact_);
    return x.function(value, bounds_product(reach_of(value, 0), std::expm1(x.error_)));
  }
  friend Bounded log(const Bounded& x) { return x.logarithm(ElementaryFunction::log, 0); }
  friend Bounded log1p_of_share(const Bounded& x) { return x.logarithm(ElementaryFunction::log1p, 1); }
  friend Bounded log_of_complement(const Bounded& x) {
    return Bounded(Real(1.0) - x.exact_, x.error_).logarithm(ElementaryFunction::log, 0);
  }
  friend Bounded tanh(const Bounded& x) { return x.function(evaluate(ElementaryFunction::tanh, x.exact_), x.error_); }
  friend Bounded softplus(const Bounded& x) { return x.function(evaluate(ElementaryFunction::softplus, x.exact_), x.error_); }
  friend Bounded erfc(const Bounded& x) {
    const double nearest = std::max(0.0, x.least_size()), slope = 2 / std::sqrt(M_PI) * std::exp(-nearest * nearest);
    return x.function(evaluate(ElementaryFunction::erfc, x.exact_), bounds_product(slope, x.error_));
  }
  // d(a^b) = a^b (b da / a + log(a) db).
  friend Bounded pow(const Bounded& a, const Bounded& b) {
    const Real value = power(a.exact_, b.exact_);
    if (a.error_ == 0 && b.error_ == 0) return a.function(value, 0);
    const double room = a.least_size();
    if (!(room > 0) || !value.is_finite()) return {value, kUnknownBound};
    const double relative = bounds_product(reach_of(b.exact_, b.error_), a.error_ / room) +
                            bounds_product(std::fabs(std::log(room)) + a.error_ / room, b.error_);
    return a.function(value, bounds_product(reach_of(value, 0), std::expm1(relative * kBoundSlack)));
  }

 private:
  // An operation's result from what it would be of the exact operands, and the error that theirs make of it.
  static Bounded rounded(const Real& exact, double error) {
    if (!(error < kUnknownBound)) return {exact, kUnknownBound};
    if (!exact.is_finite() || (error == 0 && exact.is_in(A::kFormat))) return {exact, error};
    const double reach = reach_of(exact, error);
    if (reach * (1 + A::kUnit) > A::kLargest) return {exact, kUnknownBound};
    return {exact, (error + ulp(A::kFormat, reach) / 2) * kBoundSlack};
  }

  // No computed value is nearer to zero; below 0 where it may be of the other sign.
  double least_size() const { return std::fabs(exact_.value()) / kBoundSlack - exact_.radius() - error_; }
  bool is_certainly(int number) const { return error_ == 0 && exact_.is_exact() && exact_.value() == number; }
  static double product_error(const Bounded& a, const Bounded& b) {
    if (!a.is_known() || !b.is_known()) return kUnknownBound;
    // Inf times what may have become 0 is NaN.
    const auto may_vanish = [](const Bounded& x) { return x.exact_.is_finite() && x.error_ > 0 && !(x.least_size() > 0); };
    if ((!a.exact_.is_finite() && may_vanish(b)) || (!b.exact_.is_finite() && may_vanish(a))) return kUnknownBound;
    if (!a.exact_.is_finite() || !b.exact_.is_finite()) return 0;
    return bounds_product(reach_of(a.exact_, 0), b.error_) + bounds_product(reach_of(b.exact_, 0), a.error_) + a.error_ * b.error_;
  }
  template <class Holds>
  static Truth compared(const Bounded& a, const Bounded& b, Holds holds) {
    if (a.exact_.is_nan() || b.exact_.is_nan()) return {false, a.is_known() && b.is_known()};
    const int order = compare(a.exact_, b.exact_);
    const double error = a.error_ + b.error_;
    if (error == 0 && a.exact_.is_exact() && b.exact_.is_exact()) return {holds(order), true};
    const double uncertain = (error + a.exact_.radius() + b.exact_.radius()) * kBoundSlack;
    return {holds(order), std::fabs((a.exact_ - b.exact_).value()) > uncertain};
  }
  Bounded function(const Real& value, double carried) const {
    static_assert(A::kFunction > 0, "functions are computed on wide values");
    if (!is_known() || !(carried < kUnknownBound)) return {value, kUnknownBound};
    if (!value.is_finite()) return {value, error_ == 0 ? 0 : kUnknownBound};
    const double reach = reach_of(value, carried);
    if (reach > A::kLargest) return {value, kUnknownBound};
    return {value, (carried + A::kFunction * reach + A::kTiny) * kBoundSlack};
  }
  // log(x) or log(1 + x), whose slope is the inverse of what the logarithm is taken of.
  Bounded logarithm(ElementaryFunction name, double added) const {
    const Real value = evaluate(name, exact_);
    if (error_ == 0) return function(value, 0);
    const double room = (exact_.value() + added) / kBoundSlack - exact_.radius() - error_;
    return room > 0 ? function(value, error_ / room) : Bounded(value, kUnknownBound);
  }

  Real exact_;
  double error_ = 0;
  const FloatFormat* held_ = nullptr;
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
