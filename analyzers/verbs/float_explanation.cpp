#include "ulpscope/analyzers/verbs/float_explanation.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <optional>
#include <vector>

#include "ulpscope/base/error.h"
#include "ulpscope/base/text.h"
#include "ulpscope/emulation/error_measures.h"
#include "ulpscope/emulation/number_text.h"
#include "ulpscope/emulation/round_array.h"
#include "ulpscope/emulation/rounding.h"

namespace ulpscope {

namespace {

constexpr const FloatFormat* kUsualFormats[] = {&binary64, &binary32, &tensor_float32, &bfloat16, &binary16,
                                                &e5m2,     &e4m3,     &e3m2,           &e2m3,     &e2m1};

// A value as it was asked for.
struct Asked {
  std::string text;
  uint64_t index = 0;                // among the values
  std::optional<uint64_t> encoding;  // else a number
  int digits = 0;                    // of the encoding
  Number number;
};

Asked read(const std::string& text, uint64_t index) {
  Asked asked{text, index, {}, 0, {}};
  const std::string_view digits = text.starts_with("0x") || text.starts_with("0X") ? std::string_view(text).substr(2) : "";
  uint64_t encoding = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), encoding, 16);
  if (!digits.empty() && end == digits.data() + digits.size()) {
    if (error != std::errc()) throw usage_error("encoding '{}': expected at most 16 hexadecimal digits", one_line(text));
    asked.encoding = encoding;
    asked.digits = static_cast<int>(digits.size());
  } else {
    try {
      asked.number = parse_number(text);
    } catch (const Error& no_number) {
      throw usage_error("{}, or an encoding such as 0x3C00", no_number.what());
    }
  }
  return asked;
}

bool has_encoding(const FloatFormat& format, uint64_t encoding) {
  return format.storage_bits() == 64 || encoding >> format.storage_bits() == 0;
}

std::vector<const FloatFormat*> formats_for(const Asked& asked, const FloatQuestion& question) {
  if (!question.formats.empty()) return question.formats;
  if (!asked.encoding) return {std::begin(kUsualFormats), std::end(kUsualFormats)};
  std::vector<const FloatFormat*> formats;
  for (const FloatFormat* format : kFormats)
    if (hexadecimal_digits(*format) == asked.digits && has_encoding(*format, *asked.encoding)) formats.push_back(format);
  if (formats.empty())
    throw usage_error("encoding '{}': no format has encodings of {}; --format names one", asked.text,
                      count_of(static_cast<uint64_t>(asked.digits), "hexadecimal digit"));
  return formats;
}

bool is_number(const Number& number) { return number.kind == Number::Kind::zero || number.kind == Number::Kind::finite; }

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
  if (!is_number(number)) return {};
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

// Whether a number rounds to one beyond the largest number, as it would if exponents had no end: with the largest one's significand
// and the exponents of another format, in which it lies in [1, 2).
bool rounds_beyond(const FloatFormat& format, Number asked, const Rounding& rounding, uint32_t random) {
  Number largest = decode(format, format.largest_encoding());
  const int fraction_bits = 63 - std::countl_zero(largest.significand);
  const FloatFormat wider{"", 8, fraction_bits, 127};
  asked.exponent -= largest.exponent + fraction_bits;
  largest.exponent = -fraction_bits;
  const uint64_t rounded = encode(wider, asked, {.mode = rounding.mode, .random_bits = rounding.random_bits}, random);
  return (rounded & wider.last_magnitude()) > encode(wider, largest);
}

// Of a value in a format.
struct Explained {
  uint64_t encoding = 0;
  Number number;
  // Of a number that was asked for:
  RoundingError error;
  bool is_beyond = false;  // it rounds beyond the largest number, were exponents not bounded
};

Explained explain(const FloatFormat& format, const Asked& asked, const FloatQuestion& question) {
  Explained result;
  if (asked.encoding) {
    if (!has_encoding(format, *asked.encoding))
      throw usage_error("encoding '{}': {} has {}", asked.text, format.name,
                        count_of(static_cast<uint64_t>(format.storage_bits()), "bit"));
    result.encoding = *asked.encoding;
  } else {
    const uint32_t random = random_bits_of({.seed = question.seed}, asked.index);
    result.encoding = encode(format, asked.number, question.rounding, random);
    result.is_beyond = asked.number.kind == Number::Kind::finite && rounds_beyond(format, asked.number, question.rounding, random);
  }
  result.number = decode(format, result.encoding);
  if (asked.encoding) return result;
  result.error = rounding_error(asked.text, format, result.encoding);
  return result;
}

// What a rounded number is, and what became of the one that was asked for.
std::string note_of(const FloatFormat& format, const Explained& found, const Asked& asked) {
  const Number& number = found.number;
  const uint64_t magnitude = found.encoding & format.last_magnitude();
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
      if (value_of(format, magnitude) == format.smallest_positive())
        notes.push_back(number.negative ? "the largest number below zero" : "the smallest number above zero");
      if (is_rounded && asked.number.kind == Number::Kind::nan) notes.push_back("the format has no NaN");
      break;
  }
  if (is_rounded && asked.number.negative && !number.negative && number.kind != Number::Kind::nan) {
    notes.push_back(format.is_signed ? "the format has no negative zero" : "the format has no sign");
  }
  if (is_rounded && asked.number.kind == Number::Kind::zero && !format.has_zero()) notes.push_back("the format has no zero");
  if (is_rounded && number.kind == Number::Kind::finite) {
    if (found.is_beyond || asked.number.kind == Number::Kind::infinite) notes.push_back("saturated");
  }
  if (is_rounded && was_finite && is_number(number)) {
    if (!found.error.ulps) notes.push_back("the error in ulps is beyond FP64");
    if (!found.error.relative) notes.push_back("the relative error is beyond FP64");
  }
  return fmt::format("{}", fmt::join(notes, "; "));
}

Cell cell_of(const std::optional<double>& value) { return value ? Cell(*value) : Cell(NotApplicable{}); }

Cell value_cell(const FloatFormat& format, const Number& number) {
  return LongText{exact_decimal(number), leading_digits(number, format)};
}

Cell neighbour_cell(const FloatFormat& format, uint64_t encoding, bool up) {
  const auto next = neighbour(format, encoding, up);
  return next ? value_cell(format, decode(format, *next)) : Cell(NotApplicable{});
}

// The fields of FP64 leave no room for the rest of a row.
Cell fields_cell(const FloatFormat& format, uint64_t encoding) {
  constexpr size_t kColumn = 34;  // FP32's
  const std::string fields = fields_of(format, encoding);
  return LongText{fields, fields.size() <= kColumn ? fields : fields.substr(0, kColumn - 3) + "..."};
}

Cell ulp_cell(const FloatFormat& format, const Explained& found) {
  return is_number(found.number) ? Cell(ulp(format, value_of(format, found.encoding))) : Cell(NotApplicable{});
}

Table table_of(const Asked& asked, const std::vector<const FloatFormat*>& formats, const FloatQuestion& question) {
  Table table{"formats",
              asked.text,
              {{"format", ColumnKind::text},
               {"value", ColumnKind::text},
               {"encoding", ColumnKind::text},
               {"fields", ColumnKind::text},
               {"next_below", ColumnKind::text},
               {"next_above", ColumnKind::text},
               {"ulp", ColumnKind::number, Unit::power_of_two},
               {"error_ulp", ColumnKind::number},
               {"error_relative", ColumnKind::number},
               {"note", ColumnKind::text}},
              {},
              0,
              ""};
  for (const FloatFormat* format : formats) {
    const Explained found = explain(*format, asked, question);
    table.rows.push_back(
        {{},
         {std::string(format->name), value_cell(*format, found.number), hexadecimal_encoding(*format, found.encoding),
          fields_cell(*format, found.encoding), neighbour_cell(*format, found.encoding, false),
          neighbour_cell(*format, found.encoding, true), ulp_cell(*format, found), cell_of(found.error.ulps),
          cell_of(found.error.relative), note_of(*format, found, asked)}});
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
  if (is_number(found.number)) report.add_fact("ulp", ulp_cell(format, found), Unit::power_of_two);
  if (!asked.encoding && is_number(asked.number) && is_number(found.number)) {
    report.add_fact("error_ulp", cell_of(found.error.ulps));
    report.add_fact("error_relative", cell_of(found.error.relative));
  }
  if (std::string note = note_of(format, found, asked); !note.empty()) report.add_fact("note", std::move(note));
}

// The largest number: short integers as they are, others as a power of two and what it lacks.
LongText largest_text(const FloatFormat& format) {
  constexpr size_t kShort = 8;
  const Number largest = decode(format, format.largest_encoding());
  std::string exact = exact_decimal(largest);
  return {exact, exact.size() <= kShort ? exact : power_of_two_text(largest)};
}

// Some formats have subnormal numbers only.
Cell smallest_normal_cell(const FloatFormat& format) {
  if (format.largest_exponent() < format.smallest_normal_exponent()) return NotApplicable{};
  return format.smallest_normal();
}

// From 1 to the next number above it, in formats that have both.
Cell epsilon_cell(const FloatFormat& format) {
  const uint64_t one = round_to_encoding(format, 1.0);
  const auto next = neighbour(format, one, true);
  if (!next || value_of(format, one) != 1) return NotApplicable{};
  return value_of(format, *next) - 1;
}

Asked read_encoding(const FloatFormat& format, const std::string& encoding) {
  Asked asked = read(encoding, 0);
  if (!asked.encoding) throw usage_error("'{}' is no encoding such as 0x3C00", one_line(encoding));
  if (!has_encoding(format, *asked.encoding))
    throw usage_error("encoding '{}': {} has {}", encoding, format.name,
                      count_of(static_cast<uint64_t>(format.storage_bits()), "bit"));
  return asked;
}

}  // namespace

Report explain_floats(std::span<const std::string> values, const FloatQuestion& question) {
  Report report;
  report.analysis = "float";
  const std::string mode(name_of(question.rounding.mode));
  std::vector<Asked> all;
  for (const std::string& value : values) all.push_back(read(value, all.size()));
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

Report explain_encoding(const FloatFormat& format, const std::string& encoding, const FloatQuestion& question) {
  const Asked asked = read_encoding(format, encoding);
  const std::vector<std::string> value{hexadecimal(decode(format, *asked.encoding))};
  Report report = explain_floats(value, question);
  report.title = fmt::format("{}:{}", format.name, encoding);
  for (Table& table : report.tables) {
    for (TableRow& row : table.rows) {
      // Its own row is that of the encoding: a NaN's value does not tell which one it is.
      if (row.cells.front() == Cell(std::string(format.name))) row = table_of(asked, {&format}, question).rows.front();
    }
  }
  return report;
}

Report explain_number(const std::string& text) {
  FloatQuestion question;
  for (const FloatFormat* format : kFormats) question.formats.push_back(format);
  if (const size_t colon = text.find(':'); colon != std::string::npos)
    return explain_encoding(parse_format(text.substr(0, colon)), text.substr(colon + 1), question);
  try {
    return explain_floats(std::span(&text, 1), question);
  } catch (const Error&) {
    return explain_floats(std::span(&text, 1), {});  // of an encoding, whose digits say of which formats
  }
}

std::string next_encoding(const FloatFormat& format, const std::string& encoding, bool up) {
  const auto next = neighbour(format, *read_encoding(format, encoding).encoding, up);
  return next ? hexadecimal_encoding(format, *next) : "";
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
               {"smallest_normal", ColumnKind::number, Unit::power_of_two},
               {"smallest", ColumnKind::number, Unit::power_of_two},
               {"epsilon", ColumnKind::number, Unit::power_of_two},
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
                           int64_t{format->bias}, largest_text(*format), smallest_normal_cell(*format), format->smallest_positive(),
                           epsilon_cell(*format), digits, format->has_infinity(), format->has_nan()}});
  }
  report.tables.push_back(std::move(table));
  return report;
}

}  // namespace ulpscope
