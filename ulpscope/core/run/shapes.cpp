// Whether the layers of a model fit each other and the data.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <functional>
#include <numeric>

#include "ulpscope/base/error.h"
#include "ulpscope/core/run/experiment.h"
#include "ulpscope/core/run/option.h"

namespace ulpscope {

namespace {

constexpr int64_t kMaximumElements = int64_t{1} << 31;  // of one sample, after any layer
constexpr int64_t kMaximumWindow = 128;                 // an index of max_pool2d has 7 bits

std::string shape_text(const std::vector<int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

int64_t elements_of(const std::vector<int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

class LayerCheck {
 public:
  LayerCheck(const LayerSpec& layer, size_t index, const std::vector<int64_t>& input)
      : layer_(layer), index_(index), input_(input) {}

  std::vector<int64_t> output() const {
    switch (layer_.type) {
      case LayerType::linear:
        if (input_.size() != 1) throw mismatch("samples of [features] (put a flatten before it)");
        expect_in("in_features", input_[0]);
        return {layer_.out};
      case LayerType::conv2d:
        expect_image();
        expect_in("in_channels", input_[0]);
        return {layer_.out, window_extent(input_[1], layer_.kernel_y, layer_.stride_y, layer_.padding_y),
                window_extent(input_[2], layer_.kernel_x, layer_.stride_x, layer_.padding_x)};
      case LayerType::max_pool2d:
        expect_image();
        if (layer_.kernel_y * layer_.kernel_x > kMaximumWindow) {
          throw usage_error("{}: kernel: expected at most {} elements, found {} x {}", label(), kMaximumWindow, layer_.kernel_y,
                            layer_.kernel_x);
        }
        if (2 * layer_.padding_y > layer_.kernel_y || 2 * layer_.padding_x > layer_.kernel_x) {
          throw usage_error("{}: padding: expected at most half the kernel of {} x {}, found {} x {}", label(), layer_.kernel_y,
                            layer_.kernel_x, layer_.padding_y, layer_.padding_x);
        }
        return {input_[0], window_extent(input_[1], layer_.kernel_y, layer_.stride_y, layer_.padding_y),
                window_extent(input_[2], layer_.kernel_x, layer_.stride_x, layer_.padding_x)};
      case LayerType::batch_norm:
        if (input_.size() != 1 && input_.size() != 3) throw mismatch("samples of [features] or [channels, height, width]");
        expect_in("features", input_[0]);
        return input_;
      case LayerType::flatten:
        return {elements_of(input_)};
      case LayerType::relu:
        break;
    }
    return input_;
  }

  // Of the layer's weight; a double, since hostile sizes overflow integers.
  double weight_elements() const {
    const double outputs = static_cast<double>(layer_.out) * static_cast<double>(input_[0]);
    if (layer_.type == LayerType::linear) return outputs;
    if (layer_.type == LayerType::conv2d)
      return outputs * static_cast<double>(layer_.kernel_y) * static_cast<double>(layer_.kernel_x);
    return 0;
  }

 private:
  std::string label() const {
    const std::string named = layer_.name == std::to_string(index_) ? "" : fmt::format(" {}", toml_string(layer_.name));
    return fmt::format("model.layers[{}]{} ({})", index_, named, name_of(layer_.type));
  }
  Error mismatch(std::string_view expected) const {
    return usage_error("{}: expected {}, got {}", label(), expected, shape_text(input_));
  }
  void expect_image() const {
    if (input_.size() != 3) throw mismatch("samples of [channels, height, width]");
  }
  void expect_in(std::string_view key, int64_t came) const {
    if (layer_.in != 0 && layer_.in != came) throw mismatch(fmt::format("{} = {}", key, layer_.in));
  }
  int64_t window_extent(int64_t extent, int64_t kernel, int64_t stride, int64_t padding) const {
    const int64_t room = extent + 2 * padding - kernel;
    if (room < 0) {
      throw mismatch(fmt::format("an image of at least the kernel, {} x {}, with padding {} x {}", layer_.kernel_y, layer_.kernel_x,
                                 layer_.padding_y, layer_.padding_x));
    }
    return room / stride + 1;
  }

  const LayerSpec& layer_;
  size_t index_;
  const std::vector<int64_t>& input_;
};

}  // namespace

std::vector<LayerShape> check_shapes(const Experiment& experiment, const std::vector<int64_t>& input_shape) {
  std::vector<LayerShape> shapes;
  std::vector<int64_t> current = input_shape;
  const std::vector<LayerSpec>& layers = experiment.model.layers;
  for (size_t i = 0; i < layers.size(); ++i) {
    const LayerCheck check(layers[i], i, current);
    std::vector<int64_t> output = check.output();
    if (check.weight_elements() > static_cast<double>(kMaximumElements)) {
      throw usage_error("model.layers[{}] ({}): its weight has {:.3g} elements, more than the {} that a parameter may have", i,
                        name_of(layers[i].type), check.weight_elements(), kMaximumElements);
    }
    double elements = 1;
    for (const int64_t extent : output) elements *= static_cast<double>(extent);
    if (elements > static_cast<double>(kMaximumElements)) {
      throw usage_error("model.layers[{}] ({}): its output of {} is larger than the {} elements a sample may have", i,
                        name_of(layers[i].type), shape_text(output), kMaximumElements);
    }
    shapes.push_back({current, output});
    current = std::move(output);
  }
  return shapes;
}

std::vector<LayerShape> check_shapes(const Experiment& experiment, const Dataset& dataset) {
  std::vector<LayerShape> shapes = check_shapes(experiment, dataset.input_shape());
  const std::vector<int64_t>& output = shapes.empty() ? dataset.input_shape() : shapes.back().output;
  const bool labels = dataset.target_kind() == TargetKind::labels;
  if (experiment.loss.function == LossFunction::cross_entropy) {
    if (!labels) throw usage_error("loss.function: cross_entropy needs labels, the data has values; expected mse");
    if (output.size() != 1 || output[0] < dataset.classes()) {
      throw usage_error("model: expected an output of [{}], one logit for each class of the data, got {}", dataset.classes(),
                        shape_text(output));
    }
  } else {
    if (labels) throw usage_error("loss.function: mse needs values, the data has labels; expected cross_entropy");
    if (output != dataset.target_shape()) {
      throw usage_error("model: expected an output of {}, the shape of the targets, got {}", shape_text(dataset.target_shape()),
                        shape_text(output));
    }
  }
  return shapes;
}

}  // namespace ulpscope
