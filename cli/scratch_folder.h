// A folder for traces that are looked at and not kept.
#pragma once

#include <sys/stat.h>

#include <cerrno>
#include <filesystem>
#include <string>

#include "ulpscope/base/error.h"
#include "ulpscope/base/file.h"

namespace ulpscope::cli {

class ScratchFolder {
 public:
  // Its name begins with `name`. Removes those of that name that killed processes have left. Throws Error (failed) where there is
  // no room for it.
  explicit ScratchFolder(const std::string& name) {
    const std::string target = (std::filesystem::temp_directory_path() / name).string();
    do {
      path_ = new_name_beside(target);
      if (mkdir(path_.c_str(), 0700) == 0) return;
    } while (errno == EEXIST);
    throw failed_error("cannot create a folder like '{}'", path_);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ~ScratchFolder() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  std::string file(const char* name) const { return (std::filesystem::path(path_) / name).string(); }

 private:
  std::string path_;
};

}  // namespace ulpscope::cli
