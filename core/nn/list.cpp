// The list of all types of layers, and the keys that their tables are written with.
#include <algorithm>

#include "ulpscope/core/nn/layers.h"

namespace ulpscope {

std::span<const LayerType> layer_types() {
  static const std::vector<LayerType> types = [] {
    std::vector<LayerType> list;
    for (const auto family : {linear_layers, window_layers, normalization_layers, embedding_layers, attention_layers,
                              recurrent_layers, encoder_decoder_layers, shape_layers, block_layers, elementwise_layers}) {
      for (LayerType& type : family()) {
        // A row of a table comes before the op of its name.
        const auto has_its_name = [&](const LayerType& other) { return other.name == type.name; };
        if (std::none_of(list.begin(), list.end(), has_its_name)) list.push_back(std::move(type));
      }
    }
    return list;
  }();
  return types;
}

const LayerType* find_layer_type(std::string_view name) {
  const auto types = layer_types();
  const auto found = std::find_if(types.begin(), types.end(), [&](const LayerType& type) { return type.name == name; });
  return found == types.end() ? nullptr : &*found;
}

LayerOption input_extent(std::string key) {
  return {{std::move(key), {OptionKind::integer, {.low = 0, .high = 0x1p31}, {}}, "0: whatever comes", ""}, int64_t{0}};
}

LayerOption output_extent(std::string key) {
  return {{std::move(key), {OptionKind::integer, {.low = 1, .high = 0x1p31}, {}}, "", "required"}, std::nullopt, true};
}

LayerOption flag(std::string key, bool value, std::string meaning) {
  return {{std::move(key), {OptionKind::boolean, {}, {}}, std::move(meaning), ""}, value};
}

LayerOption number(std::string key, Range range, double value, std::string meaning) {
  return {{std::move(key), {OptionKind::number, range, {}}, std::move(meaning), ""}, value};
}

LayerOption integer(std::string key, int64_t low, int64_t value, std::string meaning) {
  const Range range{.low = static_cast<double>(low), .high = 0x1p20};
  return {{std::move(key), {OptionKind::integer, range, {}}, std::move(meaning), ""}, value};
}

LayerOption integer_list(std::string key, int64_t low, std::string meaning) {
  const Range range{.low = static_cast<double>(low), .high = 0x1p31};
  return {{std::move(key), {OptionKind::integer_list, range, {}}, std::move(meaning), "required"}, std::nullopt, true};
}

LayerOption choice(std::string key, std::vector<std::string> choices, std::string meaning) {
  OptionValue first = choices.at(0);
  return {{std::move(key), {OptionKind::choice, {}, std::move(choices)}, std::move(meaning), ""}, std::move(first)};
}

namespace {

OptionType pair_type(int64_t low) { return {OptionKind::extent_pair, {.low = static_cast<double>(low), .high = 0x1p20}, {}}; }

}  // namespace

LayerOption required_pair(std::string key, int64_t low, std::string meaning) {
  return {{std::move(key), pair_type(low), std::move(meaning), "required"}, std::nullopt, true};
}

LayerOption pair(std::string key, int64_t low, int64_t value, std::string meaning) {
  return {{std::move(key), pair_type(low), std::move(meaning), ""}, std::vector<int64_t>{value, value}};
}

LayerOption dependent_pair(std::string key, int64_t low, std::string default_text) {
  return {{std::move(key), pair_type(low), "", std::move(default_text)}, std::nullopt};
}

}  // namespace ulpscope
