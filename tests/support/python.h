// The Python that a test runs.
#pragma once

#include <string>

namespace ulpscope {

// A python3 that can import `module`: the system's, which `./dev setup` installs modules for, before the first in PATH; "" where
// neither can. scripts/doctor.sh looks for it in the same way.
std::string find_python(const std::string& module);

}  // namespace ulpscope
