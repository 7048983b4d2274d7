// Trials of one experiment and of changes of it, from one start, for as many steps and within one budget; and what they are held
// against.
#pragma once

#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ulpscope/analyzers/subject/run_failure.h"
#include "ulpscope/base/clock.h"
#include "ulpscope/studies/trial.h"

namespace ulpscope {

class TimedTrials {
 public:
  // `budget`: seconds for all of them; `watch` as FixOptions have it. `start` and `watch` outlive it.
  TimedTrials(const Trial& start, uint64_t steps, double budget, const std::function<bool(std::string_view trial)>& watch)
      : start_(start), steps_(steps), budget_(budget), watch_(watch), factor_(experiment_of(start).loss.factor) {}

  struct Outcome {
    bool ran = false;  // to its end: the time was not up
    std::optional<RunFailure> failure;
    unsigned skipped_at_end = 0;     // FailureWatch has it
    uint64_t skipped = 0;            // of all its steps
    std::vector<double> losses;      // with the start's loss.factor, whatever its own is
    std::optional<double> guessing;  // what guessing gives (guessing.h)
    std::string refusal;             // why it could not run, or what of it could not be recorded; or ""
    // There are samples of so many steps alone, fewer than the last losses that are judged: the capsule's. A model that gets them
    // again and again knows them by heart. 0: there are more.
    size_t only_steps = 0;

    bool is_whole() const { return ran && refusal.empty(); }
    double end() const;  // the median of the last losses, at most ten
    // Of one step nothing can be said, nor of few that come again and again.
    bool tells_of_training() const { return losses.size() >= 2 && only_steps == 0; }
    // It stayed finite, took most of its last steps, and the last losses, ten or half of them, are all below the first.
    bool trains() const;
  };

  bool has_time() const { return !stopped_ && seconds_since(begin_) < budget_; }
  // `trace`: where it is recorded; "": nowhere.
  Outcome run(const std::string& text, const Experiment& experiment, const std::string& trace = "");

 private:
  const Trial& start_;
  const uint64_t steps_;
  const double budget_;
  const std::function<bool(std::string_view trial)>& watch_;
  const double factor_;
  const Clock::time_point begin_ = Clock::now();
  bool stopped_ = false;
};

// Of what the loss of the reference fell by, a trial may end so much above it.
inline constexpr double kTrialMargin = 0.1;

// A run that trains, which trials are held against.
struct Reference {
  std::string name;  // "FP32", or "FP32 and " what it takes to train; "": there is none
  std::string lack;  // why there is none
  double start = 0, end = 0;
  std::vector<double> losses;
  double below = std::numeric_limits<double>::infinity();  // a trial has to end there: the loss of guessing, and that at the onset
  std::string below_what;                                  // which of them

  bool exists() const { return !name.empty(); }
  // The loss up to which a trial that skipped so many steps trains as it does: as many steps earlier. A skipped step teaches
  // nothing, and is nothing that a longer run would not make up for.
  double bound(uint64_t skipped = 0) const;
  bool is_reached_by(double loss, uint64_t skipped = 0) const { return exists() && loss <= bound(skipped) && loss < below; }
  // It has to end below `loss`, too; where it does not itself, it is none.
  void demand_below(double loss, const std::string& what);
};
// `name`: of what came out so. What ends no better than guessing is none.
Reference reference_of(const std::string& name, const TimedTrials::Outcome& outcome);

bool is_narrow(const Experiment& experiment);  // its precision has a format below FP32
// In the next wider format than any of its own: FP32, and of FP32 FP64. Nothing where it runs in FP64.
std::optional<Experiment> wider_than(const Experiment& experiment);
// "FP64" where it runs in FP64; else "FP32", of one that is not narrow.
std::string format_of(const Experiment& experiment);

}  // namespace ulpscope
