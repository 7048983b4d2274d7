// A trial: steps of a run, from a capsule or from the first one on, that are run again, as they were or with something changed.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ulpscope/core/run/checkpoint.h"
#include "ulpscope/core/run/experiment.h"
#include "ulpscope/core/run/trainer.h"
#include "ulpscope/studies/op_differences.h"

namespace ulpscope {

struct Trial {
  std::string capsule;                   // where it starts: a capsule, or a checkpoint where `batches` are given; "":
                                         // before the first step of `experiment`
  std::optional<Experiment> experiment;  // nothing: the capsule's
  // The file or folder of the run, beside which its data are looked for where they are not at their path; "": the capsule.
  std::string beside;
  std::vector<Override> changes;                   // of that, in this order
  uint64_t steps = 0;                              // how many; 0: those of the capsule. Any beyond have the batches that come next
  bool beyond_end = false;                         // they go on where the experiment ends, with the learning rate of its last step
  std::function<bool(const StepResult&)> goes_on;  // false: the step is the last one, whatever `steps` says
  // Before each step, when so many were taken. False: neither that step nor another one is.
  std::function<bool(Trainer& trainer, uint64_t taken)> before_step;
  std::vector<CapsuleStep> batches;    // as TrainerOptions have them; none: those of the capsule, which they stand for
  std::optional<KeptSamples> samples;  // as TrainerOptions have them
  CapsuleOptions kept;                 // a capsule that is written of it
  std::function<void(const Batch&)> watch_batches;
  // As TrainerOptions have it; none goes with by_op.
  std::function<std::unique_ptr<Backend>()> make_backend;
  CpuOptions cpu;                    // threads 0, isa "": those of the capsule, the only ones that go with by_op
  std::string trace_path;            // "": nothing is recorded
  bool overwrite = false;            // of an existing trace
  std::optional<RecordLevel> level;  // of it; nothing: the experiment's
  bool bits = false;                 // hashes of the outputs' bits as well, where the experiment has none
  bool by_op = false;                // the capsule's own run takes each step as well, and their ops are compared
  bool guesses = false;              // TrialOutcome::loss_of_guessing is asked for
  WorkWatch watch;                   // as TrainerOptions have it
};

// The measure of outputs in the trace of a trial with by_op: the Euclidean norm of the difference from what the capsule's own run
// computed, as a share of the larger norm of the two; without loss scales.
inline constexpr const char* kRelativeDifference = "relative_difference";

struct TrialStep {
  std::optional<CapsuleStep> original;  // nothing: the capsule does not have the step
  StepResult result;

  // Loss, loss scale and whether the step was skipped are those of the original, bit by bit.
  bool is_as_before() const;
};

struct TrialOutcome {
  CheckpointInfo start;   // of no checkpoint: the first step
  Experiment experiment;  // as it ran, with the changes
  CapsuleSteps original;  // none where there is no capsule
  std::string machine;    // Backend::description
  std::vector<TrialStep> steps;
  uint64_t weights_fingerprint = 0;
  bool weights_are_finite = true;
  std::vector<OpDifference> ops;  // Trial::by_op
  bool has_all_ops = true;        // OpDifferences::is_complete
  // Trial::by_op: the first step in which the capsule's own run, taken again, was not as the capsule has it.
  std::optional<uint64_t> original_differs_in;
  std::string warning;                     // Trainer::warning
  std::optional<double> loss_of_guessing;  // Trial::guesses; nothing: that is not known (guessing.h)
  SinkStatus trace;

  // It took the steps of the original, with the same losses, loss scales and skipped steps, and ended with the same weights.
  bool is_as_before() const;
  const TrialStep* first_different_step() const;  // nullptr: none
  const TrialStep* first_nonfinite_step() const;  // that had an output which was not finite; nullptr: none
};

// The experiment that the trial runs. Throws Error (usage) for changes that do not fit it, and for those of which steps there are,
// or of their batches.
Experiment experiment_of(const Trial& trial);
// Throws Error: where the capsule cannot be read, the changes do not fit it, the data are others, what is kept cannot be written,
// or by_op is asked for with threads or an instruction set: a process has one of each, and the run as it was needs those of the
// capsule.
TrialOutcome run(const Trial& trial);

}  // namespace ulpscope
