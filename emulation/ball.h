// Real numbers as balls: a middle and a radius, which every operation widens by the error that it adds, so that the true result of
// any chain of operations lies inside. The middles are integers of Boost.Multiprecision, so this header is for reference.cpp and
// real.cpp.
#pragma once

#include <boost/multiprecision/cpp_int.hpp>
#include <optional>

#include "ulpscope/emulation/number.h"

namespace ulpscope {

// The real number lies in the open interval ((middle - radius) 2^exponent, (middle + radius) 2^exponent), or, with a radius of 0,
// is the middle.
struct Ball {
  using Integer = boost::multiprecision::cpp_int;

  Integer middle = 0;
  Integer radius = 0;
  int exponent = 0;
  int bits = 64;  // that results of operations keep of their middles

  static Ball of(const Number& finite, int bits);
  static Ball of(int value, int bits);

  bool is_exact() const { return radius == 0; }
  // Whether numbers of both signs, or zero, may be inside.
  bool is_around_zero() const { return abs(middle) < radius || middle == 0; }
  // An exponent e with |x| < 2^e for all x inside.
  int bound_exponent() const;

  Ball operator-() const;
  Ball scaled(int power_of_two) const;     // times 2^power_of_two, exactly
  Ball widened(int error_exponent) const;  // by an error of less than 2^error_exponent
  Ball with_bits(int other_bits) const;    // operations with it keep so many
  Integer nearest_integer() const;         // to the middle, or one next to it
};

// Results keep the larger number of bits of their operands'. A divisor is not around zero.
Ball operator+(const Ball& a, const Ball& b);
Ball operator-(const Ball& a, const Ball& b);
Ball operator*(const Ball& a, const Ball& b);
Ball operator/(const Ball& a, const Ball& b);
Ball operator/(const Ball& a, int divisor);
Ball square_root(const Ball& square);  // not around zero, nor below it

// The encoding that all numbers inside have after rounding; nothing: they have different ones.
std::optional<uint64_t> encode(const FloatFormat& format, const Ball& ball, const Rounding& rounding, uint32_t random);

}  // namespace ulpscope
