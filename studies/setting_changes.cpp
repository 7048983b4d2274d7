#include "ulpscope/studies/setting_changes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "ulpscope/base/error.h"
#include "ulpscope/base/parse_number.h"
#include "ulpscope/core/run/experiment_options.h"
#include "ulpscope/studies/timed_trials.h"

namespace ulpscope {

namespace {

using Way = SettingChange::Way;

// What words call a setting, and what changing it is.
struct NamedKind {
  SettingKind kind;
  const char* words;
  ChangeOf what;
};
constexpr NamedKind kNamed[] = {
    {SettingKind::scale_initial, "loss scale", ChangeOf::scale},
    {SettingKind::scale_floor, "loss scale floor", ChangeOf::scale},
    {SettingKind::scale_cap, "loss scale cap", ChangeOf::scale},
    {SettingKind::scale_growth_interval, "growth interval", ChangeOf::scale},
    {SettingKind::quantization_recipe, "FP8 recipe", ChangeOf::scale},
    {SettingKind::quantization_margin, "FP8 margin", ChangeOf::scale},
    {SettingKind::quantization_history, "FP8 history", ChangeOf::scale},
    {SettingKind::loss_factor, "loss factor", ChangeOf::training},
    {SettingKind::epsilon, "eps", ChangeOf::training},
    {SettingKind::momentum, "momentum", ChangeOf::training},
    {SettingKind::second_moment, "beta2", ChangeOf::training},
    {SettingKind::weight_decay, "weight decay", ChangeOf::training},
    {SettingKind::clip_norm, "clipping norm", ChangeOf::training},
    {SettingKind::clip_value, "clipping value", ChangeOf::training},
    {SettingKind::warmup, "warm-up", ChangeOf::training},
};

NamedKind named(const SettingChange& change) {
  for (const NamedKind& each : kNamed)
    if (each.kind == change.kind) return each;
  return {change.kind, "setting", ChangeOf::training};
}

// A tenth of 1e-6 is 1e-7, and no 1.0000000000000001e-7.
double as_written(double value) { return parse_number<double>(fmt::format("{:.15g}", value)).value_or(value); }

// Numbers to try for one that is `now`, the nearest first.
std::vector<double> tried_for(const SettingChange& change, double now) {
  const bool is_scale =
      change.kind == SettingKind::scale_initial || change.kind == SettingKind::scale_floor || change.kind == SettingKind::scale_cap;
  std::vector<double> all;
  if (change.way == Way::lower) {
    all = is_scale                               ? std::vector{now / 0x1p4, now / 0x1p8, now / 0x1p16}
          : change.kind == SettingKind::momentum ? std::vector{0.9, 0.5}
          : std::isinf(now)                      ? std::vector{std::copysign(1e4, now)}
                                                 : std::vector{as_written(now / 10), as_written(now / 100), as_written(now / 1000)};
    if (is_scale && std::isinf(now)) all = {0x1p16};
    if (change.kind == SettingKind::scale_floor) all.push_back(0);
    if (change.kind == SettingKind::loss_factor) all.push_back(std::copysign(1, now));
    std::erase_if(all, [&](double value) { return !(std::abs(value) < std::abs(now)); });
  } else {
    // An eps and a warm-up may be 0, of which no multiple is larger.
    all = change.kind == SettingKind::epsilon  ? std::vector{1e-5, 1e-4}
          : change.kind == SettingKind::warmup ? std::vector{20.0, 100.0}
          : is_scale                           ? std::vector{now * 0x1p4, now * 0x1p8}
                                               : std::vector{as_written(now * 10), as_written(now * 100)};
    std::erase_if(all, [&](double value) { return !(value > now); });
  }
  return all;
}

Setting set_to(std::string name, std::string value) { return {.name = std::move(name), .to = std::move(value)}; }

// What reads back as the same number: a power of two as experiments may have it, else the shortest.
std::string exact(double value) {
  int exponent = 0;
  constexpr double kLong = 1e5;
  if (value > kLong && std::frexp(value, &exponent) == 0.5) return fmt::format("\"2^{}\"", exponent - 1);
  return fmt::format("{}", value);
}

// The number in `optimizers` belongs to the group only where it has one of its own.
void set_setting(Experiment& experiment, const std::string& name, const std::string& value) {
  if (const auto of_group = optimizer_key(name)) {
    const auto& values = experiment.optimizers.at(of_group->index).values;
    if (std::none_of(values.begin(), values.end(), [&](const auto& each) { return each.first == of_group->key; })) return;
  }
  apply_override(experiment, Override(fmt::format("{}={}", name, value)));
}

// The ops that update its parameters.
std::set<std::string> update_ops(const Experiment& experiment) {
  const auto op_of = [](OptimizerType type) {
    return type == OptimizerType::sgd ? "sgd_update" : type == OptimizerType::lion ? "lion_update" : "adam_update";
  };
  std::set<std::string> ops{op_of(experiment.optimizer.type)};
  for (const OptimizerGroup& group : experiment.optimizers) ops.insert(op_of(experiment.settings_of(group).type));
  return ops;
}

bool updates_narrow_parameters(const Experiment& experiment) {
  return is_narrow(*info(row_of(experiment.precision).parameter_types().others).format);
}

// That `module` may be within the layer of that name: names of layers within others are parts of its path.
bool is_within(const std::string& module, const std::string& name) {
  return fmt::format(".{}.", module).find(fmt::format(".{}.", name)) != std::string::npos;
}

}  // namespace

bool is_format(ChangeOf what) {
  return what == ChangeOf::scale || what == ChangeOf::update || what == ChangeOf::masters || what == ChangeOf::type;
}

std::optional<std::vector<std::string>> assignments_between(const Experiment& from, const Experiment& to) {
  std::vector<std::string> assignments;
  const auto add = [&](std::string_view key, std::string_view value) { assignments.push_back(fmt::format("{}={}", key, value)); };
  for (const Option<Experiment>& option : experiment_options()) {
    const std::optional<OptionValue> value = option.get(to);
    if (!value || value == option.get(from)) continue;
    const auto* text = std::get_if<std::string>(&*value);
    add(option.key, text != nullptr ? *text : value_text(option.type, *value));
  }
  const auto add_types = [&](std::string_view table, const auto& before, const auto& after) {
    for (const auto& each : after)
      if (std::find(before.begin(), before.end(), each) == before.end())
        add(fmt::format("{}.{}", table, each.first), name_of(each.second));
  };
  add_types(kAutocastOps, from.autocast.ops, to.autocast.ops);
  add_types(kAutocastModules, from.autocast.modules, to.autocast.modules);
  // What these keys cannot say, as another layer, is left as a difference.
  Experiment changed = from;
  try {
    for (const std::string& assignment : assignments) apply_override(changed, assignment);
  } catch (const Error&) {
    return std::nullopt;
  }
  return changed == to ? std::optional(std::move(assignments)) : std::nullopt;
}

void change_layers(std::vector<LayerSpec>& layers, const std::function<void(LayerSpec&)>& change) {
  for (LayerSpec& layer : layers) {
    change(layer);
    for (std::vector<LayerSpec>& within : layer.lists) change_layers(within, change);
  }
}

void set_rate(OptimizerGroup& group, double rate) {
  for (auto& [key, value] : group.values)
    if (key == "learning_rate") value = rate;
}

std::string rate_of_group(size_t index) { return fmt::format("optimizers[{}].learning_rate", index); }

void divide_rates(Experiment& experiment, double by) {
  for (OptimizerGroup& group : experiment.optimizers) set_rate(group, as_written(experiment.settings_of(group).learning_rate / by));
  experiment.optimizer.learning_rate = as_written(experiment.optimizer.learning_rate / by);
}

std::string ChangedExperiment::text() const {
  std::string text = words;
  for (const Setting& setting : settings) text += (&setting == &settings.front() ? ": " : ", ") + setting.text();
  return text;
}

void ChangedExperiments::add(std::string words, std::vector<Setting> settings, ChangeOf what,
                             const std::function<void(Experiment&)>& change) {
  ChangedExperiment changed{std::move(words), std::move(settings), what, original_, {}};
  try {
    change(changed.experiment);
    if (changed.experiment == original_) return;
    validate(changed.experiment);
  } catch (const Error&) {
    return;  // the experiment cannot have it
  }
  auto same = std::find_if(all_.begin(), all_.end(), [&](const auto& each) { return each.experiment == changed.experiment; });
  if (same == all_.end()) same = all_.insert(all_.end(), std::move(changed));
  if (by_ != nullptr && std::find(same->by.begin(), same->by.end(), *by_) == same->by.end()) same->by.push_back(*by_);
}

void ChangedExperiments::add(const SettingChange& change) {
  by_ = &change;
  const PrecisionRow& precision = row_of(original_.precision);
  const bool is_narrow_run = is_narrow(original_);
  switch (change.kind) {
    case SettingKind::scale_enabled:
    case SettingKind::scale_dynamic:
      // Only what has a short range is scaled, and a scaler that is off is not made dynamic by a key alone.
      if (precision.dtype != DType::f16 || change.value.find("false") != std::string::npos) break;
      if (original_.scaler_enabled() && original_.scaler_rule().dynamic) break;
      add("dynamic loss scale",
          {original_.scaler_enabled() ? set_to("scaler.dynamic", "true") : set_to("scaler.enabled", "\"on\"")}, ChangeOf::scale,
          [](Experiment& changed) {
            if (!changed.scaler_enabled()) changed.scaler.enabled = Switch::on;
            changed.scaler.dynamic = true;
          });
      break;
    case SettingKind::scale_initial:
    case SettingKind::scale_floor:
    case SettingKind::scale_cap:
    case SettingKind::scale_growth_interval:
      if (original_.scaler_enabled()) add_numbers(change);
      break;
    case SettingKind::update_math:
      if (updates_narrow_parameters(original_))
        add("update computed in FP32", {set_to("optimizer.math", "\"fp32\"")}, ChangeOf::update,
            [](Experiment& changed) { changed.optimizer.math = UpdateMath::fp32; });
      break;
    case SettingKind::arithmetic_of_ops: {
      if (!updates_narrow_parameters(original_)) break;
      std::vector<Setting> settings;
      for (const std::string& op : update_ops(original_))
        settings.push_back(set_to(fmt::format("arithmetic.ops.{}.rounding", op), "\"sr\""));
      settings.push_back(set_to("optimizer.math", "\"fp32\""));
      add("stochastic rounding of updates", std::move(settings), ChangeOf::update, [](Experiment& changed) {
        changed.optimizer.math = UpdateMath::fp32;
        for (const std::string& op : update_ops(changed)) changed.arithmetic.ops[op].rounding = RoundingMode::stochastic;
      });
      break;
    }
    case SettingKind::master_weights:
      if (updates_narrow_parameters(original_))
        add("FP32 master weights", {set_to("optimizer.master_weights", "true")}, ChangeOf::masters,
            [](Experiment& changed) { changed.optimizer.master_weights = true; });
      break;
    case SettingKind::precision_of_modules:
    case SettingKind::precision_of_ops: {
      if (!is_narrow_run || precision.casts_model || change.module.empty()) break;
      const bool is_op = change.kind == SettingKind::precision_of_ops;
      add(change.module + " in FP32",
          {set_to(fmt::format("autocast.{}.\"{}\"", is_op ? "ops" : "modules", change.module), "\"fp32\"")}, ChangeOf::type,
          [&](Experiment& changed) {
            if (is_op)
              changed.autocast.ops[change.module] = Precision::fp32;
            else
              changed.autocast.modules.insert(changed.autocast.modules.begin(), {change.module, Precision::fp32});
          });
      break;
    }
    case SettingKind::precision:
      if (change.value == "\"bf16\"" && precision.dtype == DType::f16) {
        add("BF16", {set_to("precision", precision.casts_model ? "\"pure_bf16\"" : "\"bf16\"")}, ChangeOf::type,
            [&](Experiment& changed) {
              changed.precision = precision.casts_model ? Precision::pure_bf16 : Precision::bf16;
              changed.scaler.enabled = Switch::off;
            });
      } else if (change.value == "\"fp32\"" && is_narrow_run) {
        add("FP32", {set_to("precision", "\"fp32\"")}, ChangeOf::type,
            [&](Experiment& changed) { changed = *wider_than(original_); });
      }
      break;
    case SettingKind::learning_rate:
      if (const auto of_group = optimizer_key(change.name); of_group && of_group->index < original_.optimizers.size())
        add_rates_of_group(of_group->index, change.way);
      else
        add_rates(change.way);
      break;
    default:
      if (!change.module.empty())
        add_constants(change);
      else
        add_numbers(change);
      break;
  }
  by_ = nullptr;
}

void ChangedExperiments::add_rates(Way way) {
  const bool has_groups = !original_.optimizers.empty(), is_lower = way == Way::lower;
  for (const double by : is_lower ? std::vector{10.0, 100.0, 1000.0} : std::vector{10.0, 100.0})
    add(fmt::format("{} {} {:g}", has_groups ? "all learning rates" : "learning rate", is_lower ? "/" : "times", by),
        {set_to("optimizer.learning_rate", exact(as_written(original_.optimizer.learning_rate / (is_lower ? by : 1 / by))) +
                                               (has_groups ? " and those of [[optimizers]]" : ""))},
        ChangeOf::rate, [&](Experiment& changed) { divide_rates(changed, is_lower ? by : 1 / by); });
  // Of one that is far from them parts are, too.
  const double usual = OptimizerSettings().learning_rate;
  if (has_groups || !is_lower || !(original_.optimizer.learning_rate > 1000 * usual)) return;
  for (const double by : {100.0, 10.0, 1.0})
    add("usual learning rate", {set_to("optimizer.learning_rate", exact(by * usual))}, ChangeOf::rate,
        [&](Experiment& changed) { changed.optimizer.learning_rate = by * usual; });
}

// Of a group that has one of its own.
void ChangedExperiments::add_rates_of_group(size_t index, Way way) {
  const OptimizerGroup& group = original_.optimizers[index];
  if (group.modules.empty()) return;
  const double rate = original_.settings_of(group).learning_rate, others = original_.optimizer.learning_rate;
  const bool is_lower = way == Way::lower;
  const auto add_rate = [&](const std::string& words, double value) {
    add(fmt::format("learning rate of {} {}", group.modules.front(), words), {set_to(rate_of_group(index), exact(value))},
        ChangeOf::rate, [&](Experiment& changed) { set_rate(changed.optimizers[index], value); });
  };
  if (is_lower ? rate > others : rate < others) add_rate("as of the others", others);
  for (const double by : {10.0, 100.0})
    add_rate(fmt::format("{} {:g}", is_lower ? "/" : "times", by), as_written(is_lower ? rate / by : rate * by));
}

// All settings of the kind, those of groups with the others.
void ChangedExperiments::add_numbers(const SettingChange& change) {
  const NamedKind kind = named(change);
  std::vector<SettingInfo> settings = describe_settings(original_);
  std::erase_if(settings, [&](const SettingInfo& setting) {
    return change.kind == SettingKind::other ? setting.name != change.name || change.name.empty() : setting.kind != change.kind;
  });
  if (settings.empty()) return;
  const SettingInfo& first = settings.front();
  const auto set_all = [&](const std::string& value) {
    return [&settings, value](Experiment& changed) {
      for (const SettingInfo& setting : settings) set_setting(changed, setting.name, value);
    };
  };
  if (change.way == Way::set) {
    const bool clips = change.kind == SettingKind::clip_norm;
    add(clips ? fmt::format("gradient clipping to norm {}", change.value) : fmt::format("other {}", kind.words),
        {set_to(first.name, change.value)}, kind.what, set_all(change.value));
    return;
  }
  const std::optional<double> now = parse_number<double>(first.value);
  if (!now) return;
  double from = *now;
  // No cap is one that is infinite.
  if (change.kind == SettingKind::scale_cap && from == 0) from = original_.scaler_rule().initial * 0x1p4;
  for (const double value : tried_for(change, from))
    add(fmt::format("{} {}", change.way == Way::lower ? "lower" : "larger", kind.words), {set_to(first.name, exact(value))},
        kind.what, set_all(fmt::format("{}", value)));
}

// A constant of the layers that the module may be: of a kind by its key, else by its value.
void ChangedExperiments::add_constants(const SettingChange& change) {
  struct Constant {
    std::string layer, key;
    double now;
  };
  std::optional<Constant> found;
  const auto visit = [&](std::vector<LayerSpec>& layers, const std::function<void(LayerSpec&, const std::string& key)>& each) {
    change_layers(layers, [&](LayerSpec& layer) {
      if (!is_within(change.module, layer.name)) return;
      for (const LayerOption& option : layer.type->options) {
        if (option.type.kind != OptionKind::number || !layer.has(option.key)) continue;
        const double value = layer.number(option.key);
        if (change.now ? value == *change.now : change.kind == SettingKind::epsilon && option.key == "eps") each(layer, option.key);
      }
    });
  };
  Experiment as_it_is = original_;
  visit(as_it_is.model.layers, [&](LayerSpec& layer, const std::string& key) {
    if (!found) found = Constant{layer.name, key, layer.number(key)};
  });
  if (!found) return;
  const std::optional<double> asked = change.way == Way::set ? parse_number<double>(change.value) : std::nullopt;
  const std::string setting = fmt::format("{} of {}", found->key, found->layer);
  for (const double value : asked ? std::vector{*asked} : tried_for(change, found->now)) {
    const bool is_smaller = std::abs(value) < std::abs(found->now);
    add(fmt::format("{} {}", is_smaller ? "smaller" : "larger", setting), {set_to(setting, exact(value))}, ChangeOf::layer,
        [&](Experiment& changed) {
          visit(changed.model.layers, [&](LayerSpec& layer, const std::string& key) { layer.set(key, value); });
        });
  }
}

std::vector<ChangedExperiment> ChangedExperiments::take() {
  std::stable_sort(all_.begin(), all_.end(), [](const auto& a, const auto& b) { return a.what < b.what; });
  return std::move(all_);
}

}  // namespace ulpscope
