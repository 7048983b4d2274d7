// Runs an experiment: data, model, optimizer, autocast, loss scaling, recording, evaluation.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ulpscope/core/data/kept_samples.h"
#include "ulpscope/core/observe/nonfinite_watch.h"
#include "ulpscope/core/observe/profile.h"
#include "ulpscope/core/run/capsule.h"
#include "ulpscope/core/run/experiment.h"
#include "ulpscope/kernels/backend.h"
#include "ulpscope/trace/sink.h"

namespace ulpscope {

class Model;
class Recorder;
struct Context;

struct TrainerOptions {
  CpuOptions cpu;
  std::function<std::unique_ptr<Backend>()> make_backend;  // of the device that computes; none: the CPU, as `cpu` says
  std::string trace_path;                                  // "": nothing is recorded
  bool overwrite = false;                                  // of an existing trace
  TraceOptions trace;                                      // its overwrite is taken from above
  std::string resume_from;                                 // "", or a checkpoint to go on from
  bool profile = false;                                    // measure where the time goes
  CapsuleOptions capsule;
  // Of each of the steps from the first on, which samples its batches have, whatever their order would be; the steps after these
  // have those that come next. Where the data are others than the hashes say, a step throws Error (unreadable).
  std::vector<CapsuleStep> batches;
  // The data, instead of the experiment's: of part of the run of which resume_from is, whose model has part of that one's tensors.
  std::optional<KeptSamples> samples;
  bool watch_nonfinite = false;                     // say of each step what was not finite
  std::function<void(const Batch&)> watch_batches;  // is shown each batch of training, as the model gets it
  // Of work that is no step: generating data, where what it throws comes out of Trainer's constructor, and evaluations.
  WorkWatch watch;
};

// What the test data gave.
struct TestResult {
  double loss = 0;                 // a mean over all targets that count, with loss.factor
  std::optional<double> accuracy;  // of labels: the share of those that are not ignored
};

// What a step did.
struct StepResult {
  uint64_t step = 0;
  int64_t epoch = 0;
  double loss = 0;
  double learning_rate = 0;
  double scale = 1;      // the loss scale in force in this step
  bool skipped = false;  // gradients were not finite
  double seconds = 0;
  std::optional<TestResult> test;            // where it was measured after this step
  std::optional<NonfiniteOutput> nonfinite;  // the first one, where TrainerOptions ask for it
};

struct TrainResult {
  uint64_t first_step = 0;  // where the run began: the checkpoint's step, or 0
  uint64_t steps = 0;       // of this run
  uint64_t skipped_steps = 0;
  double first_loss = 0, final_loss = 0;
  std::optional<TestResult> test;  // the last one
  double seconds = 0;              // of all steps
  size_t peak_memory_bytes = 0;
  uint64_t weights_fingerprint = 0;  // a hash of the final parameters' bits: equal for bit-equal weights
  std::string stop_reason;           // what --stop-on found, what interrupted the run, or ""
  std::string limits_met;            // from which steps on less was recorded than asked for, and why; or ""
  SinkStatus trace;
  std::optional<Profile> profile;
  std::optional<CapsuleOutcome> capsule;  // where one was asked for
};

class Trainer {
 public:
  // Opens the data, builds the model, goes on from the checkpoint where there is one, and creates the trace. Throws Error: shapes
  // that do not fit, data, checkpoint or trace that cannot be opened, a checkpoint that does not fit or leaves no step to take.
  Trainer(const Experiment& experiment, const TrainerOptions& options);
  ~Trainer();

  uint64_t first_step() const;   // as in TrainResult
  uint64_t total_steps() const;  // at the end, those before first_step() included
  const std::string& data_description() const;
  const Dataset& training_data() const;
  // What is other than in the run that this one goes on from, and should not be, and what the arithmetic asks for in vain; or "".
  const std::string& warning() const;
  // Constants that mean something else in the formats of the run, a sentence each (changed_constants.h).
  const std::vector<std::string>& changed_constants() const;
  Recorder* recorder();   // of the trace; nullptr: nothing is recorded
  bool finished() const;  // all steps are done, or the recorder asked to stop

  // One step of training, recorded; evaluates after the last step of an epoch or run where the experiment says so, which is
  // recorded as part of the step, in phase evaluation, its batches as micro-batches.
  StepResult step();
  // The test data through the model; nothing where there are none. Not recorded: it belongs to no step.
  std::optional<TestResult> evaluate();
  // Everything that training needs to go on after the last step taken; the trace's steps up to there are committed before. Throws
  // Error (failed).
  void save_checkpoint(const std::string& path);
  // Of the parameters as they stand.
  uint64_t weights_fingerprint() const;
  bool weights_are_finite() const;
  // Closes the trace. `interruption`: why training ends before its time where no one but the caller knows, or ""; the trace tells.
  TrainResult finish(const std::string& interruption = "");

  Model& model();
  Context& context();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Runs to the end; on_step sees every step.
TrainResult train(const Experiment& experiment, const TrainerOptions& options,
                  const std::function<void(const StepResult&)>& on_step = {});

}  // namespace ulpscope
