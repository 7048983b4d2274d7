// What would keep updates from being lost to rounding: changes that are tried by running the steps again, and what they add to a
// report on updates (analyzers/verbs/updates.h).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ulpscope/analyzers/report/report.h"
#include "ulpscope/analyzers/subject/analysis.h"
#include "ulpscope/studies/fixes.h"
#include "ulpscope/studies/trial.h"

namespace ulpscope {

// The codes of the warnings in a report on updates that rounding took updates or weight decay.
std::vector<std::string> findings_of_losses(const Report& updates);

struct UpdateTrial {
  std::string text;  // of the change, as ChangedExperiment has it, and its parts
  std::string words = {};
  std::vector<Setting> settings = {};
  bool ran = false;               // to its end: the time was not up
  std::vector<SettingChange> by;  // as Fix has them
  // verified: nothing is lost that is a warning, and it trains as the reference does; keeps_updates: there is none. A change of the
  // learning rate is another training, whatever it trains to.
  FixResult result = FixResult::not_tried;
  std::optional<double> lost, decay_arrived;  // shares, as `ulpscope updates` has them
  std::vector<std::string> losses;            // findings_of_losses()
  uint64_t skipped = 0;                       // of all its steps
  std::optional<double> end_loss;             // the median of the last losses, at most ten
  std::string refusal;
};

struct UpdateStudy {
  uint64_t first_step = 0, steps = 0;
  UpdateTrial original;  // as it was; where it loses nothing, nothing is proven, and nothing was tried
  Reference reference;   // in the next wider format
  std::vector<UpdateTrial> trials;
};

struct UpdateTrialOptions {
  std::vector<SettingChange> advised = {};                 // tried as well
  std::string scratch;                                     // a trace that it may write and leave
  AnalysisOptions analysis = {};                           // which updates count
  double budget = 60;                                      // seconds for all of them
  std::function<bool(std::string_view trial)> watch = {};  // as FixOptions have it
};

// Of `steps` steps from the start on.
UpdateStudy try_updates(const Trial& start, uint64_t steps, const UpdateTrialOptions& options);

// Facts: run_again, the reference and the loss that counts as training. Table: fixes.
void add_trials(const UpdateStudy& study, Report& report);

}  // namespace ulpscope
