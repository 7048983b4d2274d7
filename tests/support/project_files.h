// The files of the project and of its build that tests use. Their paths are known to one source alone: on the command lines of all
// tests they would keep a clone in another folder from using what ccache has.
#pragma once

#include <string>

namespace ulpscope {

std::string project_file(const std::string& path);  // `path` in the folder of the project's sources; "" is that folder
std::string built_file(const std::string& path);    // `path` in the folder that is built in

// The program.
std::string program_file();

}  // namespace ulpscope
