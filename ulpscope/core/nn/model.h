// Models: a sequence of layers built from their specs, with parameters initialised as PyTorch does.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ulpscope/core/ops/ops.h"

namespace ulpscope {

// A named tensor of a model: a parameter, or a buffer that ops change (running statistics).
struct NamedTensor {
  const std::string* name;    // "features.0.weight", interned
  const std::string* module;  // "features.0"
  Tensor tensor;
};

class Layer {
 public:
  explicit Layer(std::string_view path) : path_(intern(path)) {}
  virtual ~Layer() = default;
  // Within the module path of the layer.
  virtual Tensor forward(const Tensor& x, bool training) = 0;

  const std::string* path() const { return path_; }
  const std::vector<NamedTensor>& parameters() const { return parameters_; }
  const std::vector<NamedTensor>& buffers() const { return buffers_; }

 protected:
  Tensor add_parameter(std::string_view name, Tensor tensor);
  Tensor add_buffer(std::string_view name, Tensor tensor);

 private:
  const std::string* path_;
  std::vector<NamedTensor> parameters_, buffers_;
};

// y = x w^T + b; weight and bias uniform in +-1 / sqrt(in).
std::unique_ptr<Layer> make_linear(std::string_view path, int64_t in, int64_t out, bool bias, uint64_t seed,
                                   DType dtype = DType::f32);
struct Conv2dOptions {
  int64_t kernel_y = 1, kernel_x = 1, stride_y = 1, stride_x = 1, padding_y = 0, padding_x = 0;
  bool bias = true;
};
// Weight and bias uniform in +-1 / sqrt(in * kernel_y * kernel_x).
std::unique_ptr<Layer> make_conv2d(std::string_view path, int64_t in, int64_t out, const Conv2dOptions& options, uint64_t seed,
                                   DType dtype = DType::f32);
std::unique_ptr<Layer> make_batch_norm(std::string_view path, int64_t channels, double eps, double momentum,
                                       DType dtype = DType::f32);
std::unique_ptr<Layer> make_max_pool2d(std::string_view path, const Conv2dOptions& window);
std::unique_ptr<Layer> make_flatten(std::string_view path);
// A layer that is one op of one input and no attributes: relu, and whatever comes.
std::unique_ptr<Layer> make_unary(std::string_view path, std::string_view op);

class Model {
 public:
  explicit Model(std::vector<std::unique_ptr<Layer>> layers);
  Tensor forward(const Tensor& x);

  std::vector<NamedTensor> parameters() const;
  std::vector<NamedTensor> buffers() const;
  // Enters parameters and buffers into the recording, as outputs of the op source.
  void record_initial_values() const;
  bool training = true;

 private:
  std::vector<std::unique_ptr<Layer>> layers_;
};

}  // namespace ulpscope
