// Arrays of numbers in HDF5 files that other programs wrote: of any numeric type and rank, in any layout in
// the file itself.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ulpscope/base/hdf5/hdf5.h"

namespace ulpscope::hdf5 {

// The paths of all data sets in the file. Throws Error (unreadable) where `path` is no HDF5 file.
std::vector<std::string> data_set_names(const std::string& path);

enum class NumberKind : uint8_t { floating_point, signed_integer, unsigned_integer };

class NumberArray {
 public:
  // Throws Error: unreadable where `path` is no HDF5 file or its data set `name` has no numbers, none that
  // anybody wrote, or those of other files; usage where it has no `name`.
  NumberArray(const std::string& path, const std::string& name);

  const std::string& label() const { return label_; }           // "train.h5: inputs"
  const std::vector<int64_t>& shape() const { return shape_; }  // at least one extent
  int64_t chunk_rows() const { return chunk_rows_; }            // 1: rows do not depend on each other
  // Of its elements in the file.
  NumberKind kind() const { return kind_; }
  int bits() const { return bits_; }
  // Of the first dimension. Throws Error (unreadable).
  void read_rows(int64_t first, int64_t count, double* values) const;

 private:
  std::string label_;
  Handle file_, dataset_;
  std::vector<int64_t> shape_;
  int64_t chunk_rows_ = 1;
  NumberKind kind_ = NumberKind::floating_point;
  int bits_ = 0;
};

}  // namespace ulpscope::hdf5
