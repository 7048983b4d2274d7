#include "ulpscope/studies/fixes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "ulpscope/analyzers/judgements/loss_ends.h"
#include "ulpscope/analyzers/subject/trend.h"
#include "ulpscope/base/error.h"
#include "ulpscope/studies/timed_trials.h"

namespace ulpscope {

namespace {

// What layers compute in a way that overflows where another does not.
void add_layers(ChangedExperiments& changed) {
  const auto add = [&](const char* words, Setting setting, std::string_view type, std::string_view key, const OptionValue& value,
                       const auto& is_wrong) {
    changed.add(words, {std::move(setting)}, ChangeOf::layer, [&](Experiment& experiment) {
      change_layers(experiment.model.layers, [&](LayerSpec& layer) {
        if (layer.type->name == type && layer.has(key) && is_wrong(layer)) layer.set(key, value);
      });
    });
  };
  add("mask value within FP16's range", {.name = "attention's mask_value", .to = "-1e4"}, "attention", "mask_value", -1e4,
      [](const LayerSpec& layer) { return !(layer.number("mask_value") >= -1e4); });
  add("softmax with the largest logit subtracted", {.name = "softmax's subtract_max", .to = "true"}, "softmax", "subtract_max",
      true, [](const LayerSpec& layer) { return !layer.flag("subtract_max"); });
  add("norm sums in FP32", {.name = "rms_norm's fused", .to = "true"}, "rms_norm", "fused", true,
      [](const LayerSpec& layer) { return !layer.flag("fused"); });
}

// `losses`: of the run, which failed `behind` the first of them. The one before the failure is one batch's; where the reference
// ends above that, it is held against the median of the last ones.
void demand_below_onset(std::span<const double> losses, uint64_t behind, Reference& reference) {
  std::vector<double> last;
  for (size_t i = std::min<uint64_t>(behind, losses.size()); i-- > 0 && last.size() < kEndLosses;)
    if (std::isfinite(losses[i])) last.push_back(losses[i]);
  if (last.empty()) return;
  reference.demand_below(reference.end < last.front() ? last.front() : median(last), "the loss at the onset");
}

// What goes on behind the end of a run that failed may have a finite loss again, and then fails from a later step on.
bool loses_the_same(std::span<const double> losses, uint64_t first_step, const RunFailure& failure) {
  if (failure.way != RunFailure::Way::loss || failure.last < failure.step || failure.last - first_step >= losses.size())
    return false;
  const auto is_finite = [](double loss) { return std::isfinite(loss); };
  return std::none_of(losses.begin() + static_cast<std::ptrdiff_t>(failure.step - first_step),
                      losses.begin() + static_cast<std::ptrdiff_t>(failure.last - first_step + 1), is_finite);
}

}  // namespace

const char* name_of(FixResult result) {
  static constexpr const char* kNames[] = {"verified",   "trains_worse", "stays_finite",  "skips_steps",
                                           "fails",      "still_loses",  "keeps_updates", "other_training",
                                           "fp32_fails", "refused",      "not_tried"};
  return kNames[static_cast<size_t>(result)];
}

std::vector<Fix> fixes_of(const Experiment& experiment, const std::string& module, std::span<const SettingChange> advised) {
  using Kind = SettingKind;
  using Way = SettingChange::Way;
  ChangedExperiments changed(experiment);
  add_layers(changed);
  for (const SettingChange& change : advised) changed.add(change);
  changed.add({.kind = Kind::scale_enabled, .value = "\"on\""});
  changed.add({.kind = Kind::scale_dynamic, .value = "true"});
  if (!experiment.scaler_rule().dynamic) changed.add({.kind = Kind::scale_initial, .way = Way::lower});
  if (std::abs(experiment.loss.factor) > 1) changed.add({.kind = Kind::loss_factor, .way = Way::lower});
  changed.add({.kind = Kind::update_math, .value = "\"fp32\""});
  changed.add({.kind = Kind::master_weights, .value = "true"});
  if (!module.empty()) {
    changed.add({.kind = Kind::precision_of_modules, .value = "\"fp32\"", .module = module});
    if (const size_t dot = module.find('.'); dot != std::string::npos)
      changed.add({.kind = Kind::precision_of_modules, .value = "\"fp32\"", .module = module.substr(0, dot) + ".*"});
  }
  changed.add({.kind = Kind::precision, .value = "\"bf16\""});
  changed.add({.kind = Kind::precision, .value = "\"fp32\""});
  if (experiment.clipping.norm == 0) changed.add({.kind = Kind::clip_norm, .value = "1"});
  changed.add({.kind = Kind::epsilon, .way = Way::raise});
  changed.add({.kind = Kind::learning_rate, .way = Way::lower});
  for (size_t i = 0; i < experiment.optimizers.size(); ++i)
    changed.add({.kind = Kind::learning_rate, .way = Way::lower, .name = rate_of_group(i)});
  return changed.take();
}

std::vector<Fix> update_fixes_of(const Experiment& experiment, std::span<const SettingChange> advised) {
  ChangedExperiments changed(experiment);
  for (const SettingChange& change : advised) changed.add(change);
  changed.add({.kind = SettingKind::update_math, .value = "\"fp32\""});
  changed.add({.kind = SettingKind::arithmetic_of_ops});
  changed.add({.kind = SettingKind::master_weights, .value = "true"});
  changed.add({.kind = SettingKind::learning_rate, .way = SettingChange::Way::raise});
  return changed.take();
}

FixStudy try_fixes(const Trial& start, const RunFailure& failure, const std::string& module, const FixOptions& options) {
  FixStudy study;
  const Experiment original = experiment_of(start);
  study.first_step = start.capsule.empty() ? 0 : read_checkpoint_info(start.capsule).step;
  study.steps = failure.step + options.steps_after - study.first_step;
  TimedTrials trials(start, study.steps, options.budget, options.watch);
  const TimedTrials::Outcome again = trials.run("as it was", original);
  study.failure = again.failure;
  study.guessing = again.guessing;
  study.refusal = again.refusal;
  study.ran = again.ran;
  study.fails_again = again.failure && (again.failure->is_like(failure) || loses_the_same(again.losses, study.first_step, failure));
  if (!study.fails_again) return study;

  std::vector<Fix> fixes = fixes_of(original, module, options.advised);
  std::vector<TimedTrials::Outcome> outcomes(fixes.size());
  // What trials are held against and what is advised are not to wait for the others.
  std::vector<size_t> order(fixes.size());
  std::iota(order.begin(), order.end(), 0);
  const auto urgency = [&](size_t i) {
    return dtype_of(fixes[i].experiment.precision) == DType::f32 ? 0 : fixes[i].by.empty() ? 2 : 1;
  };
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return urgency(a) < urgency(b); });
  for (const size_t i : order) outcomes[i] = trials.run(fixes[i].text(), fixes[i].experiment);
  for (Fix& fix : fixes) study.trials.emplace_back().fix = std::move(fix);
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
  const bool wide_fails = in_wide.is_whole() && !study.reference.exists() && (in_wide.failure || in_wide.tells_of_training());
  if (wide_fails) {
    const std::string lack = study.reference.lack;
    for (const Fix& fix : fixes_of(wide, "", options.advised)) {
      const std::string name = format + " and " + fix.text();
      Reference other = reference_of(name, outcome_of(name, fix.experiment));
      if (other.exists() && (!study.reference.exists() || other.end < study.reference.end)) study.reference = std::move(other);
    }
    if (!study.reference.exists())
      study.reference.lack = lack + (trials.has_time() ? "; nothing else that was tried trains there" : "; then no time was left");
  }
  if (study.reference.exists()) demand_below_onset(again.losses, failure.step - study.first_step, study.reference);
  // Where what was tried ran, and did not train.
  if (!study.reference.exists() && study.first_step > 0 && again.only_steps == 0 && in_wide.is_whole() && trials.has_time())
    study.reference.lack += fmt::format(
        "; in step {}, where the capsule begins, the weights may be ruined already{}: the run's own trace, or a capsule of more "
        "steps "
        "(--keep-steps), tells what would have prevented it",
        study.first_step, std::isfinite(again.losses.front()) ? fmt::format(" (a loss of {:.4g})", again.losses.front()) : "");
  for (size_t i = 0; i < study.trials.size(); ++i) {
    FixTrial& trial = study.trials[i];
    const TimedTrials::Outcome& outcome = outcomes[i];
    trial.failure = outcome.failure;
    trial.refusal = outcome.refusal;
    trial.skipped_at_end = outcome.skipped_at_end;
    trial.skipped = outcome.skipped;
    if (outcome.is_whole() && !outcome.failure) trial.end_loss = outcome.end();
    const bool is_another_loss = trial.fix.experiment.loss.function != original.loss.function;
    const bool is_guessing =
        trial.end_loss && outcome.tells_of_training() && outcome.guessing && *trial.end_loss >= *outcome.guessing;
    trial.result = !outcome.refusal.empty()                                          ? FixResult::refused
                   : !outcome.ran                                                    ? FixResult::not_tried
                   : outcome.failure                                                 ? FixResult::fails
                   : outcome.skipped_at_end > 0                                      ? FixResult::skips_steps
                   : is_guessing                                                     ? FixResult::trains_worse
                   : is_format(trial.fix.what) && wide_fails                         ? FixResult::fp32_fails
                   : !study.reference.exists() || is_another_loss                    ? FixResult::stays_finite
                   : study.reference.is_reached_by(*trial.end_loss, outcome.skipped) ? FixResult::verified
                                                                                     : FixResult::trains_worse;
  }
  return study;
}

}  // namespace ulpscope
