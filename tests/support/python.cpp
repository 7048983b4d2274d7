#include "tests/support/python.h"

#include <fmt/format.h>

#include <cstdlib>

namespace ulpscope {

std::string find_python(const std::string& module) {
  for (const char* python : {"/usr/bin/python3", "python3"}) {
    const std::string command = fmt::format("{} -c 'import {}' 2>/dev/null", python, module);
    if (std::system(command.c_str()) == 0) return python;
  }
  return "";
}

}  // namespace ulpscope
