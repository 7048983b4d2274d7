// Arrays in files of numpy.save: what the header says of the numbers, and where they lie.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ulpscope/base/file.h"

namespace ulpscope {

// A type of numbers as NumPy writes it in a header: '<f4'.
struct NumberType {
  char kind = 'f';  // f: floating point, c: complex, i: signed, u: unsigned, b: truth value, V: bytes that NumPy has no type for
  size_t bytes = 8;
  bool big_endian = false;
};

// Nothing: it is of another form, as texts and numbers of more than nine bytes are.
std::optional<NumberType> parse_number_type(std::string_view text);

struct NpyFile {
  std::shared_ptr<const RandomAccessFile> file;
  std::string type;            // as the header has it
  std::vector<int64_t> shape;  // none: a single value
  size_t offset = 0;           // of the first number; all of them are there, in C order, one after another
};

// Throws Error (unreadable): the file is missing, no file of numpy.save, damaged or truncated, of records, or in Fortran order.
NpyFile open_npy_file(const std::string& path);
// Writes such a file of numbers in C order, or replaces it. Throws Error (failed) where that cannot be done.
void write_npy_file(const std::string& path, const NumberType& type, const std::vector<int64_t>& shape, std::string_view numbers);

}  // namespace ulpscope
