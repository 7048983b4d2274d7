#include "ulpscope/base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "ulpscope/base/hash.h"

namespace ulpscope {

namespace {

[[noreturn]] void fail(std::string_view what, const std::filesystem::path& path) {
  throw failed_error("cannot {} '{}': {}", what, path.string(), std::strerror(errno));
}

// Closes a file where an error comes first.
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(const Descriptor&) = delete;
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  int number() const { return number_; }
  int close() { return ::close(std::exchange(number_, -1)); }
  int release() { return std::exchange(number_, -1); }

 private:
  int number_;
};

// Creates what is to take the place of `target`.
Descriptor create(const Replacement& replacement, const std::filesystem::path& target) {
  const int file = open(replacement.path().c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (file < 0) fail("create a file beside", target);
  return Descriptor(file);
}

}  // namespace

namespace {

// What numbers of processes count in: a start of this machine, and its namespace of processes. Nothing where the system does not
// say.
std::string host_of_processes() {
  struct stat names {};
  std::string boot = first_bytes("/proc/sys/kernel/random/boot_id", 64);
  if (boot.empty() || stat("/proc/self/ns/pid", &names) != 0) return "";
  return fmt::format("{:016x}", hash_text(fmt::format("{}{}", boot, names.st_ino)));
}

// Whether what follows the host in a name of ours, "PROCESS-N" or "PROCESS-N.source", names a process that is gone.
bool is_of_dead_process(std::string_view rest) {
  const auto number = [&](auto& value) {
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
    rest.remove_prefix(static_cast<size_t>(end - rest.data()));
    return error == std::errc();
  };
  pid_t process = 0;
  unsigned serial = 0;
  if (!number(process) || process <= 0 || !rest.starts_with('-')) return false;
  rest.remove_prefix(1);
  return number(serial) && (rest.empty() || rest == ".source") && kill(process, 0) != 0 && errno == ESRCH;
}

}  // namespace

std::string new_name_beside(const std::filesystem::path& target) {
  namespace fs = std::filesystem;
  static const std::string host = host_of_processes();
  static std::atomic<unsigned> serial = 0;
  if (!host.empty()) {
    const std::string beginning = fmt::format("{}.new-{}-", target.filename().string(), host);
    std::error_code error, ignored;
    std::vector<fs::path> left;
    for (fs::directory_iterator entry(target.has_parent_path() ? target.parent_path() : ".", error), end; !error && entry != end;
         entry.increment(error)) {
      const std::string name = entry->path().filename().string();
      if (name.starts_with(beginning) && is_of_dead_process(std::string_view(name).substr(beginning.size())))
        left.push_back(entry->path());
    }
    for (const fs::path& path : left) fs::remove_all(path, ignored);
  }
  std::string name;
  struct stat existing;
  do {
    name = fmt::format("{}.new-{}-{}-{}", target.string(), host, getpid(), serial++);
  } while (lstat(name.c_str(), &existing) == 0);
  return name;
}

Replacement::Replacement(std::filesystem::path target) : target_(std::move(target)), path_(new_name_beside(target_)) {}

Replacement::~Replacement() { unlink(path_.c_str()); }

void Replacement::commit() {
  Descriptor file(open(path_.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.number() < 0) fail("write", target_);
  struct stat replaced;
  if (stat(target_.c_str(), &replaced) == 0 && fchmod(file.number(), replaced.st_mode & 07777) != 0)
    fail("set the mode of", target_);
  if (fsync(file.number()) != 0 || file.close() != 0) fail("write", target_);
  if (rename(path_.c_str(), target_.c_str()) != 0) fail("replace", target_);
  // The new name is on disk once the folder is. Some file systems cannot sync a folder; the contents are safe there all the same.
  const std::filesystem::path parent = target_.has_parent_path() ? target_.parent_path() : std::filesystem::path(".");
  const Descriptor folder(open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.number() >= 0) fsync(folder.number());
}

void check_creatable(const std::filesystem::path& path) {
  const Replacement replacement(path);
  create(replacement, path);
}

void atomic_write_file(const std::filesystem::path& path, std::string_view contents) {
  Replacement replacement(path);
  Descriptor file = create(replacement, path);
  while (!contents.empty()) {
    const ssize_t written = write(file.number(), contents.data(), contents.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("write", path);
    contents.remove_prefix(static_cast<size_t>(written));
  }
  if (file.close() != 0) fail("write", path);
  replacement.commit();
}

std::string first_bytes(const std::string& path, size_t most) {
  std::ifstream file(path, std::ios::binary);
  std::string bytes(most, '\0');
  file.read(bytes.data(), static_cast<std::streamsize>(most));
  bytes.resize(static_cast<size_t>(file.gcount()));
  return bytes;
}

Error file_exists_error(const std::string& path) { return usage_error("'{}' exists; --force replaces it", path); }

Error not_a_file_error(const std::string& path) { return usage_error("'{}' is not a regular file, and is not replaced", path); }

Error other_kind_error(const std::string& path, std::string_view expected) {
  return usage_error("'{}' is not {}, so none replaces it; remove it first", path, expected);
}

namespace {

Error unreadable_file(const std::string& path, const char* why) { return unreadable_error("cannot read '{}': {}", path, why); }

// Of a file that was opened for reading.
size_t size_of_file(int descriptor, const std::string& path) {
  struct stat status {};
  if (descriptor < 0 || ::fstat(descriptor, &status) != 0) throw unreadable_file(path, std::strerror(errno));
  if (!S_ISREG(status.st_mode)) throw unreadable_file(path, "it is not a file");
  return static_cast<size_t>(status.st_size);
}

int open_to_read(const std::string& path) {
  return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe must not keep it waiting
}

}  // namespace

MappedFile::MappedFile(const std::string& path) {
  Descriptor file(open_to_read(path));
  const size_t size = size_of_file(file.number(), path);
  if (size == 0) return;
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.number(), 0);
  if (data == MAP_FAILED) throw unreadable_file(path, std::strerror(errno));
  bytes_ = {static_cast<const uint8_t*>(data), size};
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<uint8_t*>(bytes_.data()), bytes_.size());
}

RandomAccessFile::RandomAccessFile(const std::string& path) : RandomAccessFile(open_to_read(path), path) {}

RandomAccessFile::RandomAccessFile(int descriptor, std::string name) : name_(std::move(name)), descriptor_(descriptor) {
  Descriptor file(descriptor);
  size_ = size_of_file(descriptor, name_);
  file.release();
}

RandomAccessFile::~RandomAccessFile() { ::close(descriptor_); }

void RandomAccessFile::read(size_t offset, std::span<uint8_t> bytes) const {
  while (!bytes.empty()) {
    const ssize_t got = ::pread(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw unreadable_file(name_, std::strerror(errno));
    if (got == 0) throw unreadable_file(name_, "it has become shorter");
    offset += static_cast<size_t>(got);
    bytes = bytes.subspan(static_cast<size_t>(got));
  }
}

}  // namespace ulpscope
