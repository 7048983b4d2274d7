// Files: written so that no reader ever sees half of one and none is replaced by mistake, and read in place.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "ulpscope/base/error.h"

namespace ulpscope {

// A name beside `target` that no file has, TARGET.new-HOST-PROCESS-N, for one that is to take its place. Removes what killed
// processes have left under such names: those of this machine since it started, and of this container, whose process is gone.
std::string new_name_beside(const std::filesystem::path& target);

// A file that is written under another name and then takes the place of `target`, whole or not at all: also after a crash or a loss
// of power, `target` is either what it was or all of the new file.
class Replacement {
 public:
  explicit Replacement(std::filesystem::path target);
  Replacement(const Replacement&) = delete;
  ~Replacement();  // leaves nothing behind that did not take its place

  // Where to write: beside `target`. No such file exists yet.
  const std::string& path() const { return path_; }
  // The file has been written and closed. Throws Error (failed).
  void commit();

 private:
  std::filesystem::path target_;
  std::string path_;
};

// Replaces the file at `path` by one with these contents. Throws Error (failed).
void atomic_write_file(const std::filesystem::path& path, std::string_view contents);

// Throws Error (failed) where no file can be created beside `path`, and so none takes its place.
void check_creatable(const std::filesystem::path& path);

// The first bytes of a file, at most so many: fewer of a shorter one, none of one that cannot be read.
std::string first_bytes(const std::string& path, size_t most);

// The Errors (usage) for something at `path` that may not, and that cannot, be replaced by a new file: it is none, or is not
// `expected`, as in "a trace".
Error file_exists_error(const std::string& path);
Error not_a_file_error(const std::string& path);
Error other_kind_error(const std::string& path, std::string_view expected);

// The contents of a file, read by the system as they are touched. Throws Error (unreadable).
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);
  MappedFile(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const uint8_t> bytes() const { return bytes_; }

 private:
  std::span<const uint8_t> bytes_;
};

// A file that is read in pieces, anywhere. Unlike a mapped one, it costs the pieces only: a page that is touched in a map brings in
// those around it. Throws Error (unreadable).
class RandomAccessFile {
 public:
  explicit RandomAccessFile(const std::string& path);
  // Takes over an open file, which messages call `name`.
  RandomAccessFile(int descriptor, std::string name);
  RandomAccessFile(const RandomAccessFile&) = delete;
  ~RandomAccessFile();

  size_t size() const { return size_; }
  // All of `bytes`, which lie from `offset` on.
  void read(size_t offset, std::span<uint8_t> bytes) const;

 private:
  std::string name_;
  int descriptor_;
  size_t size_ = 0;
};

}  // namespace ulpscope
