#include "ulpscope/core/data/gzip_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "ulpscope/base/error.h"

namespace ulpscope {

namespace {

constexpr size_t kReadAtOnce = size_t{1} << 18;
constexpr uint8_t kGzipMagic[] = {0x1F, 0x8B};
constexpr int kGzipWindow = 15 + 16;  // zlib: the largest window, and gzip's header and check sum around the data

}  // namespace

struct GzipFile::Inflater {
  Inflater() {
    if (inflateInit2(&stream, kGzipWindow) != Z_OK) throw failed_error("no memory to read gzip data");
  }
  Inflater(const Inflater&) = delete;
  ~Inflater() { inflateEnd(&stream); }

  z_stream stream{};
};

GzipFile::GzipFile(const std::string& path, const std::string& expected) : name_(path == "-" ? "standard input" : path) {
  descriptor_.value = path == "-" ? ::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0) : ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const int error = errno;
  struct stat status {};
  const bool is_open = descriptor_.value >= 0;
  const bool is_folder = is_open && ::fstat(descriptor_.value, &status) == 0 && S_ISDIR(status.st_mode);
  if (is_open && !is_folder) {
    while (input_.size() < std::size(kGzipMagic) && fill()) continue;
    compressed_ = begin_part();
    return;
  }
  if (is_folder) throw unreadable_error("{}: a folder, expected a file of {}", name_, expected);
  if (error == ENOENT) throw unreadable_error("{}: no such file, expected {}", name_, expected);
  throw unreadable_error("{}: cannot be opened ({}), expected {}", name_, std::strerror(error), expected);
}

GzipFile::~GzipFile() = default;

GzipFile::Descriptor::~Descriptor() {
  if (value >= 0) ::close(value);
}

bool GzipFile::is_seekable() const { return ::lseek(descriptor_.value, 0, SEEK_CUR) >= 0; }

bool GzipFile::fill() {
  input_.erase(input_.begin(), input_.begin() + static_cast<std::ptrdiff_t>(begin_));
  begin_ = 0;
  const size_t kept = input_.size();
  input_.resize(kept + kReadAtOnce);
  ssize_t got = 0;
  do {
    got = ::read(descriptor_.value, input_.data() + kept, kReadAtOnce);
  } while (got < 0 && errno == EINTR);
  input_.resize(kept + static_cast<size_t>(std::max<ssize_t>(got, 0)));
  if (got < 0) throw unreadable_error("{}: cannot be read: {}", name_, std::strerror(errno));
  return got > 0;
}

bool GzipFile::begin_part() {
  if (input_.size() - begin_ < std::size(kGzipMagic) || std::memcmp(input_.data() + begin_, kGzipMagic, std::size(kGzipMagic)) != 0)
    return false;
  if (!inflater_) inflater_ = std::make_unique<Inflater>();
  inflateReset(&inflater_->stream);
  in_part_ = true;
  return true;
}

std::span<const uint8_t> GzipFile::peek(size_t most) {
  const size_t before = peeked_.size();
  if (before < most) {
    std::vector<uint8_t> bytes(most - before);
    bytes.resize(compressed_ ? read_compressed(bytes.data(), bytes.size()) : read_plain(bytes.data(), bytes.size()));
    peeked_.insert(peeked_.end(), bytes.begin(), bytes.end());
  }
  return std::span<const uint8_t>(peeked_).first(std::min(most, peeked_.size()));
}

size_t GzipFile::read(uint8_t* out, size_t size) {
  const size_t peeked = std::min(size, peeked_.size());
  std::copy_n(peeked_.begin(), peeked, out);
  peeked_.erase(peeked_.begin(), peeked_.begin() + static_cast<std::ptrdiff_t>(peeked));
  return peeked + (compressed_ ? read_compressed(out + peeked, size - peeked) : read_plain(out + peeked, size - peeked));
}

size_t GzipFile::read_plain(uint8_t* out, size_t size) {
  size_t done = 0;
  while (done < size && (begin_ < input_.size() || fill())) {
    const size_t count = std::min(size - done, input_.size() - begin_);
    std::memcpy(out + done, input_.data() + begin_, count);
    begin_ += count;
    done += count;
  }
  return done;
}

size_t GzipFile::read_compressed(uint8_t* out, size_t size) {
  z_stream& stream = inflater_->stream;
  size_t done = 0;
  while (done < size) {
    if (!in_part_) {
      // gzip pads with zeros where files end in blocks, as on tapes.
      while (begin_ < input_.size() && input_[begin_] == 0) ++begin_;
      const bool is_end = input_.size() - begin_ < std::size(kGzipMagic) && !fill();
      if (is_end && begin_ == input_.size()) break;
      if (!is_end && (begin_ == input_.size() || input_[begin_] == 0 || input_.size() - begin_ < std::size(kGzipMagic))) continue;
      if (!begin_part()) throw unreadable_error("{}: damaged gzip data (bytes follow that are not compressed)", name_);
    }
    if (begin_ == input_.size() && !fill()) throw unreadable_error("{}: damaged gzip data (the file is truncated)", name_);
    const size_t given = std::min(input_.size() - begin_, kReadAtOnce), wanted = std::min(size - done, kReadAtOnce);
    stream.next_in = input_.data() + begin_;
    stream.avail_in = static_cast<uInt>(given);
    stream.next_out = out + done;
    stream.avail_out = static_cast<uInt>(wanted);
    const int code = inflate(&stream, Z_NO_FLUSH);
    begin_ += given - stream.avail_in;
    done += wanted - stream.avail_out;
    if (code == Z_STREAM_END) {
      in_part_ = false;
    } else if (code == Z_MEM_ERROR) {
      throw failed_error("{}: no memory to read gzip data", name_);
    } else if (code != Z_OK && code != Z_BUF_ERROR) {
      throw unreadable_error("{}: damaged gzip data ({})", name_, stream.msg != nullptr ? stream.msg : "unknown");
    }
  }
  return done;
}

}  // namespace ulpscope
