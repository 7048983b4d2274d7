// A layer as an experiment describes it: its type, its name, and values for the keys of its type.
#pragma once

#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ulpscope/core/settings/option.h"
#include "ulpscope/kernels/view.h"

namespace ulpscope {

class Layer;
struct LayerArguments;

// A key of a layer.
struct LayerOption : OptionInfo {
  std::optional<OptionValue> value;  // where none is given; nothing: it is required, or default_text says what holds
  bool required = false;
};

// A key of a layer that holds a list of layers.
struct LayerList {
  std::string_view key;
  std::string_view meaning;
  bool required = true;
};

// A type of layer: one row of its family's table. What it does is its class's matter (layer.h).
struct LayerType {
  std::string_view name;
  std::vector<LayerOption> options;  // besides type and name
  std::unique_ptr<Layer> (*make)(const LayerArguments&);
  std::vector<LayerList> lists = {};  // keys that hold layers
  bool takes_indices = false;         // samples may be indices (of an embedding), and not values
  bool attends = false;               // it has a kind of attention
};

// All types, in the order of the documentation: the tables of the families, then the elementwise ops that are layers as they are.
std::span<const LayerType> layer_types();
// nullptr where there is none.
const LayerType* find_layer_type(std::string_view name);

struct HeightWidth {
  int64_t y = 0, x = 0;
};

struct LayerSpec {
  // All keys but those of `values` at their defaults.
  LayerSpec(const LayerType& type, std::string name, std::initializer_list<std::pair<std::string_view, OptionValue>> values = {});

  const LayerType* type;                           // never nullptr
  std::string name;                                // the module path within what it belongs to, in a model never empty
  std::optional<DType> dtype;                      // what autocast casts its inputs to; nothing: what the policy says
  std::vector<std::optional<OptionValue>> values;  // one for each of the type's options
  std::vector<std::vector<LayerSpec>> lists;       // one for each of the type's lists
  Place place;                                     // "run.toml:4: model.layers[1]", or ""

  // The value has the kind of the option. A key that the type does not have is an internal error, here and below.
  void set(std::string_view key, OptionValue value);
  // Whether there is a value, by default or set; the functions below demand one of the right kind.
  bool has(std::string_view key) const;
  int64_t integer(std::string_view key) const;
  int64_t integer_or(std::string_view key, int64_t otherwise) const;  // `otherwise` also where the type has no such key
  double number(std::string_view key) const;
  bool flag(std::string_view key) const;
  HeightWidth extents(std::string_view key) const;
  const std::vector<int64_t>& integers(std::string_view key) const;
  const std::string& text(std::string_view key) const;
  const std::vector<LayerSpec>& layers(std::string_view key) const;

  bool operator==(const LayerSpec&) const = default;

 private:
  size_t index_of(std::string_view key) const;
  template <typename T>
  const T& get(std::string_view key) const;
};

}  // namespace ulpscope
