#include "ulpscope/analyzers/subject/advice.h"

#include <algorithm>

namespace ulpscope {

void Advice::note(SettingChange change) {
  if (std::find(changes.begin(), changes.end(), change) == changes.end()) changes.push_back(std::move(change));
}

Setting Advice::note(const SettingMention& setting, SettingChange::Way way) {
  note({.kind = setting.kind, .way = way, .value = way == SettingChange::Way::set ? setting.value : "", .name = setting.name});
  return setting.words;
}

Setting Advice::set(const SettingMention& setting, std::string value, std::string module) {
  note({setting.kind, SettingChange::Way::set, std::move(value), std::move(module)});
  return setting.words;
}

Advice& Advice::operator+=(const Advice& other) {
  text += other.text;
  for (const SettingChange& change : other.changes) note(change);
  return *this;
}

}  // namespace ulpscope
