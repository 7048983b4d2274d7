// The text of the files in experiments/, as the build wrote it into preset_files.cpp.
#pragma once

#include <span>
#include <string_view>

namespace ulpscope {

struct PresetFile {
  std::string_view name, text;
};

std::span<const PresetFile> preset_files();

}  // namespace ulpscope
