// A folder that is removed with the object, and the files in it.
#pragma once

#include <string>

namespace ulpscope::trace_test {

class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::string read_file(const std::string& path);
void write_file(const std::string& path, const std::string& bytes);

// What `command` prints, and its exit status.
struct Output {
  int status = -1;
  std::string text;
};
Output run(const std::string& command);

}  // namespace ulpscope::trace_test
