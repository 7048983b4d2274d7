#include "ulpscope/core/nn/layer.h"

#include <fmt/format.h>

#include <algorithm>

#include "ulpscope/base/philox.h"
#include "ulpscope/base/text.h"

namespace ulpscope {

namespace {

constexpr int64_t kMaximumElements = int64_t{1} << 31;  // of a parameter, and of one sample after any layer

// A double, since hostile extents overflow integers.
double element_count(const std::vector<int64_t>& shape) {
  double elements = 1;
  for (const int64_t extent : shape) elements *= static_cast<double>(extent);
  return elements;
}

std::string join_path(std::string_view path, std::string_view name) {
  if (name.empty()) return std::string(path);
  return path.empty() ? std::string(name) : fmt::format("{}.{}", path, name);
}

}  // namespace

// Layers one after another.
class Sequence : public Layer {
 public:
  Sequence(std::string_view path, std::span<const LayerSpec> specs, SampleShape input, int64_t indices, LayerSurroundings around)
      : Layer(path, std::move(around)) {
    for (const LayerSpec& spec : specs) {
      input = add_layer(spec, std::move(input), indices).output_shape();
      indices = 0;
    }
    set_output_shape(std::move(input));
  }

 private:
  Tensor forward(const Tensor& x, bool training) override { return run_layers(x, training); }
};

Error LayerArguments::mismatch(std::string_view expected) const {
  return usage_error("expected {}, got {}", expected, describe_shape(input));
}

void LayerArguments::expect(std::string_view key, int64_t came) const {
  const int64_t expected = spec.integer(key);
  if (expected != 0 && expected != came) throw mismatch(fmt::format("{} = {}", key, expected));
}

std::vector<double> InitialValues::values(size_t count, uint64_t seed, std::string_view name) const {
  std::vector<double> elements(count, value_);
  if (kind_ == Kind::constant) return elements;
  const Philox random(seed, hash_text(name));
  for (size_t i = 0; i < count; ++i) {
    const double value = kind_ == Kind::normal ? random.normal(i) : 2.0 * random.uniform(i) - 1.0;
    elements[i] = static_cast<float>(value * value_);
  }
  return elements;
}

Layer::Layer(const LayerArguments& arguments) : Layer(arguments.path, arguments.around) {
  dtype_ = arguments.spec.dtype;
  if (dtype_) around_.fp8.reset();
}

const Fp8Settings* Layer::fp8_settings() const {
  if (!around_.fp8) return nullptr;
  const std::vector<std::string>& excluded = around_.fp8->excluded;
  const auto matches = [&](const std::string& pattern) { return glob_match(pattern, *path_); };
  return std::any_of(excluded.begin(), excluded.end(), matches) ? nullptr : &around_.fp8->settings;
}

Tensor Layer::operator()(const Tensor& x, bool training) {
  const ModuleScope module(path_);
  if (!dtype_) return forward(x, training);
  const ContextGuard<&Context::layer_type> dtype(dtype_);
  return forward(x, training);
}

void Layer::set_output_shape(SampleShape shape) {
  if (element_count(shape) > static_cast<double>(kMaximumElements)) {
    throw usage_error("its output of {} is larger than the {} elements a sample may have", describe_shape(shape), kMaximumElements);
  }
  output_shape_ = std::move(shape);
}

Layer::Declared Layer::declare(Tensor& tensor, std::string_view name, std::vector<int64_t> shape, InitialValues initial) const {
  if (element_count(shape) > static_cast<double>(kMaximumElements)) {
    throw usage_error("its {} has {:.3g} elements, more than the {} that a parameter may have", name, element_count(shape),
                      kMaximumElements);
  }
  return {{intern(join_path(*path_, name)), path_, {}}, &tensor, std::move(shape), initial};
}

void Layer::add_parameter(Tensor& tensor, std::string_view name, std::vector<int64_t> shape, InitialValues initial) {
  parameters_.push_back(declare(tensor, name, std::move(shape), initial));
}

void Layer::add_buffer(Tensor& tensor, std::string_view name, std::vector<int64_t> shape, InitialValues initial) {
  buffers_.push_back(declare(tensor, name, std::move(shape), initial));
}

Layer& Layer::add_layer(const LayerSpec& spec, SampleShape input, int64_t indices) {
  const std::string place = fmt::format("{} ({})", spec.place.text.empty() ? spec.name : spec.place.text, spec.type->name);
  layers_.push_back(at_place(place, [&] {
    if (indices != 0 && !spec.type->takes_indices)
      throw usage_error("expected values, got indices below {} of {} (put an embedding before it)", indices, describe_shape(input));
    return spec.type->make({spec, join_path(*path_, spec.name), std::move(input), indices, around_});
  }));
  return *layers_.back();
}

Layer& Layer::add_sequence(std::string_view name, std::span<const LayerSpec> specs, SampleShape input, int64_t indices) {
  layers_.push_back(std::make_unique<Sequence>(join_path(*path_, name), specs, std::move(input), indices, around_));
  return *layers_.back();
}

Tensor Layer::run_layers(const Tensor& x, bool training) {
  Tensor value = x;
  for (const auto& layer : layers_) value = (*layer)(value, training);
  return value;
}

void Layer::create_tensors(uint64_t seed, const ParameterTypes& types) {
  const DType dtype = parameter_type(types);
  const auto create = [&](Declared& declared) {
    const auto count = static_cast<size_t>(element_count(declared.shape));
    const std::vector<double> values = declared.initial.values(count, seed, *declared.named.name);
    Tensor tensor = from_host(*context().backend, dtype, declared.shape, values);
    tensor.body()->parameter = declared.named.name;
    tensor.body()->module = declared.named.module;
    declared.named.tensor = *declared.member = tensor;
  };
  for (Declared& parameter : parameters_) {
    create(parameter);
    parameter.named.tensor.set_requires_grad(true);
  }
  for (Declared& buffer : buffers_) create(buffer);
  for (const auto& layer : layers_) layer->create_tensors(seed, types);
}

std::vector<NamedTensor> Layer::parameters() const {
  std::vector<NamedTensor> all;
  for (const Declared& parameter : parameters_) all.push_back(parameter.named);
  for (const auto& layer : layers_) {
    for (NamedTensor& parameter : layer->parameters()) all.push_back(std::move(parameter));
  }
  return all;
}

std::vector<NamedTensor> Layer::buffers() const {
  std::vector<NamedTensor> all;
  for (const Declared& buffer : buffers_) all.push_back(buffer.named);
  for (const auto& layer : layers_) {
    for (NamedTensor& buffer : layer->buffers()) all.push_back(std::move(buffer));
  }
  return all;
}

std::vector<std::string> Layer::module_paths() const {
  std::vector<std::string> all{*path_};
  for (const auto& layer : layers_) {
    for (std::string& path : layer->module_paths())
      if (path != *path_) all.push_back(std::move(path));  // a sequence may stand at the path of its layer
  }
  return all;
}

void Layer::record_initial_values() const {
  const PhaseGuard phase(Phase::data);
  const NoGrad no_grad;
  const ModuleScope module(path_);
  for (const Declared& parameter : parameters_) {
    const Tensor& tensor = parameter.named.tensor;
    source(tensor, weight_role(tensor.dtype()), parameter.named.name);
  }
  for (const Declared& buffer : buffers_) source(buffer.named.tensor, Role::buffer, buffer.named.name);
  for (const auto& layer : layers_) layer->record_initial_values();
}

}  // namespace ulpscope
