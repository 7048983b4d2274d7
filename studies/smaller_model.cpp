#include "ulpscope/studies/smaller_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "ulpscope/core/nn/model.h"

namespace ulpscope {

namespace {

bool is_branches(const LayerSpec& layer) { return layer.type->name == "branches"; }

bool gives_way(const LayerSpec& layer) { return layer.type->name == "sequential" && !layer.dtype && !layer.flag("checkpoint"); }

// The same within the layer, which stays.
LayerSpec flattened_within(LayerSpec layer) {
  for (std::vector<LayerSpec>& list : layer.lists) {
    if (is_branches(layer)) {
      for (LayerSpec& branch : list) branch = flattened_within(std::move(branch));
    } else {
      list = flattened(list);
    }
  }
  return layer;
}

// Removes the layer at `place`, and counts it down to there. False: it is the only branch.
bool remove(std::vector<LayerSpec>& layers, size_t& place, bool are_branches, bool& done) {
  for (size_t i = 0; i < layers.size() && !done; ++i) {
    if (place-- == 0) {
      done = true;
      if (are_branches && layers.size() == 1) return false;
      layers.erase(layers.begin() + static_cast<std::ptrdiff_t>(i));
      return true;
    }
    for (std::vector<LayerSpec>& list : layers[i].lists)
      if (!done && !remove(list, place, is_branches(layers[i]), done)) return false;
  }
  return true;
}

bool matches_one(const std::string& pattern, std::span<const std::string> modules) {
  return std::any_of(modules.begin(), modules.end(), [&](const std::string& module) { return glob_match(pattern, module); });
}

}  // namespace

std::vector<LayerSpec> flattened(std::span<const LayerSpec> layers) {
  std::vector<LayerSpec> flat;
  for (const LayerSpec& layer : layers) {
    if (!gives_way(layer)) {
      flat.push_back(flattened_within(layer));
      continue;
    }
    const std::vector<LayerSpec> within = flattened(layer.layers("layers"));
    const int64_t repeat = layer.integer("repeat");
    for (int64_t i = 0; i < repeat; ++i) {
      const std::string path = repeat > 1 ? fmt::format("{}.{}", layer.name, i) : layer.name;
      for (LayerSpec each : within) {
        each.name = fmt::format("{}.{}", path, each.name);
        flat.push_back(std::move(each));
      }
    }
  }
  return flat;
}

size_t count_computing(std::span<const LayerSpec> layers) {
  size_t count = 0;
  for (const LayerSpec& layer : layers) {
    if (layer.lists.empty()) ++count;
    const auto repeat = static_cast<size_t>(layer.integer_or("repeat", 1));
    for (const std::vector<LayerSpec>& list : layer.lists) count += repeat * count_computing(list);
  }
  return count;
}

size_t count_all(std::span<const LayerSpec> layers) {
  size_t count = layers.size();
  for (const LayerSpec& layer : layers)
    for (const std::vector<LayerSpec>& list : layer.lists) count += count_all(list);
  return count;
}

std::optional<std::vector<LayerSpec>> without(std::vector<LayerSpec> layers, size_t place) {
  bool done = false;
  if (!remove(layers, place, false, done) || !done) return {};
  return layers;
}

void fit_to_model(Experiment& experiment, const std::vector<int64_t>& input, int64_t indices) {
  const Model model(experiment.model.layers, input, {}, indices);
  const std::vector<std::string> modules = model.module_paths();
  const auto is_gone = [&](const std::string& pattern) { return !matches_one(pattern, modules); };
  std::erase_if(experiment.autocast.modules, [&](const auto& each) { return is_gone(each.first); });
  std::erase_if(experiment.arithmetic.modules, [&](const auto& each) { return is_gone(each.first); });
  std::erase_if(experiment.recording.modules, is_gone);

  std::set<std::string_view> parameters;
  std::vector<bool> has_parameters(experiment.optimizers.size());
  for (const NamedTensor& parameter : model.parameters()) {
    parameters.insert(*parameter.name);
    for (size_t i = 0; i < experiment.optimizers.size(); ++i) {
      if (!std::any_of(experiment.optimizers[i].modules.begin(), experiment.optimizers[i].modules.end(),
                       [&](const std::string& pattern) { return glob_match(pattern, *parameter.module); }))
        continue;
      has_parameters[i] = true;
      break;
    }
  }
  for (size_t i = has_parameters.size(); i-- > 0;)
    if (!has_parameters[i]) experiment.optimizers.erase(experiment.optimizers.begin() + static_cast<std::ptrdiff_t>(i));
  std::erase_if(experiment.inject, [&](const InjectedFault& fault) {
    return (!fault.parameter.empty() && !parameters.contains(fault.parameter)) || (!fault.op.empty() && is_gone(fault.module));
  });
}

}  // namespace ulpscope
