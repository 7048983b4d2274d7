#include "ulpscope/core/nn/model.h"

#include <fmt/format.h>

#include <cmath>

#include "ulpscope/base/philox.h"

namespace ulpscope {

namespace {

// Uniform in [-bound, bound), from the seed and the parameter's name: adding a layer moves no other layer's numbers.
Tensor uniform(DType dtype, std::span<const int64_t> shape, double bound, uint64_t seed, std::string_view name) {
  const Philox random(seed, hash_text(name));
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  std::vector<double> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>((2.0 * random.uniform(i) - 1.0) * bound);
  return from_host(*context().backend, dtype, shape, values);
}

Tensor constant(DType dtype, int64_t count, double value) {
  const int64_t shape[] = {count};
  return from_host(*context().backend, dtype, shape, std::vector<double>(static_cast<size_t>(count), value));
}

std::string join_path(std::string_view path, std::string_view name) {
  return path.empty() ? std::string(name) : fmt::format("{}.{}", path, name);
}

class Linear : public Layer {
 public:
  Linear(std::string_view path, int64_t in, int64_t out, bool bias, uint64_t seed, DType dtype) : Layer(path) {
    const double bound = 1.0 / std::sqrt(static_cast<double>(in));
    const int64_t shape[] = {out, in};
    weight_ = add_parameter("weight", uniform(dtype, shape, bound, seed, join_path(path, "weight")));
    if (bias) bias_ = add_parameter("bias", uniform(dtype, {shape, 1}, bound, seed, join_path(path, "bias")));
  }
  Tensor forward(const Tensor& x, bool) override {
    return bias_ ? call("linear", {x, weight_, bias_}) : call("linear", {x, weight_});
  }

 private:
  Tensor weight_, bias_;
};

class Conv2d : public Layer {
 public:
  Conv2d(std::string_view path, int64_t in, int64_t out, const Conv2dOptions& o, uint64_t seed, DType dtype)
      : Layer(path),
        attributes_{{"stride_y", static_cast<double>(o.stride_y)},
                    {"stride_x", static_cast<double>(o.stride_x)},
                    {"padding_y", static_cast<double>(o.padding_y)},
                    {"padding_x", static_cast<double>(o.padding_x)}} {
    const double bound = 1.0 / std::sqrt(static_cast<double>(in * o.kernel_y * o.kernel_x));
    const int64_t shape[] = {out, in, o.kernel_y, o.kernel_x};
    weight_ = add_parameter("weight", uniform(dtype, shape, bound, seed, join_path(path, "weight")));
    if (o.bias) bias_ = add_parameter("bias", uniform(dtype, {shape, 1}, bound, seed, join_path(path, "bias")));
  }
  Tensor forward(const Tensor& x, bool) override {
    return bias_ ? call("conv2d", {x, weight_, bias_}, attributes_) : call("conv2d", {x, weight_}, attributes_);
  }

 private:
  Attributes attributes_;
  Tensor weight_, bias_;
};

class BatchNorm : public Layer {
 public:
  BatchNorm(std::string_view path, int64_t channels, double eps, double momentum, DType dtype)
      : Layer(path), attributes_{{"eps", eps}, {"momentum", momentum}} {
    weight_ = add_parameter("weight", constant(dtype, channels, 1.0));
    bias_ = add_parameter("bias", constant(dtype, channels, 0.0));
    running_mean_ = add_buffer("running_mean", constant(dtype, channels, 0.0));
    running_var_ = add_buffer("running_var", constant(dtype, channels, 1.0));
  }
  Tensor forward(const Tensor& x, bool training) override {
    Attributes attributes = attributes_;
    attributes.set("training", training);
    static constexpr OutputHint kHints[] = {{Role::activation}, {Role::buffer}, {Role::buffer}, {Role::buffer}, {Role::buffer}};
    return call("batch_norm", {x, weight_, bias_, running_mean_, running_var_}, attributes, {.hints = kHints});
  }

 private:
  Attributes attributes_;
  Tensor weight_, bias_, running_mean_, running_var_;
};

class MaxPool2d : public Layer {
 public:
  MaxPool2d(std::string_view path, const Conv2dOptions& o)
      : Layer(path),
        attributes_{{"kernel_y", static_cast<double>(o.kernel_y)},   {"kernel_x", static_cast<double>(o.kernel_x)},
                    {"stride_y", static_cast<double>(o.stride_y)},   {"stride_x", static_cast<double>(o.stride_x)},
                    {"padding_y", static_cast<double>(o.padding_y)}, {"padding_x", static_cast<double>(o.padding_x)}} {}
  Tensor forward(const Tensor& x, bool) override { return call("max_pool2d", {x}, attributes_); }

 private:
  Attributes attributes_;
};

class Flatten : public Layer {
 public:
  using Layer::Layer;
  Tensor forward(const Tensor& x, bool) override {
    const int64_t shape[] = {x.shape(0), -1};
    return reshape(x, shape);
  }
};

class Unary : public Layer {
 public:
  Unary(std::string_view path, std::string_view op) : Layer(path), op_(find_op(op)) {}
  Tensor forward(const Tensor& x, bool) override { return dispatch(op_, {&x, 1})[0]; }

 private:
  const Op& op_;
};

}  // namespace

Tensor Layer::add_parameter(std::string_view name, Tensor tensor) {
  parameters_.push_back({intern(join_path(*path_, name)), path_, tensor});
  tensor.body()->parameter = parameters_.back().name;
  tensor.set_requires_grad(true);
  return tensor;
}

Tensor Layer::add_buffer(std::string_view name, Tensor tensor) {
  buffers_.push_back({intern(join_path(*path_, name)), path_, tensor});
  tensor.body()->parameter = buffers_.back().name;
  return tensor;
}

std::unique_ptr<Layer> make_linear(std::string_view path, int64_t in, int64_t out, bool bias, uint64_t seed, DType dtype) {
  return std::make_unique<Linear>(path, in, out, bias, seed, dtype);
}
std::unique_ptr<Layer> make_conv2d(std::string_view path, int64_t in, int64_t out, const Conv2dOptions& options, uint64_t seed,
                                   DType dtype) {
  return std::make_unique<Conv2d>(path, in, out, options, seed, dtype);
}
std::unique_ptr<Layer> make_batch_norm(std::string_view path, int64_t channels, double eps, double momentum, DType dtype) {
  return std::make_unique<BatchNorm>(path, channels, eps, momentum, dtype);
}
std::unique_ptr<Layer> make_max_pool2d(std::string_view path, const Conv2dOptions& window) {
  return std::make_unique<MaxPool2d>(path, window);
}
std::unique_ptr<Layer> make_flatten(std::string_view path) { return std::make_unique<Flatten>(path); }
std::unique_ptr<Layer> make_unary(std::string_view path, std::string_view op) { return std::make_unique<Unary>(path, op); }

Model::Model(std::vector<std::unique_ptr<Layer>> layers) : layers_(std::move(layers)) {}

Tensor Model::forward(const Tensor& x) {
  Tensor value = x;
  for (const auto& layer : layers_) {
    const ModuleScope module(layer->path());
    value = layer->forward(value, training);
  }
  return value;
}

std::vector<NamedTensor> Model::parameters() const {
  std::vector<NamedTensor> all;
  for (const auto& layer : layers_) all.insert(all.end(), layer->parameters().begin(), layer->parameters().end());
  return all;
}

std::vector<NamedTensor> Model::buffers() const {
  std::vector<NamedTensor> all;
  for (const auto& layer : layers_) all.insert(all.end(), layer->buffers().begin(), layer->buffers().end());
  return all;
}

void Model::record_initial_values() const {
  const PhaseGuard phase(Phase::data);
  for (const auto& layer : layers_) {
    const ModuleScope module(layer->path());
    for (const NamedTensor& parameter : layer->parameters()) source(parameter.tensor, Role::master_weight, parameter.name);
    for (const NamedTensor& buffer : layer->buffers()) source(buffer.tensor, Role::buffer, buffer.name);
  }
}

}  // namespace ulpscope
