#include "ulpscope/studies/timed_trials.h"

#include <algorithm>

#include "ulpscope/analyzers/loss_ends.h"
#include "ulpscope/analyzers/trend.h"
#include "ulpscope/base/error.h"
#include "ulpscope/base/text.h"

namespace ulpscope {

double TimedTrials::Outcome::end() const {
  const auto count = static_cast<std::ptrdiff_t>(std::min(losses.size(), kEndLosses));
  return median({losses.end() - count, losses.end()});
}

bool TimedTrials::Outcome::trains() const {
  const auto last = static_cast<std::ptrdiff_t>(std::min(kEndLosses, losses.size() / 2));
  return is_whole() && !failure && last > 0 &&
         std::all_of(losses.end() - last, losses.end(), [&](double loss) { return loss < losses.front(); });
}

TimedTrials::Outcome TimedTrials::run(const std::string& text, const Experiment& experiment, const std::string& trace) {
  Outcome outcome;
  if (watch_ && !watch_(text)) stopped_ = true;
  if (!has_time()) return outcome;
  Trial trial = start_;
  trial.experiment = experiment;
  trial.changes.clear();
  trial.steps = steps_;
  trial.trace_path = trace;
  trial.overwrite = true;
  FailureWatch watch;
  trial.goes_on = [&](const StepResult& step) {
    watch.add(step.step, step.loss, step.skipped);
    outcome.losses.push_back(step.loss);
    return has_time() && !watch.is_lost();
  };
  try {
    const TrialOutcome ended = ulpscope::run(trial);
    outcome.ran = watch.is_lost() || has_time();
    outcome.failure = watch.failure(ended.weights_are_finite);
  } catch (const Error& error) {
    outcome.ran = true;
    outcome.refusal = one_line(error.what());
  }
  return outcome;
}

}  // namespace ulpscope
