// Experiments from TOML and --set, and back to TOML, all by the tables of experiment_options.h.
#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "ulpscope/base/error.h"
#include "ulpscope/base/text.h"
#include "ulpscope/core/run/experiment_options.h"

namespace ulpscope {

namespace {

constexpr std::string_view kLayers = "model.layers";
constexpr std::string_view kAutocastOps = "autocast.ops";
constexpr std::string_view kAutocastModules = "autocast.modules";

RawValue raw_value(const toml::node& node) {
  if (const auto* value = node.as_boolean()) return {value->get(), value->get() ? "true" : "false"};
  if (const auto* value = node.as_integer()) return {value->get(), fmt::format("{}", value->get())};
  if (const auto* value = node.as_floating_point()) return {value->get(), fmt::format("{}", value->get())};
  if (const auto* value = node.as_string()) return {value->get(), toml_string(value->get())};
  if (const auto* list = node.as_array()) {
    std::vector<RawValue> items;
    std::string text = "[";
    for (const toml::node& item : *list) {
      items.push_back(raw_value(item));
      text += fmt::format("{}{}", items.size() > 1 ? ", " : "", items.back().text);
    }
    return {std::move(items), text + "]"};
  }
  return {std::monostate{}, node.is_table() ? "a table" : "a date or time"};
}

struct Member {
  std::string key;
  const toml::node* node;
  toml::source_index line;
};

// In the order of the file, so that messages come from the top, and the first of several patterns decides.
std::vector<Member> members_of(const toml::table& table) {
  std::vector<Member> members;
  for (const auto& [key, node] : table) members.push_back({std::string(key.str()), &node, key.source().begin.line});
  std::stable_sort(members.begin(), members.end(), [&](const Member& a, const Member& b) {
    const auto at = [&](const Member& member) {
      const toml::source_position& begin = table.find(member.key)->first.source().begin;
      return std::pair(begin.line, begin.column);
    };
    return at(a) < at(b);
  });
  return members;
}

const Option<Experiment>* find_option(std::string_view key) {
  const auto& options = experiment_options();
  const auto found = std::find_if(options.begin(), options.end(), [&](const auto& option) { return option.key == key; });
  return found == options.end() ? nullptr : &*found;
}

bool is_table_name(std::string_view key) {
  if (key == "autocast" || key == kAutocastOps || key == kAutocastModules) return true;
  const auto& options = experiment_options();
  return std::any_of(options.begin(), options.end(),
                     [&](const auto& option) { return option.key.starts_with(std::string(key) + '.'); });
}

std::string_view last_part(std::string_view key) { return key.substr(key.rfind('.') + 1); }

Error unknown_key(std::string_view place, const std::string& key) {
  std::vector<std::string> candidates{std::string(kLayers), std::string(kAutocastOps), std::string(kAutocastModules)};
  for (const auto& option : experiment_options()) candidates.push_back(option.key);
  // The right name in the wrong table is likelier than a misspelling.
  for (const std::string& candidate : candidates) {
    if (last_part(candidate) == last_part(key)) {
      return usage_error("{}: unknown key '{}'; did you mean '{}'?", place, one_line(key), candidate);
    }
  }
  for (const auto& option : experiment_options()) {
    const std::string table = option.key.substr(0, option.key.find('.'));
    if (table != option.key && std::find(candidates.begin(), candidates.end(), table) == candidates.end())
      candidates.push_back(table);
  }
  return usage_error("{}: unknown key '{}'{}", place, one_line(key), did_you_mean(key, candidates));
}

// Runs `body` and puts where it happened before the message of an Error.
template <typename Body>
auto located(std::string_view place, std::string_view key, Body body) {
  try {
    return body();
  } catch (const Error& error) {
    throw Error(error.kind(), fmt::format("{}: {}: {}", place, key, error.what()));
  }
}

void assign(const Option<Experiment>& option, Experiment& experiment, std::string_view place, const RawValue& raw) {
  located(place, option.key, [&] { option.set(experiment, check_value(option.type, raw)); });
}

// Overrides of autocast: a name that is free, and a precision.
void assign_precision(Experiment& experiment, std::string_view place, bool is_module, const std::string& name,
                      const RawValue& raw) {
  const std::string key = fmt::format("{}.{}", is_module ? kAutocastModules : kAutocastOps, one_line(name));
  const Precision precision =
      located(place, key, [&] { return find_precision(std::get<std::string>(check_value(precision_type(), raw))); });
  if (!is_module) {
    experiment.autocast.ops[name] = precision;
    return;
  }
  auto& modules = experiment.autocast.modules;
  const auto known = std::find_if(modules.begin(), modules.end(), [&](const auto& item) { return item.first == name; });
  if (known == modules.end()) {
    modules.emplace_back(name, precision);
  } else {
    known->second = precision;
  }
}

class FileParser {
 public:
  FileParser(std::string source, Experiment& experiment) : source_(std::move(source)), experiment_(experiment) {}

  void parse_table(const toml::table& table, const std::string& prefix) {
    for (const Member& member : members_of(table)) {
      const std::string key = prefix.empty() ? member.key : prefix + '.' + member.key;
      const std::string place = place_of(member.line);
      if (prefix == kAutocastOps || prefix == kAutocastModules) {
        assign_precision(experiment_, place, prefix == kAutocastModules, member.key, raw_value(*member.node));
      } else if (const Option<Experiment>* option = find_option(key)) {
        assign(*option, experiment_, place, raw_value(*member.node));
        if (key == "model.preset") preset_given_ = true;
      } else if (key == kLayers) {
        layers_given_ = true;
        parse_layers(*member.node, place);
      } else if (is_table_name(key)) {
        if (!member.node->is_table())
          throw usage_error("{}: {}: expected a table, found {}", place, key, raw_value(*member.node).text);
        parse_table(*member.node->as_table(), key);
      } else {
        throw unknown_key(place, key);
      }
      if (preset_given_ && layers_given_) throw usage_error("{}: expected model.preset or model.layers, found both", place);
    }
  }

 private:
  std::string place_of(toml::source_index line) const { return line > 0 ? fmt::format("{}:{}", source_, line) : source_; }

  void parse_layers(const toml::node& node, const std::string& place) {
    const toml::array* list = node.as_array();
    if (list == nullptr) throw usage_error("{}: {}: expected a list of tables, found {}", place, kLayers, raw_value(node).text);
    std::vector<LayerSpec> layers;
    for (const toml::node& item : *list) {
      const std::string key = fmt::format("{}[{}]", kLayers, layers.size());
      const std::string item_place = place_of(item.source().begin.line);
      const toml::table* table = item.as_table();
      if (table == nullptr) throw usage_error("{}: {}: expected a table, found {}", item_place, key, raw_value(item).text);
      layers.push_back(parse_layer(*table, key, item_place, layers.size()));
    }
    experiment_.model.layers = std::move(layers);
  }

  LayerSpec parse_layer(const toml::table& table, const std::string& where, const std::string& place, size_t index) {
    LayerSpec layer;
    layer.name = std::to_string(index);
    const OptionType type_type{ValueKind::choice, {}, layer_type_names()};
    const toml::node* type = table.get("type");
    if (type == nullptr) throw usage_error("{}: {}: no type: expected {}", place, where, type_type.description());
    layer.type = located(place, where + ".type",
                         [&] { return *find_layer_type(std::get<std::string>(check_value(type_type, raw_value(*type)))); });
    const auto& options = layer_options(layer.type);
    std::vector<std::string> known{"type", "name"};
    for (const auto& option : options) known.push_back(option.key);

    for (const Member& member : members_of(table)) {
      if (member.key == "type") continue;
      const std::string key = where + '.' + member.key;
      const std::string at = place_of(member.line);
      const RawValue raw = raw_value(*member.node);
      if (member.key == "name") {
        layer.name = located(at, key, [&] {
          auto name = std::get<std::string>(check_value({ValueKind::text, {}, {}}, raw));
          if (name.empty()) throw usage_error("expected a module path, found \"\"");
          return name;
        });
        continue;
      }
      const auto option =
          std::find_if(options.begin(), options.end(), [&](const auto& candidate) { return candidate.key == member.key; });
      if (option == options.end()) {
        throw usage_error("{}: {}: {} has no key '{}'{}", at, where, name_of(layer.type), member.key,
                          did_you_mean(member.key, known));
      }
      located(at, key, [&] { option->set(layer, check_value(option->type, raw)); });
    }
    for (const auto& option : options) {
      if (option.required && table.get(option.key) == nullptr) {
        throw usage_error("{}: {}: {} needs {}: expected {}", place, where, name_of(layer.type), option.key,
                          option.type.description());
      }
    }
    if (layer.type == LayerType::max_pool2d && table.get("stride") == nullptr) {
      layer.stride_y = layer.kernel_y;
      layer.stride_x = layer.kernel_x;
    }
    return layer;
  }

  std::string source_;
  Experiment& experiment_;
  bool preset_given_ = false, layers_given_ = false;
};

toml::table parse_text(std::string_view text, const std::string& source) {
  try {
    return toml::parse(text, source);
  } catch (const toml::parse_error& error) {
    throw unreadable_error("{}:{}:{}: not TOML: {}", source, error.source().begin.line, error.source().begin.column,
                           one_line(error.description()));
  }
}

// What stands behind the = of an override: TOML, or a plain string.
RawValue override_value(const std::string& text, ValueKind kind) {
  const RawValue plain{text, toml_string(text)};
  const bool takes_list = kind == ValueKind::text_list || kind == ValueKind::choice_list || kind == ValueKind::integer_list;
  const auto parse = [](const std::string& value) -> std::optional<RawValue> {
    try {
      const toml::table table = toml::parse("value = " + value);
      if (table.size() == 1) return raw_value(*table.get("value"));
    } catch (const toml::parse_error&) {
    }
    return std::nullopt;
  };
  if (kind == ValueKind::text || kind == ValueKind::choice) {
    return text.starts_with('"') || text.starts_with('\'') ? parse(text).value_or(plain) : plain;
  }
  if (takes_list && !text.starts_with('[')) {
    std::vector<RawValue> items;
    std::istringstream stream(text);
    for (std::string item; std::getline(stream, item, ',');) {
      items.push_back(kind == ValueKind::integer_list ? parse(item).value_or(RawValue{item, toml_string(item)})
                                                      : RawValue{item, toml_string(item)});
    }
    return {std::move(items), plain.text};
  }
  return parse(text).value_or(plain);
}

std::string trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return "";
  return std::string(text.substr(first, text.find_last_not_of(kBlanks) - first + 1));
}

std::string without_quotes(const std::string& name) {
  const bool is_quoted = name.size() >= 2 && (name.front() == '"' || name.front() == '\'') && name.back() == name.front();
  return is_quoted ? name.substr(1, name.size() - 2) : name;
}

std::string layer_text(const LayerSpec& layer) {
  std::string text = fmt::format("  {{ type = {}, name = {}", toml_string(name_of(layer.type)), toml_string(layer.name));
  for (const auto& option : layer_options(layer.type)) {
    if (const auto value = option.get(layer)) text += fmt::format(", {} = {}", option.key, value_text(option.type, *value));
  }
  return text + " },\n";
}

}  // namespace

Experiment parse_experiment(std::string_view text, const std::string& source, std::span<const std::string> overrides) {
  Experiment experiment;
  FileParser(source, experiment).parse_table(parse_text(text, source), "");
  for (const std::string& assignment : overrides) apply_override(experiment, assignment);
  if (experiment.name.empty()) experiment.name = std::filesystem::path(source).stem().string();
  validate(experiment, source);
  return experiment;
}

Experiment load_experiment(const std::string& path, std::span<const std::string> overrides) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) throw unreadable_error("{}: a folder, expected an experiment file", path);
  std::ifstream file(path, std::ios::binary);
  if (!file) throw unreadable_error("{}: cannot be opened, expected an experiment file", path);
  std::ostringstream text;
  text << file.rdbuf();
  return parse_experiment(text.str(), path, overrides);
}

void apply_override(Experiment& experiment, std::string_view assignment) {
  const std::string place = fmt::format("--set {}", one_line(assignment));
  const size_t equals = assignment.find('=');
  if (equals == std::string_view::npos) throw usage_error("{}: expected key=value", place);
  const std::string key = trimmed(assignment.substr(0, equals));
  const std::string value = trimmed(assignment.substr(equals + 1));
  if (const Option<Experiment>* option = find_option(key)) {
    assign(*option, experiment, place, override_value(value, option->type.kind));
    return;
  }
  for (const std::string_view table : {kAutocastOps, kAutocastModules}) {
    if (key.size() > table.size() + 1 && key.starts_with(table) && key[table.size()] == '.') {
      const std::string name = without_quotes(key.substr(table.size() + 1));
      assign_precision(experiment, place, table == kAutocastModules, name, override_value(value, ValueKind::choice));
      return;
    }
  }
  if (key == kLayers) throw usage_error("{}: layers are set in a file only", place);
  if (is_table_name(key)) throw usage_error("{}: {} is a table: expected one of its keys", place, key);
  throw unknown_key(place, key);
}

std::string to_toml(const Experiment& experiment) {
  std::string text, table;
  for (const auto& option : experiment_options()) {
    const size_t dot = option.key.find('.');
    const std::string of = dot == std::string::npos ? "" : option.key.substr(0, dot);
    if (of != table) {
      text += fmt::format("\n[{}]\n", of);
      table = of;
    }
    if (const auto value = option.get(experiment)) {
      text += fmt::format("{} = {}\n", last_part(option.key), value_text(option.type, *value));
    }
    if (option.key == "model.preset" && experiment.model.preset.empty()) {
      text += "layers = [\n";
      for (const LayerSpec& layer : experiment.model.layers) text += layer_text(layer);
      text += "]\n";
    }
  }
  const auto write_overrides = [&](std::string_view name, const auto& overrides) {
    if (overrides.empty()) return;
    text += fmt::format("\n[{}]\n", name);
    for (const auto& [key, precision] : overrides)
      text += fmt::format("{} = {}\n", toml_string(key), toml_string(name_of(precision)));
  };
  write_overrides(kAutocastOps, experiment.autocast.ops);
  write_overrides(kAutocastModules, experiment.autocast.modules);
  return text;
}

}  // namespace ulpscope
