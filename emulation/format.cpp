#include "ulpscope/emulation/format.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "ulpscope/base/error.h"
#include "ulpscope/base/floating_point_mode.h"
#include "ulpscope/base/text.h"
#include "ulpscope/emulation/rounding.h"

namespace ulpscope {

namespace {

struct Alias {
  std::string_view name;
  const FloatFormat* format;
};
constexpr Alias kAliases[] = {
    {"binary16", &binary16}, {"f16", &binary16},      {"float16", &binary16},
    {"half", &binary16},     {"bfloat16", &bfloat16}, {"tensorfloat32", &tensor_float32},
    {"binary32", &binary32}, {"f32", &binary32},      {"float32", &binary32},
    {"single", &binary32},   {"binary64", &binary64}, {"f64", &binary64},
    {"float64", &binary64},  {"double", &binary64},   {"e4m3fn", &e4m3},
    {"e3m2fn", &e3m2},       {"e2m3fn", &e2m3},       {"e2m1fn", &e2m1},
    {"e8m0fnu", &e8m0},
};

struct Suffix {
  std::string_view name;
  SpecialValues special_values;
};
constexpr Suffix kSuffixes[] = {{"ieee", SpecialValues::ieee},
                                {"fnuz", SpecialValues::negative_zero},
                                {"fn", SpecialValues::nan_only},
                                {"finite", SpecialValues::none}};
std::string_view suffix_of(SpecialValues special_values) {
  return std::find_if(std::begin(kSuffixes), std::end(kSuffixes),
                      [&](const Suffix& s) { return s.special_values == special_values; })
      ->name;
}

// A number at the start of `text`, which is cut off.
std::optional<int> take_number(std::string_view& text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return {};
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return value;
}

bool take(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

Error no_format(std::string_view text) {
  std::vector<std::string> names;
  for (const FloatFormat* format : kFormats) names.emplace_back(format->name);
  const std::string rows = fmt::format("{}", fmt::join(names, ", "));
  for (const Alias& alias : kAliases) names.emplace_back(alias.name);
  return usage_error("format '{}': expected a name ({}) or e<E>m<F> with numbers of bits{}", one_line(text), rows,
                     did_you_mean(text, names));
}

Error impossible(std::string_view text, std::string_view why) { return usage_error("format '{}': {}", one_line(text), why); }

// The rest of a text, after a row's name or e<E>m<F>.
void read_options(std::string_view text, std::string_view rest, FloatFormat& format, std::optional<int>& bias,
                  std::optional<double>& largest) {
  const auto once = [&](std::string_view option, bool given) {
    if (given) throw impossible(text, fmt::format("{}: given twice", option));
  };
  bool has_subnormals_option = false;
  while (!rest.empty()) {
    const size_t end = rest.find(':', 1);
    std::string_view option = rest.substr(0, end);
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end);
    if (take(option, ":bias=")) {
      once("bias", bias.has_value());
      bias = take_number(option);
      if (!bias || !option.empty() || std::abs(*bias) > 1000)
        throw impossible(text, "bias: expected an integer from -1000 to 1000");
    } else if (take(option, ":largest=")) {
      once("largest", largest.has_value());
      double value = 0;
      const auto [stop, error] = std::from_chars(option.data(), option.data() + option.size(), value);
      if (error != std::errc() || stop != option.data() + option.size() || !(value > 0) || std::isinf(value))
        throw impossible(text, "largest: expected a decimal number above zero, of fp32's range");
      largest = value;
    } else if (option == ":subnormals=no" || option == ":subnormals=yes") {
      once("subnormals", has_subnormals_option);
      has_subnormals_option = true;
      format.zero_field = option.ends_with("no") ? ZeroField::zero : ZeroField::subnormals;
    } else if (option.starts_with(":")) {
      throw impossible(text, fmt::format("expected bias=B, largest=VALUE or subnormals=no, got '{}'", one_line(option.substr(1))));
    } else {
      throw no_format(text);
    }
  }
}

void check_text(std::string_view text, const FloatFormat& format) {
  if (format.exponent_bits > binary32.exponent_bits || format.fraction_bits > binary32.fraction_bits)
    throw impossible(text, fmt::format("expected at most {} exponent and {} fraction bits, those of fp32", binary32.exponent_bits,
                                       binary32.fraction_bits));
  if (format.exponent_bits + format.fraction_bits < 1) throw impossible(text, "expected at least one bit beside the sign");
  if (format.exponent_bits == 0 && format.special_values == SpecialValues::ieee)
    throw impossible(text, "without exponent bits there is no Inf; expected fn, fnuz or finite after the bits");
  if (format.special_values == SpecialValues::ieee && format.fraction_bits == 0)
    throw impossible(text, "without fraction bits Inf leaves no encoding for NaN; expected fn, fnuz or finite after the bits");
  if (format.special_values == SpecialValues::ieee && format.exponent_bits == 1 && format.zero_field == ZeroField::zero)
    throw impossible(text, "there would be no number but zero");
  if (format.largest_encoding() == 0 && format.has_zero()) throw impossible(text, "its only number would be zero");
}

// A row, or e<E>m<F> and its special values; what follows is left in `rest`.
FloatFormat read_base(std::string_view text, std::string_view& rest) {
  const std::string_view name = text.substr(0, text.find(':'));
  if (const FloatFormat* row = find_format(name)) {
    if (row == &e8m0 || row == &binary64) throw impossible(text, fmt::format("{} takes no options", row->name));
    rest = text.substr(name.size());
    return *row;
  }
  rest = text;
  FloatFormat format{{}, 0, 0, 0};
  const auto field = [&](std::string_view letter, int& bits) {
    if (!take(rest, letter) || rest.empty() || rest[0] == '-') return false;
    const std::optional<int> number = take_number(rest);
    bits = number.value_or(0);
    return number.has_value();
  };
  if (!field("e", format.exponent_bits) || !field("m", format.fraction_bits)) throw no_format(text);
  for (const Suffix& suffix : kSuffixes) {
    if (take(rest, suffix.name)) {
      format.special_values = suffix.special_values;
      break;
    }
  }
  if (!rest.empty() && rest[0] != ':') throw no_format(text);
  check_text(text, format);
  const int least = format.special_values == SpecialValues::negative_zero ? 0 : 1;
  format.bias = format.exponent_bits == 0 ? 1 : (1 << (format.exponent_bits - 1)) - least;
  return format;
}

FloatFormat read_format(std::string_view text) {
  std::string_view rest;
  FloatFormat format = read_base(text, rest);
  std::optional<int> bias;
  std::optional<double> largest;
  read_options(text, rest, format, bias, largest);
  check_text(text, format);
  format.bias = bias.value_or(format.bias);
  if (format.smallest_exponent() < binary32.smallest_exponent() || format.largest_exponent() > binary32.largest_exponent())
    throw impossible(text, fmt::format("its numbers go from 2^{} to 2^{}, expected none that fp32 has not, from 2^{} to 2^{}",
                                       format.smallest_exponent(), format.largest_exponent(), binary32.smallest_exponent(),
                                       binary32.largest_exponent()));
  if (largest) {
    const uint64_t encoding = round_to_encoding(format, *largest, {.overflow = Overflow::saturate});
    if (value_of(format, encoding) != *largest)
      throw impossible(text, fmt::format("largest: {} is none of its numbers, which end at {}", *largest, format.largest_finite()));
    if (encoding != format.largest_encoding()) format.last_encoding = encoding;
  }
  return format;
}

bool same(const FloatFormat& a, const FloatFormat& b) {
  return a.exponent_bits == b.exponent_bits && a.fraction_bits == b.fraction_bits && a.bias == b.bias &&
         a.special_values == b.special_values && a.zero_field == b.zero_field && a.is_signed == b.is_signed &&
         a.largest_encoding() == b.largest_encoding();
}

// What parse_format reads as this format.
std::string name_of(const FloatFormat& format) {
  std::string name = fmt::format("e{}m{}{}", format.exponent_bits, format.fraction_bits, suffix_of(format.special_values));
  if (find_format(name) == nullptr && format.special_values == SpecialValues::ieee &&
      find_format(fmt::format("e{}m{}", format.exponent_bits, format.fraction_bits)) == nullptr)
    name = fmt::format("e{}m{}", format.exponent_bits, format.fraction_bits);
  name += fmt::format(":bias={}", format.bias);
  if (format.zero_field == ZeroField::zero) name += ":subnormals=no";
  if (format.last_encoding != 0) name += fmt::format(":largest={}", format.largest_finite());
  return name;
}

}  // namespace

double FloatFormat::largest_finite() const { return value_of(*this, largest_encoding()); }
double FloatFormat::smallest_normal() const { return std::ldexp(1.0, smallest_normal_exponent()); }
double FloatFormat::smallest_positive() const {
  const FloatingPointMode mode;  // of FP64 it is a subnormal number
  return std::ldexp(1.0, smallest_exponent());
}
double FloatFormat::epsilon() const { return std::ldexp(1.0, std::max(0, smallest_normal_exponent()) - fraction_bits); }

double FloatFormat::overflow_threshold() const {
  const double half_ulp = std::ldexp(1.0, std::max(largest_exponent(), smallest_normal_exponent()) - fraction_bits - 1);
  const double middle = largest_finite() + half_ulp;
  return largest_is_even() ? std::nextafter(middle, HUGE_VAL) : middle;
}

double FloatFormat::flush_threshold() const { return has_zero() ? std::ldexp(1.0, smallest_exponent() - 1) : 0; }

const FloatFormat* find_format(std::string_view given) {
  const std::string name = lower_case(given);
  for (const FloatFormat* format : kFormats) {
    if (format->name == name) return format;
  }
  for (const Alias& alias : kAliases) {
    if (alias.name == name) return alias.format;
  }
  return nullptr;
}

const FloatFormat& parse_format(std::string_view given) {
  const std::string text = lower_case(given);
  if (const FloatFormat* row = find_format(text)) return *row;
  FloatFormat format = read_format(text);
  for (const FloatFormat* row : kFormats) {
    if (same(*row, format)) return *row;
  }
  // Nodes of a map stay where they are.
  static std::mutex mutex;
  static std::map<std::string, FloatFormat, std::less<>> formats;
  const std::lock_guard lock(mutex);
  const auto [place, added] = formats.try_emplace(name_of(format), format);
  if (added) place->second.name = place->first;
  return place->second;
}

}  // namespace ulpscope
