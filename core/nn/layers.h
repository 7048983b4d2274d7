// The families of layers, one file and one table each, and what their tables are written with. list.cpp lists the families.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ulpscope/core/nn/layer.h"

namespace ulpscope {

std::vector<LayerType> linear_layers();
std::vector<LayerType> window_layers();
std::vector<LayerType> normalization_layers();
std::vector<LayerType> shape_layers();
std::vector<LayerType> embedding_layers();
std::vector<LayerType> attention_layers();
std::vector<LayerType> recurrent_layers();
std::vector<LayerType> encoder_decoder_layers();
std::vector<LayerType> block_layers();
// Ops that are layers as they are, under their names: elementwise ones of one input that need no attributes, softmax and
// log_softmax.
std::vector<LayerType> elementwise_layers();

// Keys of a layer.
LayerOption input_extent(std::string key);                                // what has to come in; 0, the default: whatever comes
LayerOption output_extent(std::string key);                               // required
LayerOption flag(std::string key, bool value, std::string meaning = "");  // `value` by default, here and below
LayerOption number(std::string key, Range range, double value, std::string meaning = "");
LayerOption integer(std::string key, int64_t low, int64_t value, std::string meaning = "");
LayerOption integer_list(std::string key, int64_t low, std::string meaning);                 // required
LayerOption choice(std::string key, std::vector<std::string> choices, std::string meaning);  // the first by default
// An integer or [y, x], at least `low`: required, with a default, or with one that follows from the other keys.
LayerOption required_pair(std::string key, int64_t low, std::string meaning = "");
LayerOption pair(std::string key, int64_t low, int64_t value, std::string meaning = "");
LayerOption dependent_pair(std::string key, int64_t low, std::string default_text);

template <typename L>
std::unique_ptr<Layer> make_layer(const LayerArguments& arguments) {
  return std::make_unique<L>(arguments);
}

}  // namespace ulpscope
