// What an experiment is besides its keys: names, rules that follow from several settings, and what settings demand of each other.
#include "ulpscope/core/run/experiment.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "ulpscope/base/error.h"
#include "ulpscope/base/text.h"
#include "ulpscope/core/data/data_files.h"
#include "ulpscope/core/run/experiment_options.h"
#include "ulpscope/trace/sink.h"

namespace ulpscope {

const char* name_of(Switch value) {
  static constexpr const char* kNames[] = {"auto", "off", "on"};
  return kNames[static_cast<size_t>(value)];
}

const char* name_of(Evaluation evaluation) {
  static constexpr const char* kNames[] = {"never", "epoch", "end"};
  return kNames[static_cast<size_t>(evaluation)];
}

std::string ScalerSettings::rule_name(const PrecisionRow& precision) const {
  return preset.value_or(precision.scaler != nullptr ? precision.scaler : "pytorch");
}

LossScaleRule ScalerSettings::rule(const PrecisionRow& precision) const {
  LossScaleRule rule = find_loss_scale_rule(rule_name(precision)).value_or(LossScaleRule{});
  rule.initial = initial.value_or(rule.initial);
  rule.growth_factor = growth_factor.value_or(rule.growth_factor);
  rule.backoff_factor = backoff_factor.value_or(rule.backoff_factor);
  rule.growth_interval = growth_interval.value_or(rule.growth_interval);
  rule.hysteresis = hysteresis.value_or(rule.hysteresis);
  rule.floor = floor.value_or(rule.floor);
  rule.cap = cap.value_or(rule.cap);
  rule.dynamic = dynamic.value_or(rule.dynamic);
  return rule;
}

RecorderOptions RecordingSettings::recorder_options() const {
  return {level, bits, every, modules, ops, phases, max_size, stop_on};
}

std::string RecordingSettings::filters() const {
  std::string text;
  const auto add = [&](std::string_view what, const auto& items) {
    if (!items.empty()) text += fmt::format("{}{}={}", text.empty() ? "" : " ", what, fmt::join(items, ","));
  };
  add("module", modules);
  add("op", ops);
  std::vector<std::string_view> phase_names;
  for (const Phase phase : phases) phase_names.push_back(name_of(phase));
  add("phase", phase_names);
  return text;
}

bool Experiment::scaler_enabled() const {
  return scaler.enabled == Switch::on || (scaler.enabled == Switch::automatic && row_of(precision).scaler != nullptr);
}

std::string Experiment::overrides_of(std::initializer_list<std::string_view> keys) const {
  std::string text;
  for (const auto& [key, override_place] : given.overrides) {
    const bool is_meant = std::any_of(keys.begin(), keys.end(), [&](std::string_view meant) {
      return key.starts_with(meant) && (key.size() == meant.size() || key[meant.size()] == '.');
    });
    if (is_meant) text += (text.empty() ? "" : ", ") + override_place;
  }
  return text;
}

std::string Experiment::place_of(std::initializer_list<std::string_view> keys) const {
  const std::string overrides = overrides_of(keys);
  return overrides.empty() ? place.text : place.text + ", " + overrides;
}

namespace {

// In one list of layers; nullptr: in none.
const std::string* name_that_stands_twice(const std::vector<LayerSpec>& layers) {
  std::set<std::string_view> names;
  for (const LayerSpec& layer : layers) {
    if (!names.insert(layer.name).second) return &layer.name;
    for (const std::vector<LayerSpec>& list : layer.lists)
      if (const std::string* name = name_that_stands_twice(list)) return name;
  }
  return nullptr;
}

// With those that are repeated; a double, since repeats multiply.
double count_layers(const std::vector<LayerSpec>& layers) {
  double count = 0;
  for (const LayerSpec& layer : layers) {
    double within = 1;
    for (const std::vector<LayerSpec>& list : layer.lists) within += count_layers(list);
    count += within * static_cast<double>(layer.integer_or("repeat", 1));
  }
  return count;
}

struct DataKey {
  DataKind kind;
  const char* key;
  std::string DataSettings::*value;
};
constexpr DataKey kNeededKeys[] = {{DataKind::idx, "data.train_images", &DataSettings::train_images},
                                   {DataKind::idx, "data.train_labels", &DataSettings::train_labels},
                                   {DataKind::hdf5, "data.path", &DataSettings::path},
                                   {DataKind::npy, "data.inputs", &DataSettings::inputs},
                                   {DataKind::npy, "data.targets", &DataSettings::targets},
                                   {DataKind::csv, "data.path", &DataSettings::path},
                                   {DataKind::text, "data.path", &DataSettings::path}};
// Two keys of which a kind takes both or neither lie next to each other.
constexpr DataKey kPairedKeys[] = {{DataKind::idx, "data.test_images", &DataSettings::test_images},
                                   {DataKind::idx, "data.test_labels", &DataSettings::test_labels},
                                   {DataKind::hdf5, "data.test_inputs", &DataSettings::test_inputs},
                                   {DataKind::hdf5, "data.test_targets", &DataSettings::test_targets},
                                   {DataKind::npy, "data.test_inputs", &DataSettings::test_inputs},
                                   {DataKind::npy, "data.test_targets", &DataSettings::test_targets}};

void check_data_keys(const Experiment& experiment) {
  const DataSettings& data = experiment.data;
  std::vector<std::string> needed;
  bool missing = false;
  for (const DataKey& row : kNeededKeys) {
    if (row.kind != data.kind) continue;
    needed.emplace_back(row.key);
    missing = missing || (data.*row.value).empty();
  }
  if (missing) {
    throw usage_error("{}: data.kind = {} needs {}", experiment.place_of({"data"}), toml_string(name_of(data.kind)),
                      join_words(needed));
  }
  for (size_t i = 0; i < std::size(kPairedKeys); i += 2) {
    const DataKey &one = kPairedKeys[i], &other = kPairedKeys[i + 1];
    if (one.kind == data.kind && (data.*one.value).empty() != (data.*other.value).empty()) {
      throw usage_error("{}: expected {} and {} together, or neither", experiment.place_of({"data.kind", one.key, other.key}),
                        one.key, other.key);
    }
  }
  if (data.kind == DataKind::csv && (data.delimiter.size() != 1 || data.delimiter.find_first_of("\"\r\n") == 0)) {
    throw usage_error("{}: data.delimiter: expected one character that ends no line and is no quote, found {}",
                      experiment.place_of({"data.delimiter"}), toml_string(data.delimiter));
  }
}

using Keys = std::initializer_list<std::string_view>;  // that what is checked depends on

// A key that chooses a kind, with which the other keys of its table have an effect or none.
struct KindKey {
  std::string key;  // "data.kind"
  size_t chosen = 0;
  struct Kind {
    std::string_view name;
    std::span<const std::string_view> keys;  // that not all kinds take
  };
  std::vector<Kind> kinds;

  std::string_view table() const { return std::string_view(key).substr(0, key.find('.') + 1); }
  // "data.context belongs to text and copy_task; data.kind is csv", or "" where the kind takes it.
  std::string refusal_of(std::string_view member) const {
    std::vector<std::string> takers;
    for (size_t i = 0; i < kinds.size(); ++i) {
      if (std::find(kinds[i].keys.begin(), kinds[i].keys.end(), member) == kinds[i].keys.end()) continue;
      if (i == chosen) return "";
      takers.emplace_back(kinds[i].name);
    }
    if (takers.empty()) return "";
    return fmt::format("{}{} belongs to {}; {} is {}", table(), member, join_words(takers), key, kinds[chosen].name);
  }
};

template <typename Kind, typename KeysOf>
KindKey kind_key(const char* key, Kind chosen, KeysOf keys_of_kind) {
  KindKey result{key, static_cast<size_t>(chosen), {}};
  for (size_t i = 0; i < experiment_choices(key).size(); ++i) {
    const auto kind = static_cast<Kind>(i);
    result.kinds.push_back({name_of(kind), keys_of_kind(kind)});
  }
  return result;
}

KindKey optimizer_kind(const OptimizerSettings& settings) {
  return kind_key("optimizer.type", settings.type, [](OptimizerType type) { return row_of(type).keys; });
}

std::vector<KindKey> kind_keys(const Experiment& experiment) {
  return {kind_key("data.kind", experiment.data.kind, [](DataKind kind) { return keys_of(kind); }),
          kind_key("loss.function", experiment.loss.function, [](LossFunction function) { return type_of(function).keys; }),
          optimizer_kind(experiment.optimizer),
          kind_key("schedule.type", experiment.schedule.type, [](ScheduleType type) { return keys_of(type); }),
          kind_key("fp8.recipe", experiment.fp8.recipe, [](ScalingRecipe recipe) { return keys_of(recipe); })};
}

// A key that would have no effect, and has another value than its default, is a mistake.
void check_kinds(const Experiment& experiment) {
  static const Experiment defaults;
  for (const KindKey& kind : kind_keys(experiment)) {
    for (const Option<Experiment>& option : experiment_options()) {
      if (!option.key.starts_with(kind.table()) || option.get(experiment) == option.get(defaults)) continue;
      const std::string refusal = kind.refusal_of(option.key.substr(kind.table().size()));
      if (!refusal.empty()) throw usage_error("{}: {}", experiment.place_of({kind.key, option.key}), refusal);
    }
  }
  for (const OptimizerGroup& group : experiment.optimizers) {
    const KindKey kind = optimizer_kind(experiment.settings_of(group));
    for (const auto& [key, value] : group.values) {
      if (const std::string refusal = kind.refusal_of(key); !refusal.empty())
        throw usage_error("{}: {}", group.place.text, refusal);
    }
  }
}

// `fail` throws.
template <typename Fail>
void check_optimizer(const OptimizerSettings& optimizer, const Experiment& experiment, const Fail& fail) {
  if (optimizer.nesterov && (optimizer.momentum <= 0 || optimizer.dampening != 0)) {
    fail({"optimizer.nesterov", "optimizer.momentum", "optimizer.dampening"},
         "optimizer.nesterov needs optimizer.momentum > 0 and optimizer.dampening = 0");
  }
  // What the scale kept from being flushed would be when it is taken out again in FP16.
  const PrecisionRow& row = row_of(experiment.precision);
  const bool is_bare = row.casts_model && row.dtype == DType::f16 && !optimizer.master_weights.value_or(row.master_weights);
  if (experiment.scaler_enabled() && is_bare) {
    fail(
        {"precision", "scaler.enabled", "optimizer.master_weights"},
        fmt::format("a gradient scaler cannot unscale the FP16 gradients of {}, as in PyTorch; expected optimizer.master_weights = "
                    "true, or no scaler",
                    row.name));
  }
}

void check_fault(const InjectedFault& fault) {
  const auto fail = [&](std::string_view expected) { throw usage_error("{}: expected {}", fault.place.text, expected); };
  if (!fault.parameter.empty() + !fault.op.empty() + fault.sample.has_value() != 1) fail("one of parameter, sample and op");
  if (fault.set.has_value() + fault.scale.has_value() + fault.flip_bit.has_value() != 1) fail("one of set, scale and flip_bit");
  static const InjectedFault defaults;
  const bool has_place = fault.module != defaults.module || fault.phase != defaults.phase || fault.input != 0 || fault.call != 0;
  if (fault.op.empty() && has_place) fail("op, to which module, phase, input and call belong");
}

bool is_refused(const std::vector<KindKey>& kinds, std::string_view key) {
  return std::any_of(kinds.begin(), kinds.end(), [&](const KindKey& kind) {
    return key.starts_with(kind.table()) && !kind.refusal_of(key.substr(kind.table().size())).empty();
  });
}

SettingInfo setting(std::string name, std::string value, SettingKind kind, bool given) {
  return {std::move(name), std::move(value), kind, given};
}

// What holds, or nothing: that is no one value.
std::optional<std::string> effective_text(const Option<Experiment>& option, const Experiment& experiment) {
  std::optional<OptionValue> value = option.get(experiment);
  if (!value && option.otherwise) value = option.otherwise(experiment);
  return value ? std::optional(value_text(option.type, *value)) : std::nullopt;
}

void describe_group(const Experiment& experiment, size_t index, std::vector<SettingInfo>& settings) {
  const OptimizerGroup& group = experiment.optimizers[index];
  const std::string place = fmt::format("optimizers[{}].", index), table = "optimizer.";
  settings.push_back(
      setting(place + "modules", value_text({OptionKind::text_list, {}, {}}, group.modules), SettingKind::other, true));
  Experiment of_group;
  of_group.precision = experiment.precision;
  of_group.optimizer = experiment.settings_of(group);
  const std::vector<KindKey> kinds{optimizer_kind(of_group.optimizer)};
  for (const Option<Experiment>& option : experiment_options()) {
    if (!option.key.starts_with(table) || is_refused(kinds, option.key)) continue;
    const std::string key = option.key.substr(table.size());
    const bool given = std::any_of(group.values.begin(), group.values.end(), [&](const auto& each) { return each.first == key; });
    settings.push_back(setting(place + key, effective_text(option, of_group).value_or(""), option.setting, given));
  }
}

}  // namespace

std::vector<SettingInfo> describe_settings(const Experiment& experiment) {
  static const Experiment defaults;
  std::vector<SettingInfo> settings;
  const std::vector<KindKey> kinds = kind_keys(experiment);
  for (const Option<Experiment>& option : experiment_options()) {
    const auto value = effective_text(option, experiment);
    if (!value || is_refused(kinds, option.key)) continue;
    const bool given = experiment.given.all.contains(option.key) || option.get(experiment) != option.get(defaults);
    settings.push_back(setting(option.key, *value, option.setting, given));
  }
  for (size_t i = 0; i < experiment.optimizers.size(); ++i) describe_group(experiment, i, settings);
  for (size_t i = 0; i < experiment.inject.size(); ++i)
    for (auto& [key, value] : given_values(experiment.inject[i]))
      settings.push_back(setting(fmt::format("inject[{}].{}", i, key), value, SettingKind::other, true));
  for (const NamedTable& table : named_tables(experiment)) {
    settings.push_back(setting(table.name, table.text(), table.kind, !table.members.empty()));
  }
  return settings;
}

void validate(const Experiment& experiment) {
  const auto fail = [&](Keys keys, std::string_view message) { throw usage_error("{}: {}", experiment.place_of(keys), message); };
  if (experiment.model.layers.empty()) fail({"model"}, "no model: expected model.preset or model.layers");
  constexpr double kMostLayers = 10000;
  if (const double count = count_layers(experiment.model.layers); count > kMostLayers)
    fail({"model"}, fmt::format("model.layers: expected at most {} layers, repeated ones included, found {}", kMostLayers, count));
  if (const std::string* name = name_that_stands_twice(experiment.model.layers))
    fail({"model"}, fmt::format("model.layers: the name {} stands twice", toml_string(*name)));

  const DataSettings& data = experiment.data;
  check_data_keys(experiment);
  if (data.kind == DataKind::random_classification) {
    if (data.shape.size() != 1 && data.shape.size() != 3) {
      fail({"data.kind", "data.shape"},
           fmt::format("data.shape: expected [features] or [channels, height, width], found {} extents", data.shape.size()));
    }
    double elements = static_cast<double>(std::max(std::max(data.train_size, data.test_size), data.classes));
    for (const int64_t extent : data.shape) elements *= static_cast<double>(extent);
    if (elements > 0x1p31) fail({"data"}, "data: expected at most 2^31 generated elements (samples times features), found more");
  }

  check_kinds(experiment);
  check_optimizer(experiment.optimizer, experiment, fail);
  for (const OptimizerGroup& group : experiment.optimizers) {
    const auto fail_in_group = [&](Keys, std::string_view message) { throw usage_error("{}: {}", group.place.text, message); };
    check_optimizer(experiment.settings_of(group), experiment, fail_in_group);
  }

  for (const InjectedFault& fault : experiment.inject) check_fault(fault);

  if (experiment.shadow.every > 0 && experiment.recording.level == RecordLevel::off)
    fail({"shadow.every"}, "shadow.every: expected 0 where recording.level is off: what it finds is recorded");
  const uint64_t max_size = experiment.recording.max_size;
  if (max_size > 0 && max_size < empty_trace_bytes()) {
    fail({"recording.max_size"},
         fmt::format("recording.max_size: expected 0 or at least {} bytes, what a trace without tensor rows takes, found {}",
                     empty_trace_bytes(), max_size));
  }

  const LossScaleRule rule = experiment.scaler_rule();
  if (rule.cap > 0 && rule.initial > rule.cap) {
    fail({"scaler.preset", "scaler.initial", "scaler.cap"},
         fmt::format("scaler.initial: expected at most scaler.cap, {}, found {}", rule.cap, rule.initial));
  }
  if (rule.initial < rule.floor) {
    fail({"scaler.preset", "scaler.initial", "scaler.floor"},
         fmt::format("scaler.initial: expected at least scaler.floor, {}, found {}", rule.floor, rule.initial));
  }
}

}  // namespace ulpscope
