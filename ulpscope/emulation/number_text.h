// Numbers as people write them, and as they are: exact texts of values, and texts read without a rounding of their own.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "ulpscope/emulation/format.h"
#include "ulpscope/emulation/number.h"

namespace ulpscope {

// A decimal number ("0.1", "-6e-8"), a hexadecimal one as C writes it ("0x1.8p-3"), "inf" or "nan", with a sign or none. What has
// more than 64 bits is cut off after them and marked sticky, so that a rounding to any format is the only one. Throws a usage Error
// where the text is none of these.
Number parse_number(std::string_view text);

// The value of a finite number of FP64's range, exactly: all of its decimal digits, as "0.0999755859375" or, with an exponent,
// where that is shorter; "inf" and "nan" otherwise.
std::string exact_decimal(const Number& number);

// "0x1.8p-3", exactly.
std::string hexadecimal(const Number& number);

// Of an encoding, and "0x3C00": as many digits as the format's encodings need.
constexpr int hexadecimal_digits(const FloatFormat& format) { return (format.storage_bits() + 3) / 4; }
std::string hexadecimal_encoding(const FloatFormat& format, uint64_t encoding);

}  // namespace ulpscope
