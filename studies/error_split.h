// How the rounding errors of one step came together: the step is run in a wider type, FP32 where it has 16 bits, from the same
// weights, states, and batches, and then as it was, with each op in 16 bits computed again from its own inputs. Of an output y,
// with w that of the wide step and s what its op gives in the wide type of the run's own inputs,
//
//   total = y - w,  injected = y - s by the op itself,  inherited = s - w through its inputs
//
// as Euclidean norms over that of w (docs/numerics.md, "How errors come together").
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ulpscope/studies/trial.h"

namespace ulpscope {

// One output, over all micro-batches of the step.
struct OutputSplit {
  std::string op, module, parameter;
  Role role = Role::activation;
  Phase phase = Phase::forward;
  OpFunction function = OpFunction::other;
  DType type = DType::f32;
  double total = 0;
  // Nothing of outputs that were not computed again, as those in FP32.
  std::optional<double> injected, inherited;
  std::optional<double> cross;   // twice the inner product of the two errors: total^2 = injected^2 + inherited^2 + cross
  std::optional<double> floor;   // what rounding s once costs
  std::optional<double> inputs;  // the root of the summed squares of the inputs' totals
  // The share of elements that are 0 in one of s and w alone, where the op chooses between values, as relu and its backward do.
  std::optional<double> flipped;

  // `inherited` over `inputs`; nothing where these are 0.
  std::optional<double> amplification() const;
  // The square of the error that came in with this op: what it injects, and what it makes of its inputs' errors beyond these.
  double added() const;
};

// A norm of the reference below so much of the run's own is a rounding error of the reference, by terms that cancel.
inline constexpr double kNothing = 0x1p-26;

// The gradient that a parameter has at the end of the backward pass, without its loss scale.
struct GradientError {
  std::string parameter, module;
  DType type = DType::f32;
  // The norm of the difference, over that of the wide gradient. Nothing where no element is finite in both, and where the
  // gradient is 0 but for rounding, as that of a bias in front of a normalization: below kNothing of what the run has.
  std::optional<double> error = {};
  uint64_t nonfinite = 0;  // elements that are not finite in one of the two, and have no part in it
};

struct GradientValues {
  std::string module;
  DType type = DType::f32;
  std::vector<double> values;
};
struct StepValues {
  std::optional<double> loss = {};                  // nothing: no step was taken
  std::map<std::string, GradientValues> gradients;  // by parameter
};
// The first step of the trial: its loss and gradients. `watch`: more observers of it.
StepValues values_of_step(const Trial& start, const Experiment& experiment, const std::vector<Observer*>& watch = {});
// Compares a parameter's gradients; nothing where one of the two has none of that size.
std::optional<GradientError> gradient_error(const std::string& parameter, const StepValues& values, const StepValues& reference);
// Compares all of them, the largest error first.
std::vector<GradientError> gradient_errors(const StepValues& values, const StepValues& reference);

struct ErrorSplit {
  std::string reference_name;  // "FP32"
  StepValues reference, values;
  std::vector<OutputSplit> outputs;  // in the order of execution
  std::vector<std::string> notes;    // ops that could not be computed again, a sentence each
  bool is_whole = true;              // false: the outputs of the reference took more than kMostBytes, and the rest was left out
  static constexpr size_t kMostBytes = size_t{2} << 30;
};
// `start` begins at a capsule or a checkpoint, so that both runs have the same weights. Throws Error as run() does, and
// (usage) of a step in FP64.
ErrorSplit split_errors(const Trial& start);

}  // namespace ulpscope
