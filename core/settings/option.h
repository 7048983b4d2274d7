// One key of an experiment file: its type, range and meaning, and where its value is kept. Everything that knows keys goes through
// tables of these: parsing, --set, writing back, and the reference in docs/experiments.md.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "ulpscope/trace/records.h"

namespace ulpscope {

// A value as it stands in a file, whatever it is written in.
struct RawValue {
  // Nothing: something that no key takes (a table, a date); `text` says what.
  std::variant<std::monostate, bool, int64_t, double, std::string, std::vector<RawValue>> value;
  std::string text;  // as it is shown in messages
};

enum class OptionKind : uint8_t {
  boolean,
  integer,
  number,  // or "2^k" in quotes
  text,
  choice,
  size,  // bytes, or "512M"
  integer_list,
  text_list,
  choice_list,
  extent_pair,  // an integer, or [y, x]
};

// What a key holds, by its kind: bool, int64_t, double, std::string (text, choice), and lists of those; a size is an int64_t, a
// pair a list of two.
using OptionValue = std::variant<bool, int64_t, double, std::string, std::vector<int64_t>, std::vector<std::string>>;

struct Range {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool low_open = false, high_open = false;
  bool takes_infinity = false, takes_nan = false;

  bool contains(double value) const;
  std::string text() const;  // "> 0", ">= 0 and < 1", or ""
};

// What a key takes, apart from where it is stored.
struct OptionType {
  OptionKind kind = OptionKind::text;
  Range range;
  std::vector<std::string> choices;

  std::string description() const;  // "a number > 0"
};

// Checks `raw` against `type`. Throws Error (usage): "expected a number > 0, found -1".
OptionValue check_value(const OptionType& type, const RawValue& raw);
// As TOML.
std::string value_text(const OptionType& type, const OptionValue& value);
std::string toml_string(std::string_view text);  // as a TOML string, quotes included

struct OptionInfo {
  std::string key;
  OptionType type;
  std::string meaning;
  std::string default_text;                  // for the reference; "": the default value
  SettingKind setting = SettingKind::other;  // what traces say that it is
};

// A key whose value is kept in a field of a struct.
template <typename Settings>
struct Option : OptionInfo {
  std::function<void(Settings&, const OptionValue&)> set;
  std::function<std::optional<OptionValue>(const Settings&)> get;  // nothing: not set, and not written back
  // What holds where `get` gives nothing; empty: that is no one value.
  std::function<OptionValue(const Settings&)> otherwise = {};

  // The same, with one of those.
  Option of_kind(SettingKind kind) && {
    setting = kind;
    return std::move(*this);
  }
  template <typename Value>
  Option or_else(Value value) && {
    otherwise = [value](const Settings& settings) { return OptionValue(value(settings)); };
    return std::move(*this);
  }
};

// Where settings come from, as messages begin: "run.toml:4". It has no part in whether settings are equal.
struct Place {
  std::string text;

  bool operator==(const Place&) const { return true; }
};

}  // namespace ulpscope
