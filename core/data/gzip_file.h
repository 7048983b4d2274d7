// A file, a pipe or standard input that may be compressed with gzip, opened once and read from its beginning to its end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace ulpscope {

class GzipFile {
 public:
  // "-" is standard input. `expected`: what messages say the file should hold. Throws Error (unreadable).
  GzipFile(const std::string& path, const std::string& expected);
  ~GzipFile();

  const std::string& name() const { return name_; }   // for messages
  bool is_compressed() const { return compressed_; }  // with gzip, whatever its name
  bool is_seekable() const;                           // no pipe: it can be opened and read again
  // The first bytes, at most so many, which read returns as well. Before the first read. Throws as read does.
  std::span<const uint8_t> peek(size_t most);
  // Up to `size` bytes; fewer at the end of the file. Throws Error (unreadable) where compressed data are damaged, end early, or
  // are followed by bytes that are neither another compressed part nor zeros.
  size_t read(uint8_t* out, size_t size);

 private:
  struct Inflater;  // zlib's state
  struct Descriptor {
    ~Descriptor();
    int value = -1;
  };

  bool fill();  // more bytes of the file behind those that are left; false at its end
  size_t read_plain(uint8_t* out, size_t size);
  size_t read_compressed(uint8_t* out, size_t size);
  bool begin_part();  // whether another compressed part follows

  std::string name_;
  Descriptor descriptor_;
  std::vector<uint8_t> input_;  // of the file; those before begin_ have been used
  size_t begin_ = 0;
  bool compressed_ = false, in_part_ = false;
  std::unique_ptr<Inflater> inflater_;
  std::vector<uint8_t> peeked_;  // what peek has read, and read has not returned
};

}  // namespace ulpscope
