#include "ulpscope/core/nn/layer_spec.h"

#include <algorithm>

#include "ulpscope/base/error.h"

namespace ulpscope {

LayerSpec::LayerSpec(const LayerType& layer_type, std::string layer_name,
                     std::initializer_list<std::pair<std::string_view, OptionValue>> given)
    : type(&layer_type), name(std::move(layer_name)) {
  for (const LayerOption& option : layer_type.options) values.push_back(option.value);
  lists.resize(layer_type.lists.size());
  for (const auto& [key, value] : given) set(key, value);
}

size_t LayerSpec::index_of(std::string_view key) const {
  const auto& options = type->options;
  const auto found = std::find_if(options.begin(), options.end(), [&](const LayerOption& option) { return option.key == key; });
  if (found == options.end()) throw failed_error("internal: {} has no key '{}'", type->name, key);
  return static_cast<size_t>(found - options.begin());
}

template <typename T>
const T& LayerSpec::get(std::string_view key) const {
  const std::optional<OptionValue>& value = values[index_of(key)];
  const T* held = value ? std::get_if<T>(&*value) : nullptr;
  if (held == nullptr) throw failed_error("internal: {}.{} has no value of the type that was asked for", type->name, key);
  return *held;
}

void LayerSpec::set(std::string_view key, OptionValue value) { values[index_of(key)] = std::move(value); }
bool LayerSpec::has(std::string_view key) const { return values[index_of(key)].has_value(); }
int64_t LayerSpec::integer(std::string_view key) const { return get<int64_t>(key); }
int64_t LayerSpec::integer_or(std::string_view key, int64_t otherwise) const {
  const auto& options = type->options;
  const bool known = std::any_of(options.begin(), options.end(), [&](const LayerOption& option) { return option.key == key; });
  return known && has(key) ? integer(key) : otherwise;
}

double LayerSpec::number(std::string_view key) const { return get<double>(key); }
bool LayerSpec::flag(std::string_view key) const { return get<bool>(key); }

const std::vector<int64_t>& LayerSpec::integers(std::string_view key) const { return get<std::vector<int64_t>>(key); }
const std::string& LayerSpec::text(std::string_view key) const { return get<std::string>(key); }

HeightWidth LayerSpec::extents(std::string_view key) const {
  const auto& pair = get<std::vector<int64_t>>(key);
  return {pair.at(0), pair.at(1)};
}

const std::vector<LayerSpec>& LayerSpec::layers(std::string_view key) const {
  for (size_t i = 0; i < lists.size(); ++i)
    if (type->lists[i].key == key) return lists[i];
  throw failed_error("internal: {} has no layers '{}'", type->name, key);
}

}  // namespace ulpscope
