#include "ulpscope/studies/timed_trials.h"

#include <fmt/format.h>

#include <algorithm>

#include "ulpscope/analyzers/judgements/loss_ends.h"
#include "ulpscope/analyzers/subject/trend.h"
#include "ulpscope/base/error.h"
#include "ulpscope/base/text.h"

namespace ulpscope {

namespace {

double end_of(std::span<const double> losses) {
  const std::span<const double> last = losses.last(std::min(losses.size(), kEndLosses));
  return median({last.begin(), last.end()});
}

}  // namespace

double TimedTrials::Outcome::end() const { return end_of(losses); }

bool TimedTrials::Outcome::trains() const {
  const auto last = static_cast<std::ptrdiff_t>(std::min(kEndLosses, losses.size() / 2));
  return is_whole() && !failure && skipped_at_end == 0 && tells_of_training() &&
         std::all_of(losses.end() - last, losses.end(), [&](double loss) { return loss < losses.front(); });
}

TimedTrials::Outcome TimedTrials::run(const std::string& text, const Experiment& experiment, const std::string& trace) {
  Outcome outcome;
  if (watch_ && !watch_(text)) stopped_ = true;
  if (!has_time()) return outcome;
  Trial trial = start_;
  trial.experiment = experiment;
  trial.experiment->training.evaluation = Evaluation::never;
  trial.changes.clear();
  trial.steps = steps_;
  trial.beyond_end = true;
  trial.trace_path = trace;
  trial.overwrite = true;
  trial.guesses = true;
  FailureWatch watch;
  const double as_before = factor_ / experiment.loss.factor;
  trial.goes_on = [&](const StepResult& step) {
    watch.add(step.step, step.loss, step.skipped);
    outcome.skipped += step.skipped;
    outcome.losses.push_back(as_before == 1 ? step.loss : step.loss * as_before);
    return has_time() && !watch.is_lost();
  };
  try {
    const TrialOutcome ended = ulpscope::run(trial);
    outcome.ran = watch.is_lost() || has_time();
    outcome.failure = watch.failure(ended.weights_are_finite);
    outcome.skipped_at_end = watch.skipped_at_end();
    outcome.guessing = ended.loss_of_guessing;
    if (outcome.guessing) *outcome.guessing *= as_before;
    if (ended.experiment.data.kind == DataKind::capsule && ended.original.steps.size() < kEndLosses)
      outcome.only_steps = ended.original.steps.size();
    if (ended.trace.failed) outcome.refusal = one_line(ended.trace.failure);
  } catch (const Error& error) {
    outcome.ran = true;
    outcome.refusal = one_line(error.what());
  }
  return outcome;
}

double Reference::bound(uint64_t skipped) const {
  // At least its first losses: what was skipped that often is told otherwise.
  const size_t count = losses.size() - std::min<uint64_t>(skipped, losses.size() - std::min(losses.size(), kEndLosses));
  const double then = end_of(std::span(losses).first(count));
  return then + kTrialMargin * (start - then);
}

void Reference::demand_below(double loss, const std::string& what) {
  if (end < loss) {
    if (loss < below) {
      below = loss;
      below_what = what;
    }
    return;
  }
  lack = fmt::format("{} ends at a loss of {:.4g}, not below {}, {:.4g}", name, end, what, loss);
  name.clear();
}

Reference reference_of(const std::string& name, const TimedTrials::Outcome& outcome) {
  Reference reference;
  if (!outcome.refusal.empty()) {
    reference.lack = fmt::format("{} cannot be run: {}", name, outcome.refusal);
  } else if (!outcome.ran) {
    reference.lack = fmt::format("no time was left to run {}", name);
  } else if (!outcome.failure && outcome.only_steps > 0) {
    reference.lack = fmt::format("the capsule has the samples of {} alone, over and over: learning them says nothing about the run",
                                 outcome.only_steps == 1 ? "one step" : fmt::format("{} steps", outcome.only_steps));
  } else if (!outcome.failure && !outcome.tells_of_training()) {
    reference.lack = fmt::format("one step of {} does not tell whether it trains", name);
  } else if (!outcome.trains()) {
    reference.lack = fmt::format("it does not train in {} either", name);
  } else {
    reference.name = name;
    reference.start = outcome.losses.front();
    reference.end = outcome.end();
    reference.losses = outcome.losses;
    if (outcome.guessing) reference.demand_below(*outcome.guessing, "what guessing gives");
  }
  return reference;
}

bool is_narrow(const Experiment& experiment) { return is_narrow(*info(dtype_of(experiment.precision)).format); }

std::optional<Experiment> wider_than(const Experiment& experiment) {
  if (dtype_of(experiment.precision) == DType::f64) return std::nullopt;
  Experiment wide = experiment;
  wide.precision = is_narrow(experiment) ? Precision::fp32 : Precision::fp64;
  wide.scaler.enabled = Switch::off;
  return wide;
}

std::string format_of(const Experiment& experiment) { return dtype_of(experiment.precision) == DType::f64 ? "FP64" : "FP32"; }

}  // namespace ulpscope
