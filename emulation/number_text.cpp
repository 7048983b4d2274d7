#include "ulpscope/emulation/number_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <boost/multiprecision/cpp_int.hpp>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <system_error>

#include "ulpscope/base/error.h"
#include "ulpscope/base/text.h"
#include "ulpscope/emulation/error_measures.h"
#include "ulpscope/emulation/rounding.h"

namespace ulpscope {

namespace {

using Integer = boost::multiprecision::cpp_int;

struct Fraction {
  Integer numerator = 0, denominator = 1;  // which is above zero
};

Fraction operator-(const Fraction& a, const Fraction& b) {
  return {a.numerator * b.denominator - b.numerator * a.denominator, a.denominator * b.denominator};
}

Fraction power(unsigned base, int64_t exponent) {
  const Integer result = boost::multiprecision::pow(Integer(base), static_cast<unsigned>(std::abs(exponent)));
  return exponent < 0 ? Fraction{1, result} : Fraction{result, 1};
}

Fraction operator*(const Fraction& a, const Fraction& b) { return {a.numerator * b.numerator, a.denominator * b.denominator}; }

Fraction operator/(const Fraction& a, const Fraction& b) {
  const int sign = b.numerator.sign();
  return {sign * a.numerator * b.denominator, sign * a.denominator * b.numerator};
}

// The 64 leading bits, and whether others follow.
Number number_of(const Fraction& fraction) {
  if (fraction.numerator == 0) return {};
  const Integer magnitude = abs(fraction.numerator);
  // Of the quotient, 64 or 65 bits.
  const int shift = 64 - static_cast<int>(msb(magnitude)) + static_cast<int>(msb(fraction.denominator));
  const Integer dividend = shift > 0 ? Integer(magnitude << shift) : magnitude;
  const Integer divisor = shift < 0 ? Integer(fraction.denominator << -shift) : fraction.denominator;
  Integer quotient, remainder;
  divide_qr(dividend, divisor, quotient, remainder);
  const int excess = static_cast<int>(msb(quotient)) - 63;
  const Integer leading = quotient >> excess;
  return {Number::Kind::finite, fraction.numerator < 0, remainder != 0 || Integer(leading << excess) != quotient, excess - shift,
          static_cast<uint64_t>(leading)};
}

// Of a finite number.
Fraction fraction_of(const Number& number) {
  if (number.kind == Number::Kind::zero) return {};
  return Fraction{number.negative ? -Integer(number.significand) : Integer(number.significand), 1} * power(2, number.exponent);
}

// In FP64; nothing where it is not zero and would be zero or Inf.
std::optional<double> double_of(const Fraction& fraction) {
  const double value = value_of(binary64, encode(binary64, number_of(fraction)));
  if (!std::isfinite(value) || (value == 0 && fraction.numerator != 0)) return {};
  return value;
}

// What lies beyond these is as far beyond every format, and costs no time.
constexpr int64_t kMostPowerOfTen = 5000, kMostPowerOfTwo = 20000;

// Digits without zeros at either end, and the power of ten of the first: 0.d1 d2 d3 ... * 10^exponent.
struct Decimal {
  std::string digits;
  int64_t exponent = 0;
};

// An exponent with a sign or none. It may be one that not even 64 bits hold: then it is one that is larger than digits before or
// behind the point can bring back.
std::optional<int64_t> read_power(std::string_view text) {
  if (text.starts_with('+')) {
    text.remove_prefix(1);
    if (text.starts_with('-')) return {};
  }
  int64_t power = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), power);
  if (text.empty() || end != text.data() + text.size()) return {};
  constexpr int64_t kMost = int64_t{1} << 40;
  if (error != std::errc()) power = text[0] == '-' ? -kMost : kMost;
  return std::clamp(power, -kMost, kMost);
}

// Of an unsigned decimal number in C's notation.
std::optional<Decimal> read_decimal(std::string_view text) {
  Decimal decimal;
  size_t i = 0;
  int64_t before_point = 0;
  bool any = false, point = false;
  for (; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '.' && !point) {
      point = true;
    } else if (c >= '0' && c <= '9') {
      any = true;
      if (decimal.digits.empty() && c == '0') {
        before_point -= point;
      } else {
        decimal.digits += c;
        before_point += !point;
      }
    } else {
      break;
    }
  }
  if (!any) return {};
  if (i < text.size()) {
    if (text[i] != 'e' && text[i] != 'E') return {};
    const auto power = read_power(text.substr(i + 1));
    if (!power) return {};
    decimal.exponent = *power;
  }
  decimal.exponent += before_point;
  while (decimal.digits.ends_with('0')) decimal.digits.pop_back();
  return decimal;
}

Fraction fraction_of(const Decimal& decimal) {
  if (decimal.digits.empty()) return {};
  const int64_t exponent = std::clamp(decimal.exponent, -kMostPowerOfTen, kMostPowerOfTen);
  return Fraction{Integer(decimal.digits), 1} * power(10, exponent - static_cast<int64_t>(decimal.digits.size()));
}

// The digits after "0x", small letters.
std::optional<Fraction> read_hexadecimal(std::string_view text) {
  std::string digits;
  int64_t exponent = 0;
  size_t i = 0;
  bool any = false, point = false;
  for (; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '.' && !point) {
      point = true;
      continue;
    }
    if (!std::isxdigit(static_cast<unsigned char>(c))) break;
    any = true;
    if (!digits.empty() || c != '0') digits += c;
    exponent -= point ? 4 : 0;
  }
  if (!any || i == text.size() || text[i] != 'p') return {};
  const auto given = read_power(text.substr(i + 1));
  if (!given) return {};
  exponent += *given;
  if (digits.empty()) return Fraction{};
  const auto bits = static_cast<int64_t>(4 * digits.size());
  return Fraction{Integer("0x" + digits), 1} * power(2, std::clamp(exponent + bits, -kMostPowerOfTwo, kMostPowerOfTwo) - bits);
}

// What a text says, all of it.
struct ReadNumber {
  Number::Kind kind = Number::Kind::finite;
  bool negative = false;
  Fraction magnitude = {};
};

ReadNumber read_number(std::string_view text) {
  ReadNumber read;
  std::string_view rest = text;
  read.negative = rest.starts_with('-');
  if (read.negative || rest.starts_with('+')) rest.remove_prefix(1);
  const std::string lower = lower_case(rest);
  std::optional<Fraction> magnitude;
  if (lower == "inf" || lower == "infinity") {
    read.kind = Number::Kind::infinite;
  } else if (lower == "nan") {
    read.kind = Number::Kind::nan;
  } else if (lower.starts_with("0x")) {
    magnitude = read_hexadecimal(std::string_view(lower).substr(2));
  } else if (const auto decimal = read_decimal(lower)) {
    magnitude = fraction_of(*decimal);
  }
  if (read.kind != Number::Kind::finite) return read;
  if (!magnitude) throw usage_error("'{}' is no number: expected one such as 0.1, -6e-8, 0x1.8p-3, inf or nan", one_line(text));
  if (magnitude->numerator == 0) read.kind = Number::Kind::zero;
  read.magnitude = std::move(*magnitude);
  return read;
}

double finite_value(const Number& number) { return value_of(binary64, encode(binary64, number)); }

}  // namespace

Number parse_number(std::string_view text) {
  const ReadNumber read = read_number(text);
  Number number{read.kind};
  if (read.kind == Number::Kind::nan) number.significand = uint64_t{1} << 63;
  if (read.kind == Number::Kind::finite) number = number_of(read.magnitude);
  number.negative = read.negative;
  return number;
}

RoundingError rounding_error(std::string_view text, const FloatFormat& format, uint64_t encoding) {
  const ReadNumber read = read_number(text);
  const Number rounded = decode(format, encoding);
  const auto is_real = [](Number::Kind kind) { return kind == Number::Kind::zero || kind == Number::Kind::finite; };
  if (!is_real(read.kind) || !is_real(rounded.kind)) return {};
  Fraction number = read.magnitude;
  if (read.negative) number.numerator = -number.numerator;
  const Fraction error = fraction_of(rounded) - number;
  RoundingError result;
  result.ulps = double_of(error * power(2, -std::ilogb(ulp(format, value_of(format, encoding)))));
  if (number.numerator != 0) result.relative = double_of(error / number);
  return result;
}

std::string exact_decimal(const Number& number) {
  const std::string sign = number.negative ? "-" : "";
  if (number.kind == Number::Kind::nan) return "nan";
  if (number.kind == Number::Kind::infinite) return sign + "inf";
  if (number.kind == Number::Kind::zero) return sign + "0";
  // s * 2^-e = s * 5^e * 10^-e.
  std::string digits = (number.exponent >= 0 ? Integer(Integer(number.significand) << number.exponent)
                                             : Integer(number.significand * power(5, -number.exponent).numerator))
                           .str();
  const int64_t exponent = static_cast<int64_t>(digits.size()) + std::min(number.exponent, 0);
  digits.erase(digits.find_last_not_of('0') + 1);
  const auto count = static_cast<int64_t>(digits.size());
  if (exponent > 0 && exponent <= 21) {
    if (count <= exponent) return sign + digits + std::string(static_cast<size_t>(exponent - count), '0');
    return sign + digits.substr(0, static_cast<size_t>(exponent)) + "." + digits.substr(static_cast<size_t>(exponent));
  }
  if (exponent <= 0 && exponent > -5) return sign + "0." + std::string(static_cast<size_t>(-exponent), '0') + digits;
  return fmt::format("{}{}{}{}e{:+03d}", sign, digits[0], count > 1 ? "." : "", digits.substr(1), exponent - 1);
}

std::string leading_digits(const Number& number, const FloatFormat& format) {
  constexpr size_t kColumn = 24;
  constexpr int kLeast = 12;
  const int digits = std::max(kLeast, 2 + static_cast<int>((format.fraction_bits + 1) * std::log10(2.0)));
  std::string text = exact_decimal(number);
  if (text.size() <= kColumn) return text;
  // Texts as long as this have a point: integers end before.
  const size_t power = std::min(text.find('e'), text.size());
  size_t end = text.find_first_of("123456789");
  for (int seen = 0; end < power; ++end) {
    if (text[end] == '.') continue;
    if (seen++ == digits) break;
  }
  return end == power ? text : text.substr(0, end) + "..." + text.substr(power);
}

std::string power_of_two_text(const Number& number) {
  if (number.kind != Number::Kind::finite) return exact_decimal(number);
  const int zeros = std::countr_zero(number.significand);
  const uint64_t odd = number.significand >> zeros;
  const int exponent = number.exponent + zeros;
  const char* sign = number.negative ? "-" : "";
  if (odd == 1) return fmt::format("{}2^{}", sign, exponent);
  const int bits = 64 - std::countl_zero(odd);
  if (std::countr_one(odd) == bits) return fmt::format("{}(2 - 2^{}) * 2^{}", sign, 1 - bits, exponent + bits - 1);
  return fmt::format("{}{} * 2^{}", sign, odd, exponent);
}

std::string hexadecimal(const Number& number) {
  if (number.kind != Number::Kind::finite) return exact_decimal(number);
  std::array<char, 40> text;
  std::snprintf(text.data(), text.size(), "%a", finite_value(number));
  return text.data();
}

std::string hexadecimal_encoding(const FloatFormat& format, uint64_t encoding) {
  return fmt::format("0x{:0{}X}", encoding, hexadecimal_digits(format));
}

}  // namespace ulpscope
