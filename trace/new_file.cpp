#include "ulpscope/trace/new_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "ulpscope/base/file.h"
#include "ulpscope/base/hdf5/hdf5.h"
#include "ulpscope/trace/file_writer.h"

namespace ulpscope::trace_detail {

namespace fs = std::filesystem;

namespace {

bool is_being_written(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return false;
  const bool locked = writer_holds_lock(descriptor).value_or(false);
  ::close(descriptor);
  return locked;
}

// Whether it is an HDF5 file that can be opened and is no trace.
bool has_other_contents(const std::string& path) {
  try {
    return !hdf5::File::open(path, path).signed_attribute("/", kSchemaAttribute);
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

NewFile::NewFile(const std::string& path, bool overwrite) : path_(path), target_(path), overwrite_(overwrite) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (fs::exists(status)) {
    if (!fs::is_regular_file(status)) throw not_a_file_error(path);
    if (!overwrite) throw file_exists_error(path);
    if (is_being_written(path)) throw usage_error("'{}' is being written by another process", path);
    // The trace of a killed writer cannot always be opened.
    if (!hdf5::may_be_hdf5(path) || has_other_contents(path)) throw other_kind_error(path, "a trace");
    // A link stays one.
    target_ = fs::canonical(path, error).string();
    if (error) throw failed_error("cannot write '{}': {}", path, error.message());
  }
  const fs::path parent = fs::path(target_).parent_path();
  const std::string folder = parent.empty() ? "." : parent.string();
  if (!fs::is_directory(folder, error)) throw failed_error("cannot write '{}': there is no folder '{}'", path, folder);
  if (::access(folder.c_str(), W_OK | X_OK) != 0) throw failed_error("cannot write '{}': {}", path, std::strerror(errno));
  temporary_ = new_name_beside(target_);
}

NewFile::~NewFile() {
  if (!named_) ::unlink(temporary_.c_str());
}

void NewFile::take_name() {
  // Without leave to overwrite, a file that has appeared since is not overwritten either.
  int status = overwrite_ ? ::rename(temporary_.c_str(), target_.c_str())
                          : ::renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, target_.c_str(), RENAME_NOREPLACE);
  if (status != 0 && !overwrite_ && (errno == EINVAL || errno == ENOSYS)) {
    std::error_code error;
    if (fs::exists(target_, error)) throw file_exists_error(path_);
    status = ::rename(temporary_.c_str(), target_.c_str());
  }
  if (status != 0 && errno == EEXIST) throw file_exists_error(path_);
  if (status != 0) throw failed_error("cannot write '{}': {}", path_, std::strerror(errno));
  named_ = true;
}

}  // namespace ulpscope::trace_detail
