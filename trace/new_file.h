// A file that is made under another name and takes its own once it is good, so that whatever goes wrong before leaves an older file
// of that name as it was. Internal to trace/.
#pragma once

#include <string>

namespace ulpscope::trace_detail {

class NewFile {
 public:
  // Throws Error: usage where `path` exists and may not be overwritten, failed where nothing can be written there.
  NewFile(const std::string& path, bool overwrite);
  ~NewFile();
  NewFile(const NewFile&) = delete;

  const std::string& path() const { return path_; }
  // Where to write; in the same folder.
  const std::string& temporary() const { return temporary_; }
  // Gives the file its name. It may be open.
  void take_name();

 private:
  std::string path_, target_, temporary_;
  bool overwrite_;
  bool named_ = false;
};

}  // namespace ulpscope::trace_detail
