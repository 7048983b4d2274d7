// Advice: sentences, and the changes of settings that these name. A change that is named through it is tried where changes are
// tried.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "ulpscope/analyzers/report/sentence.h"
#include "ulpscope/analyzers/report/setting_change.h"
#include "ulpscope/analyzers/subject/setting_names.h"

namespace ulpscope {

// A phrase in the title of a run that diverged: what trials may refute.
inline constexpr Template kNoFormatHelps{"run.diverged.no_format_helps", ", and precision is not the cause"};

class Advice {
 public:
  Advice() = default;
  Advice(Sentence one) : text(std::move(one)) {}
  Advice(Sentences some) : text(std::move(some)) {}

  // Each notes the change, and gives what the words call the setting, nothing where the trace has no such one.
  Setting lower(const SettingMention& setting) { return note(setting, SettingChange::Way::lower); }
  Setting raise(const SettingMention& setting) { return note(setting, SettingChange::Way::raise); }
  // To the value that the mention has.
  Setting set(const SettingMention& setting) { return note(setting, SettingChange::Way::set); }
  Setting set(const SettingMention& setting, std::string value, std::string module = "");
  // That words name otherwise.
  void note(SettingChange change);

  // The sentences of `other` behind these.
  Advice& operator+=(const Advice& other);
  friend Advice operator+(Advice advice, const Advice& other) { return std::move(advice += other); }

  Sentences text;
  std::vector<SettingChange> changes;

 private:
  Setting note(const SettingMention& setting, SettingChange::Way way);
};

}  // namespace ulpscope
