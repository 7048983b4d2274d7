// Numbers in a file, row-major, one after another.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ulpscope/base/file.h"
#include "ulpscope/core/data/npy_file.h"
#include "ulpscope/core/data/sample_array.h"

namespace ulpscope {

class RawArray : public SampleArray {
 public:
  // The numbers begin at byte `offset` of the file, and are all there. `source`: where they came from, where that is not the file
  // itself.
  RawArray(std::shared_ptr<const RandomAccessFile> file, std::string name, size_t offset, NumberType type,
           std::vector<int64_t> shape, std::optional<SourceInfo> source = {});

  const std::string& name() const override { return name_; }
  const std::vector<int64_t>& shape() const override { return shape_; }
  SourceInfo source() const override;
  void read(int64_t first, int64_t count, double* values) const override;

 private:
  std::shared_ptr<const RandomAccessFile> file_;
  std::string name_;
  size_t offset_;
  NumberType type_;
  std::vector<int64_t> shape_;
  std::optional<SourceInfo> source_;
  size_t row_ = 1;  // numbers of a sample
  mutable std::vector<uint8_t> bytes_;
};

// False: numbers of this kind and size are not read.
bool is_readable(const NumberType& type);

}  // namespace ulpscope
