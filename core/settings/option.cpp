#include "ulpscope/core/settings/option.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "ulpscope/base/error.h"
#include "ulpscope/base/parse_number.h"
#include "ulpscope/base/text.h"

namespace ulpscope {

namespace {

Error wrong_value(const OptionType& type, const RawValue& raw, std::string_view hint = "") {
  return usage_error("expected {}, found {}{}", type.description(), raw.text, hint);
}

std::optional<double> number_of(const RawValue& raw) {
  if (const auto* whole = std::get_if<int64_t>(&raw.value)) return static_cast<double>(*whole);
  if (const auto* real = std::get_if<double>(&raw.value)) return *real;
  if (const auto* text = std::get_if<std::string>(&raw.value); text != nullptr && text->starts_with("2^")) {
    const auto exponent = parse_number<int64_t>(std::string_view(*text).substr(2));
    if (exponent && *exponent >= -1000 && *exponent <= 1000) return std::ldexp(1.0, static_cast<int>(*exponent));
  }
  return std::nullopt;
}

// 1536, "1536", "512K", "500MB", "1.5GiB"; units are powers of 1024, with or without their B.
std::optional<int64_t> size_of(const RawValue& raw) {
  if (const auto* whole = std::get_if<int64_t>(&raw.value)) return *whole;
  const auto* text = std::get_if<std::string>(&raw.value);
  if (text == nullptr || text->empty()) return std::nullopt;
  std::string_view digits = *text;
  int shift = 0;
  constexpr std::string_view kUnits = "KMGT";
  if (digits.ends_with("iB")) {
    digits.remove_suffix(2);
  } else if (digits.ends_with('B')) {
    digits.remove_suffix(1);
  }
  if (digits.empty()) return std::nullopt;
  if (const size_t unit = kUnits.find(digits.back()); unit != std::string_view::npos) {
    shift = 10 * static_cast<int>(unit + 1);
    digits.remove_suffix(1);
  }
  if (const auto value = parse_number<int64_t>(digits)) {
    if (*value < 0 || *value > (std::numeric_limits<int64_t>::max() >> shift)) return std::nullopt;
    return *value << shift;
  }
  double value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, std::chars_format::fixed);
  if (error != std::errc() || end != digits.data() + digits.size() || shift == 0) return std::nullopt;
  value = std::floor(std::ldexp(value, shift));
  if (!(value >= 0 && value < 0x1p63)) return std::nullopt;
  return static_cast<int64_t>(value);
}

// In any case, as names of formats and GPUs are read elsewhere.
std::string choice_of(const OptionType& type, const RawValue& raw) {
  const auto* text = std::get_if<std::string>(&raw.value);
  if (text == nullptr) throw wrong_value(type, raw);
  const auto found = std::find_if(type.choices.begin(), type.choices.end(),
                                  [name = lower_case(*text)](const std::string& choice) { return lower_case(choice) == name; });
  if (found != type.choices.end()) return *found;
  // A long list would bury what was meant.
  constexpr size_t kFew = 16;
  const std::string hint = did_you_mean(*text, type.choices);
  if (type.kind == OptionKind::choice && !hint.empty() && type.choices.size() > kFew)
    throw usage_error("found {}{}", raw.text, hint);
  throw wrong_value(type, raw, hint);
}

std::vector<int64_t> integers_of(const OptionType& type, const RawValue& raw) {
  const auto* list = std::get_if<std::vector<RawValue>>(&raw.value);
  std::vector<int64_t> values;
  for (const RawValue& item : list ? *list : std::vector<RawValue>{raw}) {
    const auto* whole = std::get_if<int64_t>(&item.value);
    if (whole == nullptr || !type.range.contains(static_cast<double>(*whole))) throw wrong_value(type, raw);
    values.push_back(*whole);
  }
  return values;
}

std::string join_list(const auto& items, const auto& text_of) {
  std::string text = "[";
  for (const auto& item : items) text += fmt::format("{}{}", text.size() > 1 ? ", " : "", text_of(item));
  return text + "]";
}

}  // namespace

bool Range::contains(double value) const {
  if (!std::isfinite(value)) return std::isnan(value) ? takes_nan : takes_infinity;
  return (low_open ? value > low : value >= low) && (high_open ? value < high : value <= high);
}

std::string Range::text() const {
  std::string text;
  if (std::isfinite(low)) text = fmt::format("{} {}", low_open ? ">" : ">=", low);
  if (std::isfinite(high)) text += fmt::format("{}{} {}", text.empty() ? "" : " and ", high_open ? "<" : "<=", high);
  return text;
}

std::string OptionType::description() const {
  const auto with_range = [&](std::string_view noun) {
    const std::string limits = range.text();
    return fmt::format("{}{}{}{}", noun, limits.empty() ? "" : " ", limits,
                       !range.takes_infinity ? ""
                       : range.takes_nan     ? ", nan, inf or -inf"
                                             : ", inf or -inf");
  };
  switch (kind) {
    case OptionKind::boolean:
      return "true or false";
    case OptionKind::integer:
      return with_range("an integer");
    case OptionKind::number:
      return with_range("a number");
    case OptionKind::text:
      return "a string";
    case OptionKind::choice:
      return join_words(choices, "or");
    case OptionKind::size:
      return "a number of bytes, or a string like \"512M\"";
    case OptionKind::integer_list:
      return with_range("a list of integers");
    case OptionKind::text_list:
      return "a list of strings";
    case OptionKind::choice_list:
      return fmt::format("a list of {}", join_words(choices, "or"));
    case OptionKind::extent_pair:
      return with_range("an integer or [y, x]");
  }
  return "";
}

OptionValue check_value(const OptionType& type, const RawValue& raw) {
  switch (type.kind) {
    case OptionKind::boolean:
      if (const auto* value = std::get_if<bool>(&raw.value)) return *value;
      break;
    case OptionKind::integer:
      if (const auto* value = std::get_if<int64_t>(&raw.value); value && type.range.contains(static_cast<double>(*value)))
        return *value;
      break;
    case OptionKind::number:
      if (const auto value = number_of(raw); value && type.range.contains(*value)) return *value;
      break;
    case OptionKind::text:
      if (const auto* value = std::get_if<std::string>(&raw.value)) return *value;
      break;
    case OptionKind::choice:
      return choice_of(type, raw);
    case OptionKind::size:
      if (const auto value = size_of(raw); value && *value >= 0) return *value;
      break;
    case OptionKind::integer_list:
      return integers_of(type, raw);
    case OptionKind::extent_pair: {
      std::vector<int64_t> pair = integers_of(type, raw);
      if (pair.size() == 1 && std::holds_alternative<int64_t>(raw.value)) pair.push_back(pair[0]);
      if (pair.size() != 2) break;
      return pair;
    }
    case OptionKind::text_list:
    case OptionKind::choice_list: {
      std::vector<std::string> values;
      const auto* list = std::get_if<std::vector<RawValue>>(&raw.value);
      for (const RawValue& item : list ? *list : std::vector<RawValue>{raw}) {
        const auto* text = std::get_if<std::string>(&item.value);
        if (text == nullptr) throw wrong_value(type, raw);
        values.push_back(type.kind == OptionKind::choice_list ? choice_of(type, item) : *text);
      }
      return values;
    }
  }
  throw wrong_value(type, raw);
}

std::string toml_string(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '"' || c == '\\') escaped += '\\';
    escaped += c;
  }
  return fmt::format("\"{}\"", one_line(escaped));
}

std::string value_text(const OptionType& type, const OptionValue& value) {
  switch (type.kind) {
    case OptionKind::boolean:
      return std::get<bool>(value) ? "true" : "false";
    case OptionKind::integer:
    case OptionKind::size:
      return fmt::format("{}", std::get<int64_t>(value));
    case OptionKind::number:
      return fmt::format("{}", std::get<double>(value));  // the shortest text that reads back as the same value
    case OptionKind::text:
    case OptionKind::choice:
      return toml_string(std::get<std::string>(value));
    case OptionKind::integer_list:
      return join_list(std::get<std::vector<int64_t>>(value), [](int64_t item) { return item; });
    case OptionKind::extent_pair: {
      const auto& pair = std::get<std::vector<int64_t>>(value);
      return pair[0] == pair[1] ? fmt::format("{}", pair[0]) : fmt::format("[{}, {}]", pair[0], pair[1]);
    }
    case OptionKind::text_list:
    case OptionKind::choice_list:
      return join_list(std::get<std::vector<std::string>>(value), [](const std::string& item) { return toml_string(item); });
  }
  return "";
}

}  // namespace ulpscope
