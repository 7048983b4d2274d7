// Files in the IDX format of MNIST, plain or compressed with gzip: two zero bytes, a type code, the number of dimensions, each
// extent as a big-endian 32-bit integer, then the elements. Only unsigned bytes (type code 8) are read.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ulpscope {

struct IdxArray {
  std::vector<int64_t> shape;
  std::vector<uint8_t> values;
  size_t offset = 0;  // of the first of them in the file, or in what it decompresses to
  bool is_compressed = false;
};

// Throws Error (unreadable) that names the file, what was expected and what came. Memory grows with what the file holds, never with
// what its header claims.
IdxArray read_idx(const std::string& path);

}  // namespace ulpscope
