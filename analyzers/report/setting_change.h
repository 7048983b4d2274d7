// A change of a setting that advice proposes, as data: programs read it, and trials make it.
#pragma once

#include <optional>
#include <string>

#include "ulpscope/trace/records.h"

namespace ulpscope {

struct SettingChange {
  enum class Way : uint8_t { lower, raise, set };

  SettingKind kind = SettingKind::other;
  Way way = Way::set;
  std::string value = {};   // Way::set: as the producer would read it
  std::string module = {};  // of that module, or for SettingKind::precision_of_ops of that op; "": of the run
  // The producer's name: of SettingKind::other, and of the learning rate where that of one group is meant.
  std::string name = {};
  std::optional<double> now = {};  // the value that a constant of the module has

  bool operator==(const SettingChange&) const = default;
};
const char* name_of(SettingChange::Way way);

}  // namespace ulpscope
