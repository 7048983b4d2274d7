#include "ulpscope/studies/fixes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "ulpscope/base/error.h"
#include "ulpscope/studies/timed_trials.h"

namespace ulpscope {

namespace {

bool adds_epsilon(const OptimizerSettings& settings) {
  return settings.type == OptimizerType::adam || settings.type == OptimizerType::adamw;
}

// Where the group has one of its own.
void set_rate(OptimizerGroup& group, double rate) {
  for (auto& [key, value] : group.values)
    if (key == "learning_rate") value = rate;
}

// The learning rates of all optimizers, or of one group, divided.
void divide_rates(Experiment& experiment, std::optional<size_t> group, double by) {
  for (size_t i = 0; i < experiment.optimizers.size(); ++i) {
    if (group && i != *group) continue;
    set_rate(experiment.optimizers[i], experiment.settings_of(experiment.optimizers[i]).learning_rate / by);
  }
  if (!group) experiment.optimizer.learning_rate /= by;
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

class Fixes {
 public:
  explicit Fixes(const Experiment& experiment) : original_(experiment) {}

  template <typename Change>
  void add(std::string text, bool is_format, Change&& change) {
    Fix fix{std::move(text), is_format, original_};
    change(fix.experiment);
    if (fix.experiment == original_) return;
    try {
      validate(fix.experiment);
    } catch (const Error&) {
      return;  // the experiment cannot have it
    }
    fixes_.push_back(std::move(fix));
  }
  std::vector<Fix> take() { return std::move(fixes_); }

 private:
  const Experiment& original_;
  std::vector<Fix> fixes_;
};

void add_scales(const Experiment& experiment, Fixes& fixes) {
  const PrecisionRow& precision = row_of(experiment.precision);
  if (precision.dtype != DType::f16) return;
  if (!experiment.scaler_enabled()) {
    fixes.add("a dynamic loss scale: scaler.enabled = \"on\"", true, [](Experiment& changed) {
      changed.scaler.enabled = Switch::on;
      changed.scaler.dynamic = true;
    });
  } else if (!experiment.scaler_rule().dynamic) {
    fixes.add("a dynamic loss scale: scaler.dynamic = true", true, [](Experiment& changed) { changed.scaler.dynamic = true; });
  }
}

// Changes `layers` and those within them.
void change_layers(std::vector<LayerSpec>& layers, const std::function<void(LayerSpec&)>& change) {
  for (LayerSpec& layer : layers) {
    change(layer);
    for (std::vector<LayerSpec>& within : layer.lists) change_layers(within, change);
  }
}

// What layers compute in a way that overflows where another does not.
void add_layers(Fixes& fixes) {
  const auto add = [&](std::string text, std::string_view type, std::string_view key, const OptionValue& value,
                       const auto& is_wrong) {
    fixes.add(std::move(text), false, [&](Experiment& changed) {
      change_layers(changed.model.layers, [&](LayerSpec& layer) {
        if (layer.type->name == type && layer.has(key) && is_wrong(layer)) layer.set(key, value);
      });
    });
  };
  add("a mask value that FP16 holds: attention's mask_value = -1e4", "attention", "mask_value", -1e4,
      [](const LayerSpec& layer) { return !(layer.number("mask_value") >= -binary16.largest_finite()); });
  add("softmax of logits less their largest: its subtract_max = true", "softmax", "subtract_max", true,
      [](const LayerSpec& layer) { return !layer.flag("subtract_max"); });
  add("norms that sum in FP32: rms_norm's fused = true", "rms_norm", "fused", true,
      [](const LayerSpec& layer) { return !layer.flag("fused"); });
}

void add_rates(const Experiment& experiment, Fixes& fixes) {
  const bool has_groups = !experiment.optimizers.empty();
  for (const double by : {10.0, 100.0, 1000.0}) {
    fixes.add(fmt::format("{} / {:g}: optimizer.learning_rate = {:g}{}", has_groups ? "all learning rates" : "the learning rate",
                          by, experiment.optimizer.learning_rate / by, has_groups ? " and those of [[optimizers]]" : ""),
              false, [&](Experiment& changed) { divide_rates(changed, std::nullopt, by); });
  }
  const double usual = OptimizerSettings().learning_rate;
  if (!has_groups && experiment.optimizer.learning_rate > 1000 * usual)
    fixes.add(fmt::format("the usual learning rate: optimizer.learning_rate = {:g}", usual), false,
              [&](Experiment& changed) { changed.optimizer.learning_rate = usual; });
  for (size_t i = 0; i < experiment.optimizers.size(); ++i) {
    const OptimizerGroup& group = experiment.optimizers[i];
    if (group.modules.empty()) continue;
    if (experiment.settings_of(group).learning_rate > experiment.optimizer.learning_rate)
      fixes.add(
          fmt::format("the learning rate of {} as of the others: {:g}", group.modules.front(), experiment.optimizer.learning_rate),
          false, [&](Experiment& changed) { set_rate(changed.optimizers[i], experiment.optimizer.learning_rate); });
    fixes.add(fmt::format("the learning rate of {} / 100: {:g}", group.modules.front(),
                          experiment.settings_of(group).learning_rate / 100),
              false, [&](Experiment& changed) { divide_rates(changed, i, 100); });
  }
}

}  // namespace

const char* name_of(FixResult result) {
  static constexpr const char* kNames[] = {"verified",    "trains_worse", "stays_finite", "fails",
                                           "still_loses", "fp32_fails",   "refused",      "not_tried"};
  return kNames[static_cast<size_t>(result)];
}

std::vector<Fix> fixes_of(const Experiment& experiment, const std::string& module) {
  Fixes fixes(experiment);
  add_scales(experiment, fixes);
  if (experiment.clipping.norm == 0)
    fixes.add("gradients clipped to a norm of 1: clipping.norm = 1", false, [](Experiment& changed) { changed.clipping.norm = 1; });
  if (adds_epsilon(experiment.optimizer) && experiment.optimizer.eps < 1e-4)
    fixes.add("a larger eps: optimizer.eps = 1e-4", false, [](Experiment& changed) { changed.optimizer.eps = 1e-4; });
  add_layers(fixes);
  const PrecisionRow& precision = row_of(experiment.precision);
  if (is_narrow(*info(precision.parameter_types().others).format)) {
    fixes.add("updates computed in FP32: optimizer.math = \"fp32\"", true,
              [](Experiment& changed) { changed.optimizer.math = UpdateMath::fp32; });
    fixes.add("FP32 master weights: optimizer.master_weights = true", true,
              [](Experiment& changed) { changed.optimizer.master_weights = true; });
  }
  add_rates(experiment, fixes);
  if (is_narrow(experiment) && !precision.casts_model && !module.empty()) {
    std::vector<std::string> patterns{module};
    if (const size_t dot = module.find('.'); dot != std::string::npos) patterns.push_back(module.substr(0, dot) + ".*");
    for (const std::string& pattern : patterns)
      fixes.add(fmt::format("{0} in FP32: autocast.modules.\"{0}\" = \"fp32\"", pattern), true, [&](Experiment& changed) {
        changed.autocast.modules.insert(changed.autocast.modules.begin(), {pattern, Precision::fp32});
      });
  }
  if (precision.dtype == DType::f16)
    fixes.add(fmt::format("BF16: precision = \"{}\"", precision.casts_model ? "pure_bf16" : "bf16"), true,
              [&](Experiment& changed) {
                changed.precision = precision.casts_model ? Precision::pure_bf16 : Precision::bf16;
                changed.scaler.enabled = Switch::off;
              });
  if (is_narrow(experiment))
    fixes.add("FP32: precision = \"fp32\"", true, [](Experiment& changed) {
      changed.precision = Precision::fp32;
      changed.scaler.enabled = Switch::off;
    });
  return fixes.take();
}

std::vector<Fix> update_fixes_of(const Experiment& experiment) {
  Fixes fixes(experiment);
  const bool has_groups = !experiment.optimizers.empty();
  for (const double by : {10.0, 100.0})
    fixes.add(
        fmt::format("{} times {:g}: optimizer.learning_rate = {:g}{}", has_groups ? "all learning rates" : "the learning rate", by,
                    experiment.optimizer.learning_rate * by, has_groups ? " and those of [[optimizers]]" : ""),
        false, [&](Experiment& changed) { divide_rates(changed, std::nullopt, 1 / by); });
  const PrecisionRow& precision = row_of(experiment.precision);
  if (is_narrow(*info(precision.parameter_types().others).format)) {
    fixes.add("updates computed in FP32, and rounded once: optimizer.math = \"fp32\"", true,
              [](Experiment& changed) { changed.optimizer.math = UpdateMath::fp32; });
    std::string keys;
    for (const std::string& op : update_ops(experiment)) keys += fmt::format("arithmetic.ops.{}.rounding = \"sr\", ", op);
    fixes.add(fmt::format("updates rounded stochastically: {}optimizer.math = \"fp32\"", keys), true, [&](Experiment& changed) {
      changed.optimizer.math = UpdateMath::fp32;
      for (const std::string& op : update_ops(experiment)) changed.arithmetic.ops[op].rounding = RoundingMode::stochastic;
    });
    fixes.add("FP32 master weights: optimizer.master_weights = true", true,
              [](Experiment& changed) { changed.optimizer.master_weights = true; });
  }
  return fixes.take();
}

FixStudy try_fixes(const Trial& start, const RunFailure& failure, const std::string& module, const FixOptions& options) {
  FixStudy study;
  const Experiment original = experiment_of(start);
  study.first_step = start.capsule.empty() ? 0 : read_checkpoint_info(start.capsule).step;
  study.steps = failure.step + options.steps_after - study.first_step;
  TimedTrials trials(start, study.steps, options.budget, options.watch);
  const TimedTrials::Outcome again = trials.run("as it was", original);
  study.failure = again.failure;
  study.refusal = again.refusal;
  study.ran = again.ran;
  study.fails_again = again.failure && again.failure->is_like(failure);
  if (!study.fails_again) return study;

  std::vector<TimedTrials::Outcome> outcomes;
  for (Fix& fix : fixes_of(original, module)) {
    outcomes.push_back(trials.run(fix.text, fix.experiment));
    study.trials.emplace_back().fix = std::move(fix);
  }
  // What does not train in FP32, or in the run's own format where this is wider, is no matter of formats.
  const Experiment wide = is_narrow(original) ? *wider_than(original) : original;
  const std::string format = format_of(wide);
  // What was run already is not run again.
  const auto outcome_of = [&](const std::string& name, const Experiment& experiment) {
    if (experiment == original) return again;
    for (size_t i = 0; i < outcomes.size(); ++i)
      if (study.trials[i].fix.experiment == experiment) return outcomes[i];
    return trials.run(name, experiment);
  };
  const TimedTrials::Outcome in_wide = outcome_of(format, wide);
  study.reference = reference_of(format, in_wide);
  // It was run, and its steps tell so.
  const bool wide_fails = in_wide.is_whole() && !in_wide.trains() && (in_wide.failure || in_wide.has_enough_steps());
  if (wide_fails) {
    for (const Fix& fix : fixes_of(wide, "")) {
      const std::string name = format + " and " + fix.text;
      Reference other = reference_of(name, outcome_of(name, fix.experiment));
      if (other.exists() && (!study.reference.exists() || other.end < study.reference.end)) study.reference = std::move(other);
    }
    if (!study.reference.exists())
      study.reference.lack = trials.has_time() ? fmt::format("nothing that was tried trained in {}", format)
                                               : fmt::format("the time was up before anything had trained in {}", format);
  }
  if (study.reference.exists()) {
    const auto before = static_cast<std::ptrdiff_t>(std::min<uint64_t>(failure.step - study.first_step, again.losses.size()));
    for (auto loss = again.losses.begin() + before; loss != again.losses.begin();)
      if (std::isfinite(*--loss)) {
        study.reference.bound = std::min(study.reference.bound, *loss);
        break;
      }
  }
  for (size_t i = 0; i < study.trials.size(); ++i) {
    FixTrial& trial = study.trials[i];
    const TimedTrials::Outcome& outcome = outcomes[i];
    trial.failure = outcome.failure;
    trial.refusal = outcome.refusal;
    if (outcome.is_whole() && !outcome.failure) trial.end_loss = outcome.end();
    trial.result = !outcome.refusal.empty()                   ? FixResult::refused
                   : !outcome.ran                             ? FixResult::not_tried
                   : outcome.failure                          ? FixResult::fails
                   : trial.fix.is_format && wide_fails        ? FixResult::fp32_fails
                   : !study.reference.exists()                ? FixResult::stays_finite
                   : *trial.end_loss <= study.reference.bound ? FixResult::verified
                                                              : FixResult::trains_worse;
  }
  return study;
}

}  // namespace ulpscope
