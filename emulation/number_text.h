// Numbers as people write them, and as they are: exact texts of values, and texts read without a rounding of their own.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "ulpscope/emulation/format.h"
#include "ulpscope/emulation/number.h"

namespace ulpscope {

// A decimal number ("0.1", "-6e-8"), a hexadecimal one as C writes it ("0x1.8p-3"), "inf" or "nan", with a sign or none. What has
// more than 64 bits is cut off after them and marked sticky, so that a rounding to any format is the only one. Throws a usage Error
// where the text is none of these.
Number parse_number(std::string_view text);

// The error of taking an encoding of `format` for the number that a text says, which parse_number would read: (value - number),
// computed exactly from all of the text's digits, and rounded to FP64 once, to nearest even.
struct RoundingError {
  std::optional<double> ulps;      // of the format, at the encoding's value
  std::optional<double> relative;  // over the number; nothing for zero
};
// Nothing where the number or the value is NaN or Inf, and nothing for an error that is not zero but would be zero or Inf in FP64.
// Powers of ten beyond 5000 and of two beyond 20000 are taken for these, which are as far beyond all formats.
RoundingError rounding_error(std::string_view text, const FloatFormat& format, uint64_t encoding);

// The value of a finite number, exactly: all of its decimal digits, as "0.0999755859375" or, with an exponent, where that is
// shorter; "inf" and "nan" otherwise. Of a sticky one the bits that there are.
std::string exact_decimal(const Number& number);
// The same where it is short enough for a column (24 characters), else its first significant digits and "...", as in
// "1.17549435082...e-38": 12, or as many as tell neighbours in `format` apart, 2 + floor(p log10 2) for a significand of p bits
// (C's FLT_DECIMAL_DIG).
std::string leading_digits(const Number& number, const FloatFormat& format);
// The value exactly as a product with a power of two, as short as possible: "2^-24", "(2 - 2^-7) * 2^127", "-5 * 2^-3";
// exact_decimal for what is no finite number.
std::string power_of_two_text(const Number& number);

// "0x1.8p-3", exactly.
std::string hexadecimal(const Number& number);

// Of an encoding, and "0x3C00": as many digits as the format's encodings need.
constexpr int hexadecimal_digits(const FloatFormat& format) { return (format.storage_bits() + 3) / 4; }
std::string hexadecimal_encoding(const FloatFormat& format, uint64_t encoding);

}  // namespace ulpscope
