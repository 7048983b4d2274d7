// Presets: the files of experiments/, compiled in.
#include "ulpscope/core/run/experiment.h"
#include "ulpscope/core/run/preset_files.h"

namespace ulpscope {

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const PresetFile& file : preset_files()) names.emplace_back(file.name);
  return names;
}

std::optional<Experiment> find_preset(std::string_view name) {
  for (const PresetFile& file : preset_files()) {
    if (file.name == name) return parse_experiment(file.text, "preset " + std::string(name));
  }
  return std::nullopt;
}

}  // namespace ulpscope
