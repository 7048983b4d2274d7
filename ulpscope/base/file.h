// Writing small files so that no reader ever sees half of one.
#pragma once

#include <filesystem>
#include <string_view>

namespace ulpscope {

// Replaces the file at `path` by one with these contents, whole or not at all: also after a crash or a loss of power, `path` holds
// either what it held before or all of `contents`. Throws where that is not possible, and leaves nothing behind.
void atomic_write_file(const std::filesystem::path& path, std::string_view contents);

}  // namespace ulpscope
