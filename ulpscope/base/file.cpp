#include "ulpscope/base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "ulpscope/base/error.h"

namespace ulpscope {

namespace {

// An open temporary file beside `target`, removed again unless it took its place.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::filesystem::path& target) : target_(target) {
    static std::atomic<unsigned> serial = 0;
    do {
      path_ = fmt::format("{}.{}-{}.tmp", target.string(), getpid(), serial++);
      descriptor_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    } while (descriptor_ < 0 && errno == EEXIST);
    if (descriptor_ < 0) fail("create a file beside");
  }
  TemporaryFile(const TemporaryFile&) = delete;
  ~TemporaryFile() {
    if (descriptor_ >= 0) close(descriptor_);
    if (!kept_) unlink(path_.c_str());
  }

  void write_all(std::string_view contents) {
    while (!contents.empty()) {
      const ssize_t written = write(descriptor_, contents.data(), contents.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) fail("write");
      contents.remove_prefix(static_cast<size_t>(written));
    }
  }

  void replace_target() {
    struct stat replaced;
    if (stat(target_.c_str(), &replaced) == 0 && fchmod(descriptor_, replaced.st_mode & 07777) != 0) fail("set the mode of");
    if (fsync(descriptor_) != 0) fail("write");
    const int descriptor = std::exchange(descriptor_, -1);
    if (close(descriptor) != 0) fail("write");
    if (rename(path_.c_str(), target_.c_str()) != 0) fail("replace");
    kept_ = true;
    // The new name is on disk once the folder is. Some file systems cannot sync a folder; the contents are safe there all the same.
    const std::filesystem::path folder = target_.has_parent_path() ? target_.parent_path() : std::filesystem::path(".");
    const int folder_descriptor = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder_descriptor >= 0) {
      fsync(folder_descriptor);
      close(folder_descriptor);
    }
  }

 private:
  [[noreturn]] void fail(std::string_view what) const {
    throw failed_error("cannot {} '{}': {}", what, target_.string(), std::strerror(errno));
  }

  std::filesystem::path target_;
  std::string path_;
  int descriptor_ = -1;
  bool kept_ = false;
};

}  // namespace

void atomic_write_file(const std::filesystem::path& path, std::string_view contents) {
  TemporaryFile file(path);
  file.write_all(contents);
  file.replace_target();
}

}  // namespace ulpscope
