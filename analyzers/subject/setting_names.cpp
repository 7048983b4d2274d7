#include "ulpscope/analyzers/subject/setting_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ulpscope/base/parse_number.h"
#include "ulpscope/base/text.h"

namespace ulpscope {

namespace {

// SwitchWords as producers write them. What decides by itself is neither, and can be switched to both.
struct SwitchWords {
  std::string_view off, on;
};
constexpr SwitchWords kSwitches[] = {{"false", "true"}, {"False", "True"},     {"0", "1"},
                                     {"off", "on"},     {"\"off\"", "\"on\""}, {"'off'", "'on'"}};
constexpr SwitchWords kAutomatic[] = {{"auto", "on"}, {"\"auto\"", "\"on\""}, {"'auto'", "'on'"}};

}  // namespace

const SettingInfo* SettingNames::find(SettingKind kind) const {
  const auto found = std::find_if(settings_.begin(), settings_.end(), [&](const SettingInfo& each) { return each.kind == kind; });
  return found == settings_.end() ? nullptr : &*found;
}

SettingMention SettingNames::name(SettingKind kind) const { return name_for(kind, ""); }

SettingMention SettingNames::name_for(SettingKind kind, const std::string& module) const {
  const SettingInfo* const setting = find(kind);
  return {kind, {setting ? one_line(setting->name) : words_->without_setting(kind, one_line(module), device_)}};
}

SettingMention SettingNames::of_modules(const std::string& modules) const {
  constexpr SettingKind kKind = SettingKind::precision_of_modules;
  const SettingInfo* const setting = find(kKind);
  // The value of the setting is a table of modules: TOML.
  if (setting != nullptr)
    return {kKind, {.name = fmt::format("{}.\"{}\"", one_line(setting->name), one_line(modules)), .to = std::string(words_->fp32)}};
  return {kKind, {words_->without_setting(kKind, one_line(modules), device_)}};
}

SettingMention SettingNames::now_named(std::string_view name) const {
  const auto found = std::find_if(settings_.begin(), settings_.end(), [&](const SettingInfo& each) { return each.name == name; });
  if (name.empty() || found == settings_.end()) return {SettingKind::other};
  return {found->kind, {.name = one_line(found->name), .now = one_line(found->value)}, "", found->name};
}

SettingMention SettingNames::switched(SettingKind kind, bool on) const {
  // By names alone, as the producer has it.
  SettingMention mention{kind, {}, std::string(on ? words_->on : words_->off)};
  const SettingInfo* const setting = find(kind);
  if (setting == nullptr) {
    if (on) mention.words.name = words_->without_setting(kind, "", device_);
    return mention;
  }
  mention.words.name = one_line(setting->name);
  const auto set = [&](std::string_view value) {
    mention.value = value;
    mention.words.to = value;
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
                                           [&](const SwitchWords& values) { return setting->value == values.off; });
}

SettingMention SettingNames::with_value(SettingKind kind) const {
  const SettingInfo* const setting = find(kind);
  if (setting == nullptr) return {kind};
  return {kind, {.name = one_line(setting->name), .is = one_line(setting->value)}};
}

SettingMention SettingNames::now(SettingKind kind) const {
  const SettingInfo* const setting = find(kind);
  if (setting == nullptr) return {kind};
  return {kind, {.name = one_line(setting->name), .now = one_line(setting->value)}};
}

SettingMention SettingNames::now_or_name(SettingKind kind) const {
  const SettingMention setting = now(kind);
  return setting.empty() ? name(kind) : setting;
}

SettingMention SettingNames::proposed(SettingKind kind, std::string_view value) const {
  SettingMention mention = now(kind);
  mention.value = value;
  if (!mention.empty()) mention.words.to = value;
  return mention;
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
  return {kind, {.name = one_line(only->name), .now = one_line(only->value)}, "", only->name};
}

SettingMention SettingNames::now_of(SettingKind kind, double value) const {
  const SettingMention only = only_now(kind);
  return only.empty() ? now_where(kind, value) : only;
}

Value::List SettingNames::given_beside(SettingKind kind) const {
  const SettingInfo* const setting = find(kind);
  if (setting == nullptr) return {};
  const std::string table = setting->name.substr(0, setting->name.rfind('.') + 1);
  Value::List beside;
  for (const SettingInfo& each : settings_)
    if (each.given && !table.empty() && each.name.starts_with(table))
      beside.push_back(Setting{.name = one_line(each.name), .is = one_line(each.value)});
  return beside;
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
  if (setting == nullptr || setting->value != from) return {kind, {}, std::string(to)};
  return {kind, {.name = one_line(setting->name), .to = std::string(to)}, std::string(to)};
}

bool SettingNames::has(std::string_view name) const {
  return !name.empty() &&
         std::any_of(settings_.begin(), settings_.end(), [&](const SettingInfo& each) { return each.name == name; });
}

}  // namespace ulpscope
