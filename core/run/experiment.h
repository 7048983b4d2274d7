// An experiment: everything that decides a training run, as plain data. It is read from TOML; one table of keys
// (experiment_options.h) parses files and --set overrides, writes the effective text back, and generates docs/experiments.md.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ulpscope/base/text.h"
#include "ulpscope/core/data/dataset.h"
#include "ulpscope/core/engine/arithmetic.h"
#include "ulpscope/core/nn/layer_spec.h"
#include "ulpscope/core/observe/shadow.h"
#include "ulpscope/core/optim/schedule.h"
#include "ulpscope/core/run/fault_injector.h"
#include "ulpscope/core/run/loss.h"
#include "ulpscope/core/run/optimizers.h"
#include "ulpscope/core/run/precision.h"
#include "ulpscope/emulation/format.h"
#include "ulpscope/emulation/loss_scale.h"
#include "ulpscope/recorder/recorder.h"

namespace ulpscope {

struct ModelSettings {
  std::vector<LayerSpec> layers;  // one after another

  bool operator==(const ModelSettings&) const = default;
};

// 0: no clipping. By value comes first where both are given.
struct ClippingSettings {
  double norm = 0.0;
  double value = 0.0;

  bool operator==(const ClippingSettings&) const = default;
};

enum class Switch : uint8_t { automatic, off, on };
const char* name_of(Switch value);

// A gradient scaler's rule: a preset, and what differs from it.
struct ScalerSettings {
  Switch enabled = Switch::automatic;  // automatic: as the precision has it
  std::optional<std::string> preset;   // nothing: the precision's
  std::optional<double> initial, growth_factor, backoff_factor, floor, cap;
  std::optional<int64_t> growth_interval, hysteresis;
  std::optional<bool> dynamic;

  LossScaleRule rule(const PrecisionRow& precision) const;
  std::string rule_name(const PrecisionRow& precision) const;  // of the preset
  bool operator==(const ScalerSettings&) const = default;
};

// Types (fp32, fp16 or bf16) that replace autocast's choice: by op name, and by module path (glob patterns; * matches dots too), of
// which the first that fits decides. A module's wins over an op's.
struct AutocastSettings {
  std::map<std::string, Precision> ops;
  std::vector<std::pair<std::string, Precision>> modules;

  bool operator==(const AutocastSettings&) const = default;
};

// An optimizer of its own for the modules whose path matches one of these patterns: what differs from the settings of `optimizer`.
struct OptimizerGroup {
  std::vector<std::string> modules;
  std::vector<std::pair<std::string, OptionValue>> values;  // by the keys of `optimizer`
  Place place{"optimizers"};

  bool operator==(const OptimizerGroup&) const = default;
};

enum class Evaluation : uint8_t { never, epoch, end };
const char* name_of(Evaluation evaluation);

struct TrainingSettings {
  int64_t batch_size = 32;
  int64_t accumulation = 1;  // batches whose gradients are added up for one step
  int64_t epochs = 1;
  int64_t steps = 0;  // 0: `epochs` decide; else exactly this many, through as many epochs as it takes
  Evaluation evaluation = Evaluation::end;
  int64_t evaluation_batch_size = 0;  // 0: batch_size

  bool operator==(const TrainingSettings&) const = default;
};

struct RecordingSettings {
  RecordLevel level = RecordLevel::stats;
  bool bits = false;
  int64_t every = 1;
  std::vector<std::string> modules, ops;
  std::vector<Phase> phases;
  uint64_t max_size = 0;  // bytes; 0: no limit
  StopOn stop_on = StopOn::never;
  double flush_interval = 1.0;  // seconds

  RecorderOptions recorder_options() const;
  std::string filters() const;  // as RunInfo keeps them: "module=... op=... phase=...", or ""
  bool operator==(const RecordingSettings&) const = default;
};

// Keys that were set, and those of them that were set after the file, each with what messages call that. They have no part in
// whether settings are equal.
struct GivenKeys {
  std::set<std::string, std::less<>> all;
  std::map<std::string, std::string> overrides;

  bool operator==(const GivenKeys&) const { return true; }
};

struct Experiment {
  std::string name;
  uint64_t seed = 0;
  Precision precision = Precision::fp32;
  ModelSettings model;
  DataSettings data;
  TrainingSettings training;
  LossSettings loss;
  OptimizerSettings optimizer;
  std::vector<OptimizerGroup> optimizers;  // a parameter belongs to the first that it fits, else to `optimizer`
  Schedule schedule;
  ClippingSettings clipping;
  ScalerSettings scaler;
  AutocastSettings autocast;
  Fp8Settings fp8;
  ArithmeticPolicy arithmetic;
  RecordingSettings recording;
  ShadowSettings shadow;
  std::vector<InjectedFault> inject;
  Place place{"experiment"};  // the file that it is read from
  GivenKeys given;

  // The overrides that set one of these keys, or of the keys in these tables: "--epochs 3, --set data.kind=idx", or "".
  std::string overrides_of(std::initializer_list<std::string_view> keys) const;
  OptimizerSettings settings_of(const OptimizerGroup& group) const;
  // What a message about these keys begins with: the file and those overrides.
  std::string place_of(std::initializer_list<std::string_view> keys) const;
  bool scaler_enabled() const;
  LossScaleRule scaler_rule() const { return scaler.rule(row_of(precision)); }
  bool operator==(const Experiment&) const = default;
};

// A key that is set after the file, and what messages call that: "--set KEY=VALUE".
struct Override {
  Override(const std::string& key_and_value) : Override(key_and_value, "--set " + key_and_value) {}
  Override(const char* key_and_value) : Override(std::string(key_and_value)) {}
  Override(std::string key_and_value, std::string_view given_as)
      : assignment(std::move(key_and_value)), place(one_line(given_as)) {}

  std::string assignment;  // "optimizer.learning_rate=0.1"
  std::string place;
};

// Reads a TOML file, whose relative paths are those from its folder, applies overrides in order, and validates. Errors name the
// file and line, or the override, and the key. Files of more than 4 MiB are no experiments.
Experiment load_experiment(const std::string& path, std::span<const Override> overrides = {});
// The same from text; `source` stands for the file in messages, and relative paths stay as they are.
Experiment parse_experiment(std::string_view text, const std::string& source, std::span<const Override> overrides = {});
// Sets one key. What keys demand of each other is checked by validate.
void apply_override(Experiment& experiment, const Override& setting);

// "optimizers[1].eps": which of them, counted from 0, and its key.
struct OptimizerKey {
  size_t index = 0;
  std::string key;
};
std::optional<OptimizerKey> optimizer_key(std::string_view key);  // nothing: it is no such key
// Throws Error (usage) where settings contradict each other.
void validate(const Experiment& experiment);
// The effective experiment as TOML: parsing it gives an equal one.
std::string to_toml(const Experiment& experiment);
// What traces say of the settings that the run has: of all keys of experiment_options.h but those that the chosen kinds of data,
// loss and so on do not take, of the tables of free names, and of each of `optimizers`, as "optimizers[0].learning_rate". Values
// are TOML, and those that hold; given are keys that were set, or have other values than by default.
std::vector<SettingInfo> describe_settings(const Experiment& experiment);
// The values that the key `key` chooses from.
std::vector<std::string> experiment_choices(std::string_view key);
// docs/experiments.md.
std::string experiment_reference();

// Presets: the files of experiments/ by their names, compiled in.
std::vector<std::string> preset_names();
// The experiment of a preset, what experiments/NAME.toml says; or nothing.
std::optional<Experiment> find_preset(std::string_view name);
// The experiment of a file, else of a preset, with overrides in order, validated. Throws Error (usage) where there is neither.
Experiment named_experiment(const std::string& name, std::span<const Override> overrides = {});

}  // namespace ulpscope
