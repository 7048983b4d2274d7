// What would have kept a run from failing: changes that are tried, each by running its steps again from before they failed.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ulpscope/studies/trial.h"

namespace ulpscope {

// A run has failed where to its end every loss is not finite or every step is skipped, or where a weight is not finite.
struct RunFailure {
  enum class Way : uint8_t { loss, skipped, weights };
  Way way = Way::loss;
  uint64_t step = 0;  // the first of those steps; of weights, the last of the run

  bool is_like(const RunFailure& other) const { return way == other.way && (way == Way::weights || step == other.step); }
};

// Takes the steps of a run in order.
class FailureWatch {
 public:
  // So many skipped at the end are a failure: a scale that comes down to where it fits takes fewer.
  static constexpr uint64_t kSkipped = 20;

  void add(uint64_t step, double loss, bool skipped);
  std::optional<RunFailure> failure(bool weights_are_finite = true) const;  // nothing: it did not fail
  // So long that it is not going to recover.
  bool is_lost() const { return bad_losses_ >= kSkipped || skips_ >= 2 * kSkipped; }

 private:
  uint64_t last_ = 0, bad_losses_ = 0, skips_ = 0;
  uint64_t first_bad_ = 0, first_skipped_ = 0;
};

struct Fix {
  std::string text;        // "the learning rate / 10: optimizer.learning_rate = 0.1"
  bool is_format = false;  // it changes types or the loss scale, and nothing that a run in FP32 has
  Experiment experiment;   // with the change
};
// What might help, the cheapest for training first. `module`: where its NaN began, or "".
std::vector<Fix> fixes_of(const Experiment& experiment, const std::string& module);
// What might help where updates are too small for the weights, the cheapest first.
std::vector<Fix> update_fixes_of(const Experiment& experiment);

enum class FixResult : uint8_t {
  verified,      // it stays finite, and trains as the reference does
  trains_worse,  // it stays finite, and its loss ends further above the reference's than the margin
  fails,
  still_loses,  // updates or weight decay (update_trials.h)
  fp32_fails,   // a format's change, and the run fails in FP32 too
  refused,      // the experiment cannot have it
  not_tried,    // the time was up
};
const char* name_of(FixResult result);

struct FixTrial {
  Fix fix;
  FixResult result = FixResult::not_tried;
  std::optional<RunFailure> failure;
  std::optional<double> end_loss;  // the median of the last losses, at most ten
  std::string refusal;
};

// Of what the loss of the reference fell by, a trial may end so much above it.
inline constexpr double kFixMargin = 0.1;

struct FixStudy {
  std::string refusal;                 // why the run cannot be run again as it was, or ""
  uint64_t first_step = 0, steps = 0;  // of each trial, which ends early where it is lost
  std::optional<RunFailure> failure;   // of the steps run again as they were
  bool fails_again = false;            // as the run did; else nothing is proven, and nothing was tried
  std::string reference;               // what trains, and the others are held against; "": nothing did
  double reference_start = 0, reference_end = 0;
  // The loss up to which a trial trains as the reference does: by the margin, and no more than the last finite one before the
  // failure.
  double bound = 0;
  std::vector<FixTrial> trials;
};

struct FixOptions {
  uint64_t steps_after = 50;                               // that trials go on for behind the step in which the run failed
  double budget = 60;                                      // seconds for all of them
  std::function<bool(std::string_view trial)> watch = {};  // told of each that begins; false: neither it nor another one does
};

// `start`: where trials start, as the run was; its `changes` are part of that. `failure`: of the run.
FixStudy try_fixes(const Trial& start, const RunFailure& failure, const std::string& module, const FixOptions& options);

}  // namespace ulpscope
