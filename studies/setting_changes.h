// Experiments with changed settings: what advice proposes (analyzers/subject/advice.h) as runs that can be tried.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ulpscope/analyzers/report/sentence.h"
#include "ulpscope/analyzers/report/setting_change.h"
#include "ulpscope/core/run/experiment.h"

namespace ulpscope {

// What a change is to the training that was asked for, the closest first.
enum class ChangeOf : uint8_t {
  scale,     // by which losses or 8-bit tensors are multiplied: an exact factor, until something overflows or is flushed
  layer,     // a constant in it, or the order of its operations
  update,    // how it is rounded
  masters,   // FP32 copies of weights: more memory
  type,      // of some ops or of all: slower
  training,  // another one: clipping, eps, momentum, decay, warm-up
  rate,      // another one: the learning rate
};
// It changes nothing that a run in FP32 has: types or scales.
bool is_format(ChangeOf what);
inline bool is_other_training(ChangeOf what) { return what >= ChangeOf::training; }

struct ChangedExperiment {
  std::string words;              // "learning rate / 10"
  std::vector<Setting> settings;  // with the values that they have in it
  ChangeOf what = ChangeOf::rate;
  Experiment experiment;
  std::vector<SettingChange> by;  // the changes that it is, as advice has them

  std::string text() const;  // "learning rate / 10: optimizer.learning_rate = 0.1"
};

// Of one experiment, each that differs from it and from the others, and that can be run.
class ChangedExperiments {
 public:
  explicit ChangedExperiments(const Experiment& original) : original_(original) {}

  // All that the change may mean: of a lower number several; none where the experiment has no such setting.
  void add(const SettingChange& change);
  // One that no setting of a trace is.
  void add(std::string words, std::vector<Setting> settings, ChangeOf what, const std::function<void(Experiment&)>& change);
  // The closest to what was asked for first.
  std::vector<ChangedExperiment> take();

 private:
  void add_numbers(const SettingChange& change);
  void add_rates(SettingChange::Way way);
  void add_rates_of_group(size_t index, SettingChange::Way way);
  void add_constants(const SettingChange& change);

  const Experiment& original_;
  const SettingChange* by_ = nullptr;  // while it is added
  std::vector<ChangedExperiment> all_;
};

// What `--set` needs to make `to` of `from`, each as KEY=VALUE; nothing where only a file can say it.
std::optional<std::vector<std::string>> assignments_between(const Experiment& from, const Experiment& to);

// Changes `layers` and those within them.
void change_layers(std::vector<LayerSpec>& layers, const std::function<void(LayerSpec&)>& change);
// Of a group that has one of its own.
void set_rate(OptimizerGroup& group, double rate);
std::string rate_of_group(size_t index);  // as settings are called: "optimizers[0].learning_rate"
// The learning rates of all optimizers, divided.
void divide_rates(Experiment& experiment, double by);

}  // namespace ulpscope
