#include "ulpscope/emulation/number_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <system_error>

#include "ulpscope/base/error.h"
#include "ulpscope/base/text.h"
#include "ulpscope/emulation/rounding.h"

namespace ulpscope {

namespace {

// Digits without zeros at either end, and the power of ten of the first: 0.d1 d2 d3 ... * 10^exponent.
struct Decimal {
  std::string digits;
  int64_t exponent = 0;
};

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
    std::string_view power = text.substr(i + 1);
    if (power.starts_with('+')) power.remove_prefix(1);
    const auto [end, error] = std::from_chars(power.data(), power.data() + power.size(), decimal.exponent);
    if (power.empty() || end != power.data() + power.size()) return {};
    // A power that not even 64 bits hold is beyond every format, as is a million.
    constexpr int64_t kBeyond = 1000000;
    if (error != std::errc()) decimal.exponent = power[0] == '-' ? -kBeyond : kBeyond;
    decimal.exponent = std::clamp(decimal.exponent, -kBeyond, kBeyond);
  }
  decimal.exponent += before_point;
  while (decimal.digits.ends_with('0')) decimal.digits.pop_back();
  return decimal;
}

// All digits of a positive number of at most 64 bits and at least 1e-400: printf has them exactly.
Decimal decimal_of(long double value) {
  std::array<char, 1600> text;
  std::snprintf(text.data(), text.size(), "%.1500Le", value);
  return *read_decimal(text.data());
}

// -1, 0 or 1 as a is below, equal to or above b.
int compare(const Decimal& a, const Decimal& b) {
  if (a.exponent != b.exponent) return a.exponent < b.exponent ? -1 : 1;
  return std::clamp(a.digits.compare(b.digits), -1, 1);
}

Number number_of(const Decimal& decimal) {
  if (decimal.digits.empty()) return {};
  constexpr int64_t kLeast = -400, kMost = 400;  // powers of ten beyond FP64's range on either side
  if (decimal.exponent < kLeast || decimal.exponent > kMost)
    return {Number::Kind::finite, false, true, decimal.exponent < 0 ? -2000 : 2000, 1};
  const std::string text = "0." + decimal.digits + "e" + std::to_string(decimal.exponent);
  int exponent = 0;
  const long double fraction = std::frexp(std::strtold(text.c_str(), nullptr), &exponent);
  Number number{Number::Kind::finite, false, false, exponent - 64, static_cast<uint64_t>(std::ldexp(fraction, 64))};
  // The 64 leading bits, or one more in the last place, as the C library rounds.
  const int side = compare(decimal, decimal_of(std::ldexp(static_cast<long double>(number.significand), number.exponent)));
  number.sticky = side != 0;
  if (side < 0) --number.significand;
  return number;
}

// The digits after "0x".
std::optional<Number> read_hexadecimal(std::string_view text) {
  Number number{Number::Kind::finite, false, false, 0, 0};
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
    const auto digit = static_cast<uint64_t>(c <= '9' ? c - '0' : std::tolower(c) - 'a' + 10);
    if (number.significand >> 58 == 0) {
      number.significand = number.significand << 4 | digit;
      number.exponent -= point ? 4 : 0;
    } else {
      number.sticky = number.sticky || digit != 0;
      number.exponent += point ? 0 : 4;
    }
  }
  if (!any || i == text.size() || (text[i] != 'p' && text[i] != 'P')) return {};
  std::string_view power = text.substr(i + 1);
  if (power.starts_with('+')) power.remove_prefix(1);
  int exponent = 0;
  const auto [end, error] = std::from_chars(power.data(), power.data() + power.size(), exponent);
  if (power.empty() || end != power.data() + power.size()) return {};
  if (error != std::errc()) exponent = power[0] == '-' ? -1000000 : 1000000;
  number.exponent += std::clamp(exponent, -1000000, 1000000);
  if (number.significand == 0) return Number{};
  return number;
}

double finite_value(const Number& number) { return value_of(binary64, encode(binary64, number)); }

}  // namespace

Number parse_number(std::string_view text) {
  std::string_view rest = text;
  const bool negative = rest.starts_with('-');
  if (negative || rest.starts_with('+')) rest.remove_prefix(1);
  std::string lower;
  for (const char c : rest) lower += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  std::optional<Number> number;
  if (lower == "inf" || lower == "infinity") {
    number = Number{Number::Kind::infinite};
  } else if (lower == "nan") {
    number = Number{Number::Kind::nan, false, false, 0, uint64_t{1} << 63};
  } else if (lower.starts_with("0x")) {
    number = read_hexadecimal(std::string_view(lower).substr(2));
  } else if (const auto decimal = read_decimal(lower)) {
    number = number_of(*decimal);
  }
  if (!number)
    throw usage_error("'{}' is no number: expected one such as 0.1, -6e-8, 0x1.8p-3, inf or nan, or an encoding such as 0x3C00",
                      one_line(text));
  number->negative = negative;
  return *number;
}

std::string exact_decimal(const Number& number) {
  const std::string sign = number.negative ? "-" : "";
  if (number.kind == Number::Kind::nan) return "nan";
  if (number.kind == Number::Kind::infinite) return sign + "inf";
  if (number.kind == Number::Kind::zero) return sign + "0";
  const auto [digits, exponent] = decimal_of(static_cast<long double>(std::fabs(finite_value(number))));
  const auto count = static_cast<int64_t>(digits.size());
  if (exponent > 0 && exponent <= 21) {
    if (count <= exponent) return sign + digits + std::string(static_cast<size_t>(exponent - count), '0');
    return sign + digits.substr(0, static_cast<size_t>(exponent)) + "." + digits.substr(static_cast<size_t>(exponent));
  }
  if (exponent <= 0 && exponent > -5) return sign + "0." + std::string(static_cast<size_t>(-exponent), '0') + digits;
  return fmt::format("{}{}{}{}e{:+03d}", sign, digits[0], count > 1 ? "." : "", digits.substr(1), exponent - 1);
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
