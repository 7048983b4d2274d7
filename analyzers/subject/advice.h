// What helps, in words, and the changes of settings that these name: what is named through it is tried where changes are tried.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ulpscope/analyzers/report/setting_change.h"
#include "ulpscope/analyzers/subject/setting_names.h"

namespace ulpscope {

// Behind advice on a run that diverged, before the full stop: what trials may refute.
inline constexpr std::string_view kNoFormatHelps = ": no format would have helped";

class Advice {
 public:
  Advice() = default;
  Advice(std::string words) : text(std::move(words)) {}
  Advice(const char* words) : text(words) {}

  // Each notes the change, and gives what the words call the setting, "" where the trace has no such one.
  std::string lower(const SettingMention& setting) { return note(setting, SettingChange::Way::lower); }
  std::string raise(const SettingMention& setting) { return note(setting, SettingChange::Way::raise); }
  // To the value that the mention has.
  std::string set(const SettingMention& setting) { return note(setting, SettingChange::Way::set); }
  std::string set(const SettingMention& setting, std::string value, std::string module = "");
  // That words name otherwise.
  void note(SettingChange change);

  // The words of `other` behind these.
  Advice& operator+=(const Advice& other);
  friend Advice operator+(Advice advice, const Advice& other) { return std::move(advice += other); }

  std::string text;
  std::vector<SettingChange> changes;

 private:
  std::string note(const SettingMention& setting, SettingChange::Way way);
};

}  // namespace ulpscope
