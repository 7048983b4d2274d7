#include "tests/support/project_files.h"

namespace ulpscope {

std::string project_file(const std::string& path) { return path.empty() ? ULPSCOPE_SOURCE_DIR : ULPSCOPE_SOURCE_DIR "/" + path; }

std::string built_file(const std::string& path) { return ULPSCOPE_BINARY_DIR "/" + path; }

std::string program_file() { return built_file("bin/ulpscope"); }

}  // namespace ulpscope
