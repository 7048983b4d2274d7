// Presets: the files of experiments/, compiled in.
#include <filesystem>
#include <system_error>

#include "ulpscope/base/error.h"
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

Experiment named_experiment(const std::string& name, std::span<const Override> overrides) {
  std::error_code error;
  std::optional<Experiment> preset = find_preset(name);
  if (!preset || std::filesystem::is_regular_file(name, error)) {
    const bool is_path = name.find('/') != std::string::npos || name.ends_with(".toml") || std::filesystem::exists(name, error);
    if (is_path) return load_experiment(name, overrides);
    const std::vector<std::string> presets = preset_names();
    const std::string hint = did_you_mean(name, presets);
    if (!hint.empty()) throw usage_error("'{}' is neither a file nor a preset{}", name, hint);
    throw usage_error("'{}' is neither a file nor one of the presets {}", name, join_words(presets));
  }
  for (const Override& setting : overrides) apply_override(*preset, setting);
  validate(*preset);
  return *std::move(preset);
}

}  // namespace ulpscope
