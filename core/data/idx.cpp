#include "ulpscope/core/data/idx.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "ulpscope/base/error.h"
#include "ulpscope/core/data/gzip_file.h"

namespace ulpscope {

namespace {

constexpr uint8_t kUnsignedByte = 8;
constexpr int kMaximumRank = 4;
constexpr int64_t kMaximumArrayElements = int64_t{1} << 34;
constexpr size_t kReadBytes = size_t{1} << 20;

}  // namespace

IdxArray read_idx(const std::string& path) {
  GzipFile file(path, "IDX data");
  uint8_t magic[4];
  if (file.read(magic, 4) != 4) throw unreadable_error("{}: shorter than the 4 bytes that an IDX file begins with", path);
  if (magic[0] != 0 || magic[1] != 0) {
    throw unreadable_error("{}: not an IDX file: expected it to begin with 00 00, found {:02x} {:02x}", path, magic[0], magic[1]);
  }
  if (magic[2] != kUnsignedByte) {
    throw unreadable_error("{}: expected IDX elements of type 08 (unsigned bytes), found type {:02x}", path, magic[2]);
  }
  const int rank = magic[3];
  if (rank < 1 || rank > kMaximumRank) {
    throw unreadable_error("{}: expected 1 to {} dimensions, found {} in the header", path, kMaximumRank, rank);
  }

  IdxArray array;
  array.offset = 4 + 4 * static_cast<size_t>(rank);
  array.is_compressed = file.is_compressed();
  int64_t count = 1;
  for (int i = 0; i < rank; ++i) {
    uint8_t bytes[4];
    if (file.read(bytes, 4) != 4)
      throw unreadable_error("{}: truncated in the header: expected {} extents, found {}", path, rank, i);
    const int64_t extent = int64_t{bytes[0]} << 24 | bytes[1] << 16 | bytes[2] << 8 | bytes[3];
    if (extent == 0) throw unreadable_error("{}: extent {} in the header is 0, expected at least 1", path, i);
    array.shape.push_back(extent);
    if (extent > kMaximumArrayElements / count) {
      throw unreadable_error("{}: the header claims more than {} elements (extents {})", path, kMaximumArrayElements,
                             fmt::join(array.shape, " x "));
    }
    count *= extent;
  }

  const auto expected = static_cast<size_t>(count);
  while (array.values.size() < expected) {
    const size_t before = array.values.size();
    const size_t wanted = std::min(expected - before, kReadBytes);
    array.values.resize(before + wanted);
    const size_t got = file.read(array.values.data() + before, wanted);
    if (got < wanted) {
      throw unreadable_error("{}: truncated: the header ({}) promises {} bytes of data, found {}", path,
                             fmt::join(array.shape, " x "), expected, before + got);
    }
  }
  uint8_t extra;
  if (file.read(&extra, 1) != 0) {
    throw unreadable_error("{}: longer than its header says: expected {} bytes of data ({}), found more", path, expected,
                           fmt::join(array.shape, " x "));
  }
  return array;
}

}  // namespace ulpscope
