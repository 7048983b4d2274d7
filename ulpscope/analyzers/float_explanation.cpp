#include "ulpscope/analyzers/float_explanation.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <vector>

#include "ulpscope/base/error.h"
#include "ulpscope/base/philox.h"
#include "ulpscope/base/text.h"
#include "ulpscope/emulation/arithmetic.h"
#include "ulpscope/emulation/error_measures.h"
#include "ulpscope/emulation/number_text.h"
#include "ulpscope/emulation/rounding.h"

namespace ulpscope {

namespace {

constexpr const FloatFormat* kUsualFormats[] = {&binary64, &binary32, &tensor_float32, &bfloat16, &binary16,
                                                &e5m2,     &e4m3,     &e3m2,           &e2m3,     &e2m1};

// A value as it was asked for.
struct Asked {
  std::string text;
  std::optional<uint64_t> encoding;  // else a number
  int digits = 0;                    // of the encoding
  Number number;
};

Asked read(const std::string& text) {
  Asked asked{text, {}, 0, {}};
  const std::string_view digits = text.starts_with("0x") || text.starts_with("0X") ? std::string_view(text).substr(2) : "";
  uint64_t encoding = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), encoding, 16);
  if (!digits.empty() && end == digits.data() + digits.size()) {
    if (error != std::errc()) throw usage_error("encoding '{}': expected at most 16 hexadecimal digits", one_line(text));
    asked.encoding = encoding;
    asked.digits = static_cast<int>(digits.size());
  } else {
    asked.number = parse_number(text);
  }
  return asked;
}

std::vector<const FloatFormat*> formats_for(const Asked& asked, const FloatQuestion& question) {
  if (!question.formats.empty()) return question.formats;
  if (!asked.encoding) return {std::begin(kUsualFormats), std::end(kUsualFormats)};
  std::vector<const FloatFormat*> formats;
  for (const FloatFormat* format : kFormats)
    if (hexadecimal_digits(*format) == asked.digits && *asked.encoding >> format->storage_bits() == 0) formats.push_back(format);
  if (formats.empty())
    throw usage_error("encoding '{}': no format has encodings of {}; --format names one", asked.text,
                      count_of(static_cast<uint64_t>(asked.digits), "hexadecimal digit"));
  return formats;
}

std::string binary(uint64_t bits, int count) { return count > 0 ? fmt::format("{:0{}b}", bits, count) : ""; }

// The fields, with blanks between them.
std::string fields_of(const FloatFormat& format, uint64_t encoding) {
  const uint64_t magnitude = encoding & format.last_magnitude();
  std::string text = format.is_signed ? ((encoding & format.sign_bit()) != 0 ? "1" : "0") : "";
  for (const std::string& field : {binary(magnitude >> format.fraction_bits, format.exponent_bits),
                                   binary(magnitude & ((uint64_t{1} << format.fraction_bits) - 1), format.fraction_bits)})
    if (!field.empty()) text += (text.empty() ? "" : " ") + field;
  return text;
}

// The next number of the format towards Inf (`up`) or -Inf; nothing beyond the last one, and for what is no number.
std::optional<uint64_t> neighbour(const FloatFormat& format, uint64_t encoding, bool up) {
  const Number number = decode(format, encoding);
  if (number.kind == Number::Kind::nan || number.kind == Number::Kind::infinite) return {};
  const uint64_t magnitude = encoding & format.last_magnitude(), sign = encoding & format.sign_bit();
  const uint64_t smallest = format.has_zero() ? round_to_encoding(format, format.smallest_positive()) : 0;
  const bool is_zero = number.kind == Number::Kind::zero;
  if (is_zero) {
    if (up) return smallest;
    return format.is_signed ? std::optional(format.sign_bit() | smallest) : std::nullopt;
  }
  if ((sign == 0) == up) return magnitude == format.largest_encoding() ? std::nullopt : std::optional(sign | (magnitude + 1));
  if (magnitude > smallest) return sign | (magnitude - 1);
  if (!format.has_zero()) return {};
  return format.special_values == SpecialValues::negative_zero ? 0 : sign;
}

// What a rounded number is, and what became of the one that was asked for.
std::string note_of(const FloatFormat& format, uint64_t encoding, const Asked& asked) {
  const Number number = decode(format, encoding);
  const uint64_t magnitude = encoding & format.last_magnitude();
  std::vector<std::string> notes;
  const bool is_rounded = !asked.encoding;
  const bool was_finite = asked.number.kind == Number::Kind::finite;
  switch (number.kind) {
    case Number::Kind::nan:
      if (magnitude > format.largest_encoding() && format.has_infinity()) {
        notes.push_back(number.significand >> 63 ? "quiet NaN" : "signalling NaN");
        const uint64_t payload = magnitude & ((uint64_t{1} << (format.fraction_bits - 1)) - 1);
        if (payload != 0) notes.push_back(fmt::format("payload 0x{:X}", payload));
      } else {
        notes.push_back("NaN");
      }
      if (is_rounded && was_finite) notes.push_back("overflow: the format has no Inf");
      if (is_rounded && asked.number.kind == Number::Kind::infinite) notes.push_back("the format has no Inf");
      break;
    case Number::Kind::infinite:
      notes.push_back(is_rounded && was_finite ? "overflow" : "Inf");
      break;
    case Number::Kind::zero:
      if (is_rounded && was_finite) notes.push_back("flushed to zero");
      if (number.negative) notes.push_back("negative zero");
      break;
    case Number::Kind::finite:
      if (magnitude < uint64_t{1} << format.fraction_bits && format.zero_field == ZeroField::subnormals)
        notes.push_back("subnormal");
      if (magnitude == format.largest_encoding()) notes.push_back("the largest number");
      if (value_of(format, magnitude) == format.smallest_positive()) notes.push_back("the smallest number above zero");
      if (is_rounded && asked.number.kind == Number::Kind::nan) notes.push_back("the format has no NaN");
      break;
  }
  if (is_rounded && number.kind == Number::Kind::finite) {
    const bool is_beyond =
        was_finite && std::fabs(value_of(binary64, encode(binary64, asked.number))) >= format.overflow_threshold();
    if (is_beyond || asked.number.kind == Number::Kind::infinite) notes.push_back("saturated");
  }
  return fmt::format("{}", fmt::join(notes, "; "));
}

// Of a value in a format.
struct Explained {
  uint64_t encoding = 0;
  Number number;
  std::optional<double> ulps, relative;  // the error of the rounding, where it can be told
};

Explained explain(const FloatFormat& format, const Asked& asked, const FloatQuestion& question) {
  Explained result;
  if (asked.encoding) {
    if (*asked.encoding >> format.storage_bits() != 0)
      throw usage_error("encoding '{}': {} has {}", asked.text, format.name,
                        count_of(static_cast<uint64_t>(format.storage_bits()), "bit"));
    result.encoding = *asked.encoding;
  } else {
    const uint32_t random = Philox(question.seed, 0).bits(0);
    result.encoding = encode(format, asked.number, question.rounding, random);
  }
  result.number = decode(format, result.encoding);
  const auto is_real = [](const Number& number) {
    return number.kind == Number::Kind::zero || number.kind == Number::Kind::finite;
  };
  // A number that FP64 does not hold is taken as the nearest that it holds, which says nothing of FP64's own error.
  const bool is_known = !asked.number.sticky || format.storage_bits() <= binary32.storage_bits();
  if (!asked.encoding && is_real(asked.number) && is_real(result.number) && is_known) {
    const Number wide = decode(binary64, encode(binary64, asked.number));
    const double error = value_of(binary64, encode(binary64, subtract(result.number, wide)));
    result.ulps = error / ulp(format, value_of(format, result.encoding));
    if (wide.kind == Number::Kind::finite) result.relative = error / value_of(binary64, encode(binary64, wide));
  }
  return result;
}

Cell cell_of(const std::optional<double>& value) { return value ? Cell(*value) : Cell(NotApplicable{}); }

// Long expansions would leave no room for anything else.
std::string shortened(std::string decimal) {
  constexpr size_t kMost = 24, kKept = 14;
  if (decimal.size() <= kMost) return decimal;
  const size_t power = decimal.find('e');
  return decimal.substr(0, kKept) + "..." + (power == std::string::npos ? "" : decimal.substr(power));
}

// The fields of encodings that leave room for the rest of a row.
Cell fields_cell(const FloatFormat& format, uint64_t encoding) {
  if (format.storage_bits() > binary32.storage_bits()) return NotApplicable{};
  return fields_of(format, encoding);
}

Table table_of(const Asked& asked, const std::vector<const FloatFormat*>& formats, const FloatQuestion& question) {
  Table table{"formats",
              asked.text,
              {{"format", ColumnKind::text},
               {"value", ColumnKind::text},
               {"encoding", ColumnKind::text},
               {"fields", ColumnKind::text},
               {"ulp", ColumnKind::number},
               {"error_ulp", ColumnKind::number},
               {"error_relative", ColumnKind::number},
               {"note", ColumnKind::text}},
              {},
              0,
              ""};
  for (const FloatFormat* format : formats) {
    const Explained found = explain(*format, asked, question);
    const bool is_nan = found.number.kind == Number::Kind::nan || found.number.kind == Number::Kind::infinite;
    table.rows.push_back({{},
                          {std::string(format->name), shortened(exact_decimal(found.number)),
                           hexadecimal_encoding(*format, found.encoding), fields_cell(*format, found.encoding),
                           is_nan ? Cell(NotApplicable{}) : Cell(ulp(*format, value_of(*format, found.encoding))),
                           cell_of(found.ulps), cell_of(found.relative), note_of(*format, found.encoding, asked)}});
  }
  return table;
}

void add_facts(Report& report, const FloatFormat& format, const Asked& asked, const FloatQuestion& question) {
  const Explained found = explain(format, asked, question);
  const uint64_t magnitude = found.encoding & format.last_magnitude();
  report.add_fact("format", std::string(format.name));
  report.add_fact("value", exact_decimal(found.number));
  report.add_fact("hexadecimal", hexadecimal(found.number));
  report.add_fact("encoding", hexadecimal_encoding(format, found.encoding));
  if (format.is_signed) report.add_fact("sign", binary((found.encoding & format.sign_bit()) != 0, 1));
  report.add_fact("exponent_field", binary(magnitude >> format.fraction_bits, format.exponent_bits));
  if (format.fraction_bits > 0)
    report.add_fact("fraction", binary(magnitude & ((uint64_t{1} << format.fraction_bits) - 1), format.fraction_bits));
  for (const bool up : {false, true}) {
    if (const auto next = neighbour(format, found.encoding, up))
      report.add_fact(up ? "next_above" : "next_below", exact_decimal(decode(format, *next)));
  }
  if (found.number.kind == Number::Kind::zero || found.number.kind == Number::Kind::finite)
    report.add_fact("ulp", ulp(format, value_of(format, found.encoding)));
  if (found.ulps) report.add_fact("error_ulp", *found.ulps);
  if (found.relative) report.add_fact("error_relative", *found.relative);
  if (std::string note = note_of(format, found.encoding, asked); !note.empty()) report.add_fact("note", std::move(note));
}

}  // namespace

Report explain_floats(std::span<const std::string> values, const FloatQuestion& question) {
  Report report;
  report.analysis = "float";
  const std::string mode(name_of(question.rounding.mode));
  std::vector<Asked> all;
  for (const std::string& value : values) all.push_back(read(value));
  const bool any_rounded = std::any_of(all.begin(), all.end(), [](const Asked& asked) { return !asked.encoding; });
  report.title = all.size() == 1 ? all[0].text : "Numbers in formats";
  if (any_rounded) report.add_fact("rounding", mode);
  for (const Asked& asked : all) {
    const std::vector<const FloatFormat*> formats = formats_for(asked, question);
    if (all.size() == 1 && formats.size() == 1) {
      add_facts(report, *formats[0], asked, question);
    } else {
      report.tables.push_back(table_of(asked, formats, question));
      if (all.size() == 1) report.tables.back().title = "In each format";
    }
  }
  return report;
}

Report describe_formats(std::span<const FloatFormat* const> formats) {
  Report report;
  report.analysis = "float_table";
  report.title = "Limits of formats";
  Table table{"formats",
              "",
              {{"format", ColumnKind::text},
               {"bits", ColumnKind::text},
               {"bias", ColumnKind::number},
               {"largest", ColumnKind::text},
               {"smallest_normal", ColumnKind::number},
               {"smallest", ColumnKind::number},
               {"epsilon", ColumnKind::number},
               {"decimal_digits", ColumnKind::number},
               {"inf", ColumnKind::flag},
               {"nan", ColumnKind::flag}},
              {},
              0,
              "bits: sign / exponent / fraction. decimal_digits: so many survive a conversion to the format and back."};
  for (const FloatFormat* format : formats) {
    // C's FLT_DIG: floor((p - 1) log10 2) for a significand of p bits, of which one is not stored.
    const auto digits = static_cast<int64_t>(std::floor(format->fraction_bits * std::log10(2.0)));
    table.rows.push_back({{},
                          {std::string(format->name),
                           fmt::format("{}/{}/{}", format->is_signed ? 1 : 0, format->exponent_bits, format->fraction_bits),
                           int64_t{format->bias}, fmt::format("{}", format->largest_finite()), format->smallest_normal(),
                           format->smallest_positive(), format->epsilon(), digits, format->has_infinity(), format->has_nan()}});
  }
  report.tables.push_back(std::move(table));
  return report;
}

}  // namespace ulpscope
