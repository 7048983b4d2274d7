// Trials of one experiment and of changes of it, from one start, for as many steps and within one budget.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ulpscope/base/clock.h"
#include "ulpscope/studies/fixes.h"
#include "ulpscope/studies/trial.h"

namespace ulpscope {

class TimedTrials {
 public:
  // `budget`: seconds for all of them; `watch` as FixOptions have it. Both arguments outlive it.
  TimedTrials(const Trial& start, uint64_t steps, double budget, const std::function<bool(std::string_view trial)>& watch)
      : start_(start), steps_(steps), budget_(budget), watch_(watch) {}

  struct Outcome {
    bool ran = false;  // to its end: the time was not up
    std::optional<RunFailure> failure;
    std::vector<double> losses;
    std::string refusal;

    bool is_whole() const { return ran && refusal.empty(); }
    double end() const;  // the median of the last losses, at most ten
    // It stayed finite, and all of those losses are below the first.
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
  const Clock::time_point begin_ = Clock::now();
  bool stopped_ = false;
};

}  // namespace ulpscope
