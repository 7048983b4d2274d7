// The models and experiments that have names.
#include "ulpscope/core/run/experiment.h"

namespace ulpscope {

namespace {

LayerSpec layer(LayerType type, int64_t in = 0, int64_t out = 0) {
  LayerSpec spec;
  spec.type = type;
  spec.in = in;
  spec.out = out;
  return spec;
}

LayerSpec conv2d(int64_t in, int64_t out, int64_t kernel, int64_t padding) {
  LayerSpec spec = layer(LayerType::conv2d, in, out);
  spec.kernel_y = spec.kernel_x = kernel;
  spec.padding_y = spec.padding_x = padding;
  return spec;
}

LayerSpec max_pool2d(int64_t kernel) {
  LayerSpec spec = layer(LayerType::max_pool2d);
  spec.kernel_y = spec.kernel_x = spec.stride_y = spec.stride_x = kernel;
  return spec;
}

// Linear layers with a ReLU between each two.
std::vector<LayerSpec> perceptron(std::initializer_list<int64_t> widths) {
  std::vector<LayerSpec> layers;
  for (auto width = widths.begin(); width + 1 != widths.end(); ++width) {
    if (!layers.empty()) layers.push_back(layer(LayerType::relu));
    layers.push_back(layer(LayerType::linear, width[0], width[1]));
  }
  return layers;
}

std::vector<LayerSpec> conv_sine() {
  std::vector<LayerSpec> layers;
  int64_t channels = 2;
  for (int i = 0; i < 3; ++i) {
    layers.push_back(conv2d(channels, 256, 1, 0));
    layers.push_back(layer(LayerType::batch_norm, 256));
    layers.push_back(layer(LayerType::relu));
    channels = 256;
  }
  layers.push_back(conv2d(channels, 1, 1, 0));
  return layers;
}

std::vector<LayerSpec> fashion_cnn() {
  return {conv2d(1, 32, 3, 1),
          layer(LayerType::relu),
          max_pool2d(2),
          conv2d(32, 64, 3, 1),
          layer(LayerType::relu),
          max_pool2d(2),
          layer(LayerType::flatten),
          layer(LayerType::linear, 64 * 7 * 7, 128),
          layer(LayerType::relu),
          layer(LayerType::linear, 128, 10)};
}

}  // namespace

std::vector<std::string> preset_names() { return {"mlp", "mlp_big", "conv_sine", "fashion_cnn"}; }

std::optional<std::vector<LayerSpec>> find_model_preset(std::string_view name) {
  std::vector<LayerSpec> layers;
  if (name == "mlp") {
    layers = perceptron({128, 256, 256, 10});
  } else if (name == "mlp_big") {
    layers = perceptron({784, 1024, 1024, 10});
  } else if (name == "conv_sine") {
    layers = conv_sine();
  } else if (name == "fashion_cnn") {
    layers = fashion_cnn();
  } else {
    return std::nullopt;
  }
  for (size_t i = 0; i < layers.size(); ++i) layers[i].name = std::to_string(i);
  return layers;
}

std::optional<Experiment> find_preset(std::string_view name) {
  auto layers = find_model_preset(name);
  if (!layers) return std::nullopt;
  Experiment experiment;
  experiment.name = experiment.model.preset = name;
  experiment.model.layers = std::move(*layers);
  DataSettings& data = experiment.data;
  TrainingSettings& training = experiment.training;
  if (name == "mlp") {
    data.shape = {128};
    training.batch_size = 32;
    training.epochs = 4;
  } else if (name == "mlp_big") {
    data.shape = {784};
    training.batch_size = 256;
    training.epochs = 4;
  } else if (name == "conv_sine") {
    data.kind = DataKind::quantized_sine;
    training.batch_size = 1;
    training.steps = 512;
    experiment.loss.function = LossFunction::mse;
  } else {
    data.kind = DataKind::fashion_mnist;
    training.batch_size = 64;
    training.evaluation_batch_size = 500;
  }
  return experiment;
}

}  // namespace ulpscope
