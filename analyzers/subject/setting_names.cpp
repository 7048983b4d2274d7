#include "ulpscope/analyzers/subject/setting_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ulpscope/base/parse_number.h"
#include "ulpscope/base/text.h"

namespace ulpscope {

namespace {

// Values as producers write them. What decides by itself is neither, and can be switched to both.
struct Values {
  std::string_view off, on;
};
constexpr Values kSwitches[] = {{"false", "true"}, {"False", "True"},     {"0", "1"},
                                {"off", "on"},     {"\"off\"", "\"on\""}, {"'off'", "'on'"}};
constexpr Values kAutomatic[] = {{"auto", "on"}, {"\"auto\"", "\"on\""}, {"'auto'", "'on'"}};

}  // namespace

const SettingInfo* SettingNames::find(SettingKind kind) const {
  const auto found = std::find_if(settings_.begin(), settings_.end(), [&](const SettingInfo& each) { return each.kind == kind; });
  return found == settings_.end() ? nullptr : &*found;
}

SettingMention SettingNames::name(SettingKind kind) const {
  const SettingInfo* const setting = find(kind);
  return {kind, setting ? one_line(setting->name) : ""};
}

SettingMention SettingNames::switched(SettingKind kind, bool on) const {
  // Of names alone, as our own producer has it.
  SettingMention mention{kind, "", on ? "true" : "false"};
  const SettingInfo* const setting = find(kind);
  if (setting == nullptr) return mention;
  mention.text = one_line(setting->name);
  const auto set = [&](std::string_view value) {
    mention.value = value;
    mention.text += fmt::format(" = {}", value);
  };
  for (const auto& [off_value, on_value] : kSwitches) {
    if (setting->value != off_value && setting->value != on_value) continue;
    set(on ? on_value : off_value);
    return mention;
  }
  for (const auto& [automatic, on_value] : kAutomatic) {
    if (setting->value != automatic || !on) continue;
    set(on_value);
    return mention;
  }
  return mention;
}

bool SettingNames::is_off(SettingKind kind) const {
  const SettingInfo* const setting = find(kind);
  return setting != nullptr && std::any_of(std::begin(kSwitches), std::end(kSwitches),
                                           [&](const Values& values) { return setting->value == values.off; });
}

SettingMention SettingNames::with_value(SettingKind kind) const {
  const SettingInfo* const setting = find(kind);
  return {kind, setting ? one_line(fmt::format("{} = {}", setting->name, setting->value)) : ""};
}

SettingMention SettingNames::now(SettingKind kind) const {
  const SettingInfo* const setting = find(kind);
  return {kind, setting ? one_line(fmt::format("{}, now {}", setting->name, setting->value)) : ""};
}

SettingMention SettingNames::only_now(SettingKind kind) const {
  const auto count = std::count_if(settings_.begin(), settings_.end(), [&](const SettingInfo& each) { return each.kind == kind; });
  return count == 1 ? now(kind) : SettingMention{kind};
}

SettingMention SettingNames::now_where(SettingKind kind, double value) const {
  constexpr double kSame = 1e-5;
  const SettingInfo* only = nullptr;
  for (const SettingInfo& each : settings_) {
    const std::optional<double> other = each.kind == kind ? parse_number<double>(each.value) : std::nullopt;
    if (!other || std::abs(*other - value) > kSame * std::abs(value)) continue;
    if (only != nullptr) return {kind};
    only = &each;
  }
  if (only == nullptr) return {kind};
  return {kind, one_line(fmt::format("{}, now {}", only->name, only->value)), "", only->name};
}

std::string SettingNames::given_beside(SettingKind kind) const {
  const SettingInfo* const setting = find(kind);
  if (setting == nullptr) return "";
  const std::string table = setting->name.substr(0, setting->name.rfind('.') + 1);
  std::string text;
  for (const SettingInfo& each : settings_)
    if (each.given && !table.empty() && each.name.starts_with(table))
      text += fmt::format("{}{}, now {}", text.empty() ? "" : ", ", each.name, each.value);
  return one_line(text);
}

std::optional<double> SettingNames::number(SettingKind kind) const {
  const SettingInfo* const setting = find(kind);
  return setting ? parse_number<double>(setting->value) : std::nullopt;
}

std::vector<double> SettingNames::numbers(SettingKind kind) const {
  std::vector<double> numbers;
  for (const SettingInfo& each : settings_)
    if (const std::optional<double> value = each.kind == kind ? parse_number<double>(each.value) : std::nullopt)
      numbers.push_back(*value);
  return numbers;
}

SettingMention SettingNames::changed(SettingKind kind, std::string_view from, std::string_view to) const {
  const SettingInfo* const setting = find(kind);
  return {kind, setting && setting->value == from ? fmt::format("{} = {}", one_line(setting->name), to) : "", std::string(to)};
}

bool SettingNames::has(std::string_view name) const {
  return std::any_of(settings_.begin(), settings_.end(), [&](const SettingInfo& each) { return each.name == name; });
}

std::string in_brackets(std::initializer_list<std::string> names) {
  std::string text;
  for (const std::string& name : names)
    if (!name.empty()) text += (text.empty() ? " (" : ", ") + name;
  return text.empty() ? "" : text + ")";
}

}  // namespace ulpscope
