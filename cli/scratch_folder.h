// A folder for traces that are looked at and not kept.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

#include "ulpscope/base/error.h"

namespace ulpscope::cli {

class ScratchFolder {
 public:
  // Its name begins with `name`. Throws Error (failed) where there is no room for it.
  explicit ScratchFolder(const std::string& name) : path_((std::filesystem::temp_directory_path() / (name + "-XXXXXX")).string()) {
    if (mkdtemp(path_.data()) == nullptr) throw failed_error("cannot create a folder like '{}'", path_);
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
