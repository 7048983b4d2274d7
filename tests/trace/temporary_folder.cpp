#include "temporary_folder.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace ulpscope::trace_test {

TemporaryFolder::TemporaryFolder() : path_((std::filesystem::temp_directory_path() / "ulpscope-trace-XXXXXX").string()) {
  if (!mkdtemp(path_.data())) throw std::runtime_error("cannot make a temporary folder");
}
TemporaryFolder::~TemporaryFolder() {
  std::error_code error;
  std::filesystem::remove_all(path_, error);
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

Output run(const std::string& command) {
  Output output;
  FILE* pipe = popen(command.c_str(), "r");
  if (!pipe) return output;
  char buffer[65536];
  for (size_t count; (count = fread(buffer, 1, sizeof(buffer), pipe)) > 0;) output.text.append(buffer, count);
  const int status = pclose(pipe);
  output.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return output;
}

}  // namespace ulpscope::trace_test
