// Tensors in a file, for the scripts that compare them with PyTorch's: `values` (f64), and a row of `tensors` for each.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "ulpscope/base/hdf5/hdf5.h"
#include "ulpscope/core/tensor/tensor.h"

namespace ulpscope {

// What `number` and `slot` mean is the program's.
struct ResultTensor {
  int64_t number, slot, is_gradient, dtype, rank;
  int64_t shape[kMaxRank] = {};
};

class Results {
 public:
  void add(int64_t number, size_t slot, bool is_gradient, const Tensor& tensor) {
    ResultTensor row{number, static_cast<int64_t>(slot), is_gradient, static_cast<int64_t>(tensor.dtype()), tensor.rank()};
    std::copy(tensor.shape().begin(), tensor.shape().end(), row.shape);
    tensors_.push_back(row);
    const std::vector<double> values = to_host(tensor);
    values_.insert(values_.end(), values.begin(), values.end());
  }
  void write(const std::string& path, const std::map<std::string, std::string>& texts) const {
    hdf5::File file = hdf5::File::create(path, path);
    const auto put = [&](const char* name, ElementType type, const std::vector<uint64_t>& shape, const void* values) {
      if (shape[0] > 0) file.create_array(name, type, shape).write_all(values);
    };
    put("tensors", ElementType::i64, {tensors_.size(), sizeof(ResultTensor) / sizeof(int64_t)}, tensors_.data());
    put("values", ElementType::f64, {values_.size()}, values_.data());
    for (const auto& [name, text] : texts) file.set_attribute("/", name, text);
    file.close();
  }

 private:
  std::vector<ResultTensor> tensors_;
  std::vector<double> values_;
};

}  // namespace ulpscope
