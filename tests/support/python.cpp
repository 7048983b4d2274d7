#include "tests/support/python.h"

#include <cstdlib>

namespace ulpscope {

std::string find_python(const std::string& module) {
  for (const std::string python : {"/usr/bin/python3", "python3"}) {
    if (std::system((python + " -c 'import " + module + "' 2>/dev/null").c_str()) == 0) return python;
  }
  return "";
}

}  // namespace ulpscope
