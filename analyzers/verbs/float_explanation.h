// What formats make of a number, and what formats are, as reports.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "ulpscope/analyzers/report/report.h"
#include "ulpscope/emulation/format.h"
#include "ulpscope/emulation/number.h"

namespace ulpscope {

struct FloatQuestion {
  std::vector<const FloatFormat*> formats;  // none: those that `text` suggests
  Rounding rounding;
  uint64_t seed = 0;  // of stochastic rounding
};

// Of one value in one format all that there is to say, as facts; else a table a value. A value is a number, which is rounded to
// each format, or an encoding such as 0x3C00 (hexadecimal without a power), which is read in each; by itself it means the formats
// whose encodings have so many hexadecimal digits. Throws a usage Error where a value is neither, or an encoding has more bits than
// a format.
Report explain_floats(std::span<const std::string> values, const FloatQuestion& question);

// The encoding read in that format, and in the others what they make of its value: the table of explain_floats in the formats of
// the question. Throws a usage Error where `encoding` is none, or has more bits than the format.
Report explain_encoding(const FloatFormat& format, const std::string& encoding, const FloatQuestion& question);
// A number or an encoding in every format; an encoding of one format as "fp16:0x3C00". Throws as the two above do.
Report explain_number(const std::string& text);
// The encoding of the next number towards Inf (`up`) or -Inf, or "": there is none, or `encoding` is no number's.
std::string next_encoding(const FloatFormat& format, const std::string& encoding, bool up);

// The limits of formats, one a row.
Report describe_formats(std::span<const FloatFormat* const> formats);

}  // namespace ulpscope
