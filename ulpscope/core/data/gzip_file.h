// A file that may be compressed with gzip, read from its beginning to its end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace ulpscope {

class GzipFile {
 public:
  // `expected`: what messages say the file should hold. Throws Error (unreadable).
  GzipFile(const std::string& path, const std::string& expected);

  // Up to `size` bytes; fewer at the end of the file. Throws Error (unreadable) where compressed data are damaged or end early.
  size_t read(uint8_t* out, size_t size);

 private:
  struct Close {
    void operator()(void* file) const;
  };
  std::string path_;
  std::unique_ptr<void, Close> file_;  // a gzFile
};

}  // namespace ulpscope
