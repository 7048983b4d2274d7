// Experiments from TOML and --set, and back to TOML, all by the tables of experiment_options.h.
#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "ulpscope/base/error.h"
#include "ulpscope/base/parse_number.h"
#include "ulpscope/base/text.h"
#include "ulpscope/core/data/data_files.h"
#include "ulpscope/core/run/experiment_options.h"

namespace ulpscope {

namespace {

constexpr std::string_view kLayers = "model.layers";
constexpr std::string_view kOptimizers = "optimizers";
constexpr std::string_view kOptimizer = "optimizer.";  // what its keys begin with
constexpr std::string_view kInject = "inject";
// Tables whose keys are free names.
constexpr std::string_view kNamedTables[] = {kAutocastOps, kAutocastModules, kArithmeticOps, kArithmeticModules};

// 3.0 and not 3, which would be an integer.
std::string float_text(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

RawValue raw_value(const toml::node& node) {
  if (const auto* value = node.as_boolean()) return {value->get(), value->get() ? "true" : "false"};
  if (const auto* value = node.as_integer()) return {value->get(), fmt::format("{}", value->get())};
  if (const auto* value = node.as_floating_point()) return {value->get(), float_text(value->get())};
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

bool is_table_name(std::string_view key) {
  if (key == "autocast" || std::find(std::begin(kNamedTables), std::end(kNamedTables), key) != std::end(kNamedTables)) return true;
  const auto& options = experiment_options();
  return std::any_of(options.begin(), options.end(),
                     [&](const auto& option) { return option.key.starts_with(std::string(key) + '.'); });
}

std::string_view last_part(std::string_view key) { return key.substr(key.rfind('.') + 1); }

Error unknown_key(std::string_view place, const std::string& key) {
  std::vector<std::string> candidates{std::string(kLayers), std::string(kOptimizers), std::string(kInject)};
  candidates.insert(candidates.end(), std::begin(kNamedTables), std::end(kNamedTables));
  for (const auto& option : experiment_options()) candidates.push_back(option.key);
  // Within the table that is named, or was meant.
  std::vector<std::string> tables, members;
  for (const std::string& candidate : candidates) {
    if (const size_t dot = candidate.find('.'); dot != std::string::npos) tables.push_back(candidate.substr(0, dot));
  }
  if (const size_t dot = key.find('.'); dot != std::string::npos) {
    if (const auto table = nearest_name(key.substr(0, dot), tables)) {
      for (const std::string& candidate : candidates) {
        if (candidate.starts_with(*table + '.')) members.push_back(candidate.substr(table->size() + 1));
      }
      if (const auto member = nearest_name(key.substr(dot + 1), members)) {
        return usage_error("{}: unknown key '{}'; did you mean '{}.{}'?", place, one_line(key), *table, *member);
      }
    }
  }
  // The right name in the wrong table is likelier than a misspelling.
  for (const std::string& candidate : candidates) {
    if (last_part(candidate) == last_part(key)) {
      return usage_error("{}: unknown key '{}'; did you mean '{}'?", place, one_line(key), candidate);
    }
  }
  if (!members.empty()) return usage_error("{}: unknown key '{}'; expected {}", place, one_line(key), join_words(members, "or"));
  candidates.insert(candidates.end(), tables.begin(), tables.end());
  return usage_error("{}: unknown key '{}'{}", place, one_line(key), did_you_mean(key, candidates));
}

void assign(const Option<Experiment>& option, Experiment& experiment, std::string_view place, const RawValue& raw) {
  at_place(fmt::format("{}: {}", place, option.key), [&] { option.set(experiment, check_value(option.type, raw)); });
  experiment.given.all.insert(option.key);
  if (option.key != "model.preset") return;
  for (LayerSpec& layer : experiment.model.layers) layer.place.text = fmt::format("{}: {}", place, layer.place.text);
}

// fp32, fp16 or bf16.
Precision parse_precision(const RawValue& raw) { return find_precision(std::get<std::string>(check_value(precision_type(), raw))); }

// Overrides of autocast: a name that is free, and a type.
void assign_precision(Experiment& experiment, std::string_view place, bool is_module, const std::string& name,
                      const RawValue& raw) {
  const std::string key = fmt::format("{}: {}.{}", place, is_module ? kAutocastModules : kAutocastOps, one_line(name));
  const Precision precision = at_place(key, [&] { return parse_precision(raw); });
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

// Of a table of `optimizers`, which has the keys of `optimizer`.
const OptionType& type_of_optimizer_key(std::string_view place, const std::string& key) {
  if (const Option<Experiment>* option = find_option(std::string(kOptimizer) + key)) return option->type;
  std::vector<std::string> keys{"modules"};
  for (const auto& option : experiment_options())
    if (option.key.starts_with(kOptimizer)) keys.push_back(option.key.substr(kOptimizer.size()));
  throw usage_error("{}: an optimizer has no key '{}'{}", place, one_line(key), did_you_mean_or_expected(key, keys));
}

const Option<ArithmeticChange>& find_arithmetic_option(std::string_view where, const std::string& key) {
  std::vector<std::string> keys;
  for (const auto& option : arithmetic_options()) {
    if (option.key == key) return option;
    keys.push_back(option.key);
  }
  throw usage_error("{}: unknown key '{}'{}", where, one_line(key), did_you_mean_or_expected(key, keys));
}

// What arithmetic.ops and arithmetic.modules change for a name.
ArithmeticChange& change_of(ArithmeticPolicy& policy, bool is_module, const std::string& name) {
  if (!is_module) return policy.ops[name];
  const auto known =
      std::find_if(policy.modules.begin(), policy.modules.end(), [&](const auto& item) { return item.first == name; });
  return known != policy.modules.end() ? known->second : policy.modules.emplace_back(name, ArithmeticChange{}).second;
}

class FileParser {
 public:
  FileParser(std::string source, Experiment& experiment) : source_(std::move(source)), experiment_(experiment) {}

  void parse_table(const toml::table& table, const std::string& prefix) {
    for (const Member& member : members_of(table)) {
      const std::string key = prefix.empty() ? member.key : prefix + '.' + member.key;
      const std::string place = place_of(member.line);
      preset_given_ = preset_given_ || key == "model.preset";
      layers_given_ = layers_given_ || key == kLayers;
      if (preset_given_ && layers_given_) throw usage_error("{}: expected model.preset or model.layers, found both", place);
      if (prefix == kAutocastOps || prefix == kAutocastModules) {
        assign_precision(experiment_, place, prefix == kAutocastModules, member.key, raw_value(*member.node));
      } else if (prefix == kArithmeticOps || prefix == kArithmeticModules) {
        parse_arithmetic(member, place, key, prefix == kArithmeticModules);
      } else if (const Option<Experiment>* option = find_option(key)) {
        assign(*option, experiment_, place, raw_value(*member.node));
      } else if (key == kLayers) {
        experiment_.model.layers = parse_layers(*member.node, place, std::string(kLayers));
      } else if (key == kOptimizers) {
        parse_optimizers(*member.node, place);
      } else if (key == kInject) {
        parse_faults(*member.node, place);
      } else if (is_table_name(key)) {
        if (!member.node->is_table())
          throw usage_error("{}: {}: expected a table, found {}", place, key, raw_value(*member.node).text);
        parse_table(*member.node->as_table(), key);
      } else {
        throw unknown_key(place, key);
      }
    }
  }

 private:
  std::string place_of(toml::source_index line) const { return line > 0 ? fmt::format("{}:{}", source_, line) : source_; }

  void parse_arithmetic(const Member& named, const std::string& place, const std::string& key, bool is_module) {
    const toml::table* table = named.node->as_table();
    if (table == nullptr || table->empty()) {
      throw usage_error("{}: {}: expected a table like {{ accumulate = \"fp16\" }}, found {}", place, one_line(key),
                        table == nullptr ? raw_value(*named.node).text : "an empty one");
    }
    ArithmeticChange& change = change_of(experiment_.arithmetic, is_module, named.key);
    for (const Member& member : members_of(*table)) {
      const std::string where = fmt::format("{}: {}", place_of(member.line), one_line(key));
      const Option<ArithmeticChange>& option = find_arithmetic_option(where, member.key);
      at_place(where + '.' + option.key, [&] { option.set(change, check_value(option.type, raw_value(*member.node))); });
    }
  }

  // The list of tables at `key`: of each of them the table, the key, as "inject[0]", and where it stands, with that key.
  template <typename Parse>
  void parse_list(const toml::node& node, const std::string& place, std::string_view key, const Parse& parse) {
    const toml::array* list = node.as_array();
    if (list == nullptr) throw usage_error("{}: {}: expected a list of tables, found {}", place, key, raw_value(node).text);
    size_t index = 0;
    for (const toml::node& item : *list) {
      const std::string item_key = fmt::format("{}[{}]", key, index++);
      const std::string where = fmt::format("{}: {}", place_of(item.source().begin.line), item_key);
      const toml::table* table = item.as_table();
      if (table == nullptr) throw usage_error("{}: expected a table, found {}", where, raw_value(item).text);
      parse(*table, item_key, where);
    }
  }

  void parse_faults(const toml::node& node, const std::string& place) {
    parse_list(node, place, kInject, [&](const toml::table& table, const std::string& item_key, const std::string& where) {
      InjectedFault fault;
      fault.place.text = where;
      for (const Member& member : members_of(table)) {
        std::vector<std::string> keys;
        const Option<InjectedFault>* found = nullptr;
        for (const Option<InjectedFault>& option : fault_options()) {
          keys.push_back(option.key);
          if (option.key == member.key) found = &option;
        }
        if (found == nullptr)
          throw usage_error("{}: unknown key '{}'{}", where, one_line(member.key), did_you_mean_or_expected(member.key, keys));
        at_place(fmt::format("{}: {}.{}", place_of(member.line), item_key, member.key),
                 [&] { found->set(fault, check_value(found->type, raw_value(*member.node))); });
      }
      experiment_.inject.push_back(std::move(fault));
    });
  }

  void parse_optimizers(const toml::node& node, const std::string& place) {
    parse_list(node, place, kOptimizers, [&](const toml::table& table, const std::string& item_key, const std::string& where) {
      OptimizerGroup group;
      group.place.text = where;
      for (const Member& member : members_of(table)) {
        const std::string key = fmt::format("{}: {}.{}", place_of(member.line), item_key, member.key);
        const RawValue raw = raw_value(*member.node);
        if (member.key == "modules") {
          group.modules = at_place(key, [&] {
            return std::get<std::vector<std::string>>(check_value({OptionKind::text_list, {}, {}}, raw));
          });
        } else {
          const OptionType& type = type_of_optimizer_key(group.place.text, member.key);
          group.values.emplace_back(member.key, at_place(key, [&] { return check_value(type, raw); }));
        }
      }
      if (group.modules.empty()) throw usage_error("{}: expected modules, a list of patterns", group.place.text);
      experiment_.optimizers.push_back(std::move(group));
    });
  }

  // The list of layers at `key`, "model.layers" or "model.layers[1].shortcut".
  std::vector<LayerSpec> parse_layers(const toml::node& node, const std::string& place, const std::string& key) {
    std::vector<LayerSpec> layers;
    parse_list(node, place, key, [&](const toml::table& table, const std::string& item_key, const std::string& where) {
      layers.push_back(parse_layer(table, where, item_key, layers.size()));
    });
    if (layers.empty()) throw usage_error("{}: {}: expected at least one layer, found []", place, key);
    return layers;
  }

  LayerSpec parse_layer(const toml::table& table, const std::string& where, const std::string& item_key, size_t index) {
    LayerSpec layer(parse_layer_type(table, where), std::to_string(index));
    layer.place.text = where;
    std::vector<std::string> keys{"name", "dtype"};
    for (const LayerOption& option : layer.type->options) keys.push_back(option.key);
    for (const LayerList& list : layer.type->lists) keys.emplace_back(list.key);

    for (const Member& member : members_of(table)) {
      const std::string at = fmt::format("{}: {}", place_of(member.line), item_key);
      const std::string key = at + '.' + member.key;
      const RawValue raw = raw_value(*member.node);
      if (member.key == "name") {
        layer.name = at_place(key, [&] { return parse_layer_name(raw); });
        layer.place.text += ' ' + toml_string(layer.name);
      } else if (member.key == "dtype") {
        layer.dtype = at_place(key, [&] { return dtype_of(parse_precision(raw)); });
      } else if (const LayerOption* option = find_layer_option(*layer.type, member.key)) {
        at_place(key, [&] { layer.set(option->key, check_value(option->type, raw)); });
      } else if (const auto list = find_layer_list(*layer.type, member.key)) {
        layer.lists[*list] = parse_layers(*member.node, place_of(member.line), fmt::format("{}.{}", item_key, member.key));
      } else if (member.key != "type") {
        throw usage_error("{}: {} has no key '{}'{}", at, layer.type->name, one_line(member.key),
                          did_you_mean_or_expected(member.key, keys));
      }
    }
    for (const LayerOption& option : layer.type->options) {
      if (option.required && !layer.has(option.key)) {
        throw usage_error("{}: {} needs {}: expected {}", where, layer.type->name, option.key, option.type.description());
      }
    }
    for (size_t i = 0; i < layer.lists.size(); ++i) {
      const LayerList& list = layer.type->lists[i];
      if (list.required && layer.lists[i].empty())
        throw usage_error("{}: {} needs {}: expected a list of layers", where, layer.type->name, list.key);
    }
    return layer;
  }

  static std::optional<size_t> find_layer_list(const LayerType& type, std::string_view key) {
    for (size_t i = 0; i < type.lists.size(); ++i)
      if (type.lists[i].key == key) return i;
    return std::nullopt;
  }

  static const LayerType& parse_layer_type(const toml::table& table, const std::string& where) {
    OptionType types{OptionKind::choice, {}, {}};
    for (const LayerType& type : layer_types()) types.choices.emplace_back(type.name);
    const toml::node* type = table.get("type");
    if (type == nullptr) throw usage_error("{}: no type: expected {}", where, types.description());
    return at_place(where + ".type", [&]() -> const LayerType& {
      return *find_layer_type(std::get<std::string>(check_value(types, raw_value(*type))));
    });
  }

  static std::string parse_layer_name(const RawValue& raw) {
    auto name = std::get<std::string>(check_value({OptionKind::text, {}, {}}, raw));
    if (name.empty()) throw usage_error("expected a module path, found \"\"");
    return name;
  }

  static const LayerOption* find_layer_option(const LayerType& type, std::string_view key) {
    const auto found =
        std::find_if(type.options.begin(), type.options.end(), [&](const auto& option) { return option.key == key; });
    return found == type.options.end() ? nullptr : &*found;
  }

  std::string source_;
  Experiment& experiment_;
  bool preset_given_ = false, layers_given_ = false;
};

// Tables and lists within each other, more than any experiment needs. What toml++ makes of deeper ones it takes apart by recursion,
// until the stack ends: a dotted key is as many tables as it has dots.
constexpr int kDeepest = 100;

// Throws Error (unreadable) where a text nests deeper, before anything is made of it. Only brackets, dots and the ends of strings
// and comments are looked at; what else is wrong with the text is left to its parser.
void check_depth(std::string_view text, const std::string& source) {
  int line = 1, header = 0, depth = 0;
  std::vector<int> around;  // the depths outside of the open brackets
  bool in_header = false, begins = true;
  const auto string_end = [&](size_t at) {
    const std::string_view quote = text.substr(at, 1), three = text.substr(at, 3);
    const bool is_long = three.size() == 3 && three[1] == three[0] && three[2] == three[0];
    size_t end = at + (is_long ? 3 : 1);
    for (; end < text.size() && (is_long || text[end] != '\n'); ++end) {
      if (text[end] == '\\' && quote == "\"") {
        ++end;
      } else if (text.substr(end).starts_with(is_long ? three : quote)) {
        return end + (is_long ? 3 : 1);
      }
    }
    return end;
  };
  for (size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (c == '"' || c == '\'') {
      const size_t end = std::min(string_end(at), text.size());
      line +=
          static_cast<int>(std::count(text.begin() + static_cast<ptrdiff_t>(at), text.begin() + static_cast<ptrdiff_t>(end), '\n'));
      at = end;
      begins = false;
      continue;
    }
    if (c == '#') {
      at = std::min(text.find('\n', at), text.size());
      continue;
    }
    ++at;
    if (c == '\n') {
      ++line;
      if (!around.empty()) continue;
      if (in_header) header = depth;
      depth = header;
      in_header = false;
      begins = true;
      continue;
    }
    if (c == ' ' || c == '\t' || c == '\r') continue;
    if (c == '[' && begins) {
      in_header = true;
      depth = 1;
    } else if (c == '.') {
      ++depth;
    } else if ((c == '[' || c == '{') && !in_header) {
      around.push_back(depth++);
    } else if ((c == ']' || c == '}') && !around.empty()) {
      depth = around.back();
      around.pop_back();
    } else if (c == ',') {
      depth = around.empty() ? header : around.back() + 1;
    }
    begins = false;
    if (depth > kDeepest) throw unreadable_error("{}:{}: tables or lists more than {} deep", source, line, kDeepest);
  }
}

toml::table parse_text(std::string_view text, const std::string& source) {
  check_depth(text, source);
  try {
    return toml::parse(text, source);
  } catch (const toml::parse_error& error) {
    throw unreadable_error("{}:{}:{}: not TOML: {}", source, error.source().begin.line, error.source().begin.column,
                           one_line(error.description()));
  }
}

// What stands behind the = of an override: TOML, or a plain string.
RawValue override_value(const std::string& text, OptionKind kind) {
  const RawValue plain{text, toml_string(text)};
  const bool takes_list = kind == OptionKind::text_list || kind == OptionKind::choice_list || kind == OptionKind::integer_list;
  const auto parse = [](const std::string& value) -> std::optional<RawValue> {
    try {
      const toml::table table = parse_text("value = " + value, "");
      if (table.size() == 1) return raw_value(*table.get("value"));
    } catch (const Error&) {
    }
    return std::nullopt;
  };
  if (kind == OptionKind::text || kind == OptionKind::choice) {
    return text.starts_with('"') || text.starts_with('\'') ? parse(text).value_or(plain) : plain;
  }
  if (takes_list && !text.starts_with('[')) {
    std::vector<RawValue> items;
    std::istringstream stream(text);
    for (std::string item; std::getline(stream, item, ',');) {
      items.push_back(kind == OptionKind::integer_list ? parse(item).value_or(RawValue{item, toml_string(item)})
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

// Of a layer's dtype.
const char* type_name(DType dtype) {
  for (const Precision precision : {Precision::fp16, Precision::bf16})
    if (dtype_of(precision) == dtype) return name_of(precision);
  return name_of(Precision::fp32);
}

std::string layer_text(const LayerSpec& layer) {
  std::string text = fmt::format("{{ type = {}, name = {}", toml_string(layer.type->name), toml_string(layer.name));
  if (layer.dtype) text += fmt::format(", dtype = {}", toml_string(type_name(*layer.dtype)));
  for (size_t i = 0; i < layer.values.size(); ++i) {
    const LayerOption& option = layer.type->options[i];
    if (layer.values[i]) text += fmt::format(", {} = {}", option.key, value_text(option.type, *layer.values[i]));
  }
  for (size_t i = 0; i < layer.lists.size(); ++i) {
    if (layer.lists[i].empty()) continue;
    std::vector<std::string> items;
    for (const LayerSpec& item : layer.lists[i]) items.push_back(layer_text(item));
    text += fmt::format(", {} = [{}]", layer.type->lists[i].key, fmt::join(items, ", "));
  }
  return text + " }";
}

// Paths in a file are relative to its folder.
void set_folder(DataSettings& data, const std::filesystem::path& folder) {
  for (const auto key : path_keys(data.kind)) {
    std::string& path = data.*key;
    if (path.empty()) continue;
    path = (folder / path).string();
    // Experiments are kept as text in traces and checkpoints.
    if (!is_utf8(path)) throw usage_error("'{}': data in a folder whose name is no UTF-8 cannot be named in an experiment", path);
  }
}

Experiment parse(std::string_view text, const std::string& source, const std::filesystem::path& folder,
                 std::span<const Override> overrides) {
  Experiment experiment;
  experiment.place.text = source;
  FileParser(source, experiment).parse_table(parse_text(text, source), "");
  set_folder(experiment.data, folder);
  for (const Override& setting : overrides) apply_override(experiment, setting);
  if (experiment.name.empty()) experiment.name = valid_utf8(std::filesystem::path(source).stem().string());
  validate(experiment);
  return experiment;
}

constexpr std::streamsize kMaximumBytes = std::streamsize{4} << 20;  // of an experiment

}  // namespace

Experiment parse_experiment(std::string_view text, const std::string& source, std::span<const Override> overrides) {
  return parse(text, source, "", overrides);
}

Experiment load_experiment(const std::string& path, std::span<const Override> overrides) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) throw unreadable_error("{}: a folder, expected an experiment file", path);
  std::ifstream file(path, std::ios::binary);
  if (!file) throw unreadable_error("{}: cannot be opened, expected an experiment file", path);
  // Not more than that is read, since a device may never end.
  std::string text(kMaximumBytes + 1, '\0');
  file.read(text.data(), kMaximumBytes + 1);
  if (file.gcount() > kMaximumBytes) {
    throw unreadable_error("{}: expected an experiment file of at most {} bytes, found more", path, kMaximumBytes);
  }
  text.resize(static_cast<size_t>(file.gcount()));
  // A pipe lies in no folder that its writer knows.
  const bool in_folder = std::filesystem::is_regular_file(path, error);
  return parse(text, path, in_folder ? std::filesystem::path(path).parent_path() : "", overrides);
}

std::optional<OptimizerKey> optimizer_key(std::string_view key) {
  if (!key.starts_with(kOptimizers) || key.substr(kOptimizers.size(), 1) != "[") return std::nullopt;
  const std::string_view rest = key.substr(kOptimizers.size() + 1);
  const size_t end = rest.find("].");
  const auto index = end == std::string_view::npos ? std::nullopt : parse_number<size_t>(rest.substr(0, end));
  return index ? std::optional(OptimizerKey{*index, std::string(rest.substr(end + 2))}) : std::nullopt;
}

void apply_override(Experiment& experiment, const Override& setting) {
  const std::string &place = setting.place, &assignment = setting.assignment;
  if (!is_utf8(assignment)) throw usage_error("{}: expected UTF-8, found other bytes", place);
  const size_t equals = assignment.find('=');
  if (equals == std::string::npos) throw usage_error("{}: expected key=value", place);
  const std::string key = trimmed(assignment.substr(0, equals));
  const std::string assigned = trimmed(assignment.substr(equals + 1));
  experiment.given.overrides[key] = place;
  if (const Option<Experiment>* option = find_option(key)) {
    assign(*option, experiment, place, override_value(assigned, option->type.kind));
    return;
  }
  for (const std::string_view table : {kAutocastOps, kAutocastModules}) {
    if (key.size() > table.size() + 1 && key.starts_with(table) && key[table.size()] == '.') {
      const std::string name = without_quotes(key.substr(table.size() + 1));
      assign_precision(experiment, place, table == kAutocastModules, name, override_value(assigned, OptionKind::choice));
      return;
    }
  }
  for (const std::string_view table : {kArithmeticOps, kArithmeticModules}) {
    if (key.size() <= table.size() + 1 || !key.starts_with(table) || key[table.size()] != '.') continue;
    const size_t dot = key.rfind('.');
    if (dot <= table.size())
      throw usage_error("{}: {} is a table: expected one of its keys, like {}.accumulate", place, one_line(key), one_line(key));
    const std::string name = without_quotes(key.substr(table.size() + 1, dot - table.size() - 1));
    const Option<ArithmeticChange>& option = find_arithmetic_option(place, key.substr(dot + 1));
    at_place(fmt::format("{}: {}", place, one_line(key)), [&] {
      option.set(change_of(experiment.arithmetic, table == kArithmeticModules, name),
                 check_value(option.type, override_value(assigned, option.type.kind)));
    });
    return;
  }
  const auto is_of = [&](std::string_view list) {
    return key.starts_with(list) && (key.size() == list.size() || key[list.size()] == '[' || key[list.size()] == '.');
  };
  if (is_of(kLayers)) throw usage_error("{}: layers are set in a file only", place);
  if (is_of(kInject)) throw usage_error("{}: what to inject is set in a file only", place);
  if (const auto of_group = optimizer_key(key)) {
    if (of_group->key == "modules") throw usage_error("{}: modules of an optimizer are set in a file only", place);
    if (of_group->index >= experiment.optimizers.size())
      throw usage_error("{}: the experiment has {} in {}", place, count_of(experiment.optimizers.size(), "table"), kOptimizers);
    const OptionType& type = type_of_optimizer_key(place, of_group->key);
    auto& values = experiment.optimizers[of_group->index].values;
    auto value = std::find_if(values.begin(), values.end(), [&](const auto& each) { return each.first == of_group->key; });
    if (value == values.end()) value = values.insert(value, {of_group->key, {}});
    value->second = at_place(fmt::format("{}: {}", place, one_line(key)),
                             [&] { return check_value(type, override_value(assigned, type.kind)); });
    return;
  }
  if (is_of(kOptimizers))
    throw usage_error("{}: {} are tables of a list: expected a key of one, like {}[0].learning_rate", place, kOptimizers,
                      kOptimizers);
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
    if (option.key == "model.preset") {
      text += "layers = [\n";
      for (const LayerSpec& layer : experiment.model.layers) text += fmt::format("  {},\n", layer_text(layer));
      text += "]\n";
    }
  }
  for (const NamedTable& named : named_tables(experiment)) {
    if (!named.members.empty()) text += fmt::format("\n[{}]\n", named.name);
    for (const auto& [key, value] : named.members) text += fmt::format("{} = {}\n", key, value);
  }
  for (const OptimizerGroup& group : experiment.optimizers) {
    text += fmt::format("\n[[{}]]\nmodules = {}\n", kOptimizers, value_text({OptionKind::text_list, {}, {}}, group.modules));
    for (const auto& [key, value] : group.values)
      text += fmt::format("{} = {}\n", key, value_text(find_option(std::string(kOptimizer) + key)->type, value));
  }
  for (const InjectedFault& fault : experiment.inject) {
    text += fmt::format("\n[[{}]]\n", kInject);
    for (const auto& [key, value] : given_values(fault)) text += fmt::format("{} = {}\n", key, value);
  }
  return text;
}

}  // namespace ulpscope
