// What would have kept a run from failing: changes that are tried, each by running its steps again from before they failed.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ulpscope/studies/setting_changes.h"
#include "ulpscope/studies/timed_trials.h"

namespace ulpscope {

using Fix = ChangedExperiment;
// What might help: the changes that are `advised`, of which some may not be for this experiment, and others that often do, the
// closest to the training that was asked for first. `module`: where its NaN began, or "".
std::vector<Fix> fixes_of(const Experiment& experiment, const std::string& module, std::span<const SettingChange> advised);
// The same where updates are too small for the weights.
std::vector<Fix> update_fixes_of(const Experiment& experiment, std::span<const SettingChange> advised);

enum class FixResult : uint8_t {
  verified,      // it stays finite, and trains as the reference does
  trains_worse,  // it stays finite, and its loss ends further above the reference's than the margin, or no better than guessing
  stays_finite,  // and there is no reference that tells whether it trains, or its loss is another
  skips_steps,   // it stays finite, and skips half of its last steps or more
  fails,
  still_loses,     // updates or weight decay (update_trials.h)
  keeps_updates,   // and there is no reference that tells whether it trains
  other_training,  // it keeps the updates, with another learning rate than was asked for
  fp32_fails,      // a format's change, and the run does not train in FP32 either
  refused,         // it could not be run
  not_tried,       // the time was up
};
const char* name_of(FixResult result);

struct FixTrial {
  Fix fix;
  FixResult result = FixResult::not_tried;
  std::optional<RunFailure> failure;
  unsigned skipped_at_end = 0;     // FailureWatch has it
  uint64_t skipped = 0;            // of all its steps
  std::optional<double> end_loss;  // the median of the last losses, at most ten
  std::string refusal;
};

struct FixStudy {
  std::string refusal;                 // why the run cannot be run again as it was, or ""
  uint64_t first_step = 0, steps = 0;  // of each trial, which ends early where it is lost
  bool ran = false;                    // as it was, to the end: the time was not up
  std::optional<RunFailure> failure;   // of the steps run again as they were
  bool fails_again = false;            // as the run did; else nothing is proven, and nothing was tried
  // What trains in FP32, or in the run's own format where this is FP32 or wider, ends better than guessing, and below the loss at
  // the onset: the last finite one before the failure, or where that one batch's was lower, the median of the last ten.
  Reference reference;
  std::optional<double> guessing;  // the loss that it gives, where that is known
  std::vector<FixTrial> trials;
};

struct FixOptions {
  std::vector<SettingChange> advised = {};                 // tried before others
  uint64_t steps_after = 50;                               // that trials go on for behind the step in which the run failed
  double budget = 60;                                      // seconds for all of them
  std::function<bool(std::string_view trial)> watch = {};  // told of each that begins; false: neither it nor another one does
};

// `start`: where trials start, as the run was; its `changes` are part of that. `failure`: of the run.
FixStudy try_fixes(const Trial& start, const RunFailure& failure, const std::string& module, const FixOptions& options);

}  // namespace ulpscope
