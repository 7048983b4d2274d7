#include "ulpscope/core/data/gzip_file.h"

#include <zlib.h>

#include <algorithm>
#include <filesystem>

#include "ulpscope/base/error.h"

namespace ulpscope {

namespace {

constexpr size_t kChunk = size_t{1} << 20;

gzFile handle(void* file) { return static_cast<gzFile>(file); }

std::string describe(int code, const char* message) {
  if (code == Z_BUF_ERROR) return "the file is truncated";
  std::string text = message;  // "PATH: what": zlib puts the path first
  if (const size_t colon = text.rfind(": "); colon != std::string::npos) text.erase(0, colon + 2);
  return text;
}

}  // namespace

void GzipFile::Close::operator()(void* file) const { gzclose(handle(file)); }

GzipFile::GzipFile(const std::string& path, const std::string& expected) : path_(path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) throw unreadable_error("{}: no such file, expected {}", path, expected);
  if (std::filesystem::is_directory(path, error)) throw unreadable_error("{}: a folder, expected a file of {}", path, expected);
  file_.reset(gzopen(path.c_str(), "rb"));
  if (!file_) throw unreadable_error("{}: cannot be opened, expected {}", path, expected);
}

size_t GzipFile::read(uint8_t* out, size_t size) {
  size_t done = 0;
  while (done < size) {
    const int got = gzread(handle(file_.get()), out + done, static_cast<unsigned>(std::min(size - done, kChunk)));
    int code = Z_OK;
    const char* message = gzerror(handle(file_.get()), &code);
    // Z_BUF_ERROR: a compressed stream that ends early.
    if (got < 0 || code == Z_BUF_ERROR) throw unreadable_error("{}: damaged gzip data ({})", path_, describe(code, message));
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  return done;
}

}  // namespace ulpscope
