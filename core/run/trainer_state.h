// What a trainer holds and the parts that its steps consist of. Internal to core/run/.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ulpscope/core/data/dataset.h"
#include "ulpscope/core/observe/recording.h"
#include "ulpscope/core/observe/shadow.h"
#include "ulpscope/core/optim/grad_scaler.h"
#include "ulpscope/core/run/capsule_ring.h"
#include "ulpscope/core/run/checkpoint.h"
#include "ulpscope/core/run/fault_injector.h"
#include "ulpscope/core/run/trainer.h"

namespace ulpscope {

// What a step reads from the device, all at once.
struct StepScalars {
  std::vector<Tensor> losses;     // of each batch its share
  std::vector<Tensor> nonfinite;  // with a scaler, of each optimizer: whether a gradient was
  std::vector<Tensor> norms;      // of all gradients, and again after clipping by value; or none
};

struct Trainer::State {
  // Numbers of data sets in the trace.
  static constexpr uint32_t kTrainSource = 0, kTestSource = 1;
  // When so many ops wait for their rows to be written, the backend is waited for: their records take some 50 MB.
  static constexpr size_t kMostWaitingOps = size_t{1} << 14;

  State(const Experiment& experiment, const TrainerOptions& options);

  DataSplits open_data_of(const TrainerOptions& options) const;
  void add_sources();  // to the trace
  Tensor load_inputs(const Batch& batch) const;
  Tensor load_targets(const Batch& batch) const;
  // A batch through the model, under autocast, with the casts that the precision puts around it.
  Tensor run_model(Tensor inputs, bool training);
  // Multiplied by `factor`.
  Tensor compute_loss(const Tensor& output, Tensor target, double factor) const;
  TrainingState training() { return {*model, optimizers, scaler ? &*scaler : nullptr, *loader}; }
  // Passes over the next batch, and over `batch`; they give its share of the step's loss.
  Tensor run_batch();
  Tensor run_loaded_batch();
  uint64_t next_step() const { return result.first_step + result.steps; }
  double scale() const { return scaler ? scaler->scale() : 1.0; }
  CheckpointInfo checkpoint_info() const;
  // That has these samples as its data, for as many steps.
  Experiment experiment_on(const KeptSamples& kept) const;
  // Fills `batch` with the one that is next.
  void next_batch();
  void check_batches() const;
  void warn_of_targets();  // once: of one in the batch that the loss function is not of
  bool weights_are_finite() const;
  uint64_t weights_fingerprint() const;
  // What of a step calls for the capsule, in words, or "".
  std::string capsule_event(const StepResult& step) const;
  // For the capsule, whatever comes of it: how training stands before the step, and the step.
  void keep_state(uint64_t step);
  void keep_step(const StepResult& step);
  // Whether ops are computed again; throws a usage Error where that is asked for and cannot be.
  bool computes_again() const;
  // The parts of a step, in their order.
  void begin_step(uint64_t step);
  std::vector<Tensor> run_batches();     // the losses
  void record_products();                // of the library, those that are new
  double take_gradients(uint64_t step);  // the learning rate of the first optimizer
  void unscale_and_clip(StepScalars& scalars);
  bool update(const std::vector<double>& nonfinite);  // true iff every optimizer took the step
  void describe_norms(const std::vector<double>& norms, StepRow& row) const;
  void count_step(const StepResult& step, uint64_t peak_memory);
  bool evaluation_is_due(int64_t epoch_before) const;  // after a step that began in that epoch
  void evaluate_step(StepResult& step);
  void end_faults(bool skipped);
  std::optional<TestResult> evaluate(bool recorded);
  // Ends a pass of a recorded step: its rows are written, unless the backend is behind, and the next one's ids count from 0.
  void begin_pass(uint32_t micro_batch);
  void record_initial_values() const;

  // For a backend that runs behind. What it was given is complete: `origins` are those that only their ops can explain, once they
  // run again.
  void find_origins();
  // What ended is complete, too: its rows are written.
  void write_ended();
  // What the step is run again with.
  void keep_to_run_again();
  // Captures `origins` while `run` lets their ops run again.
  void run_again(const std::function<void(CaptureObserver&)>& run);
  // The step up to its update. Its tensors are left as they are.
  void run_step_again(CaptureObserver& captures);
  // Waits for everything that was done, and writes its rows.
  void settle();

  Experiment experiment;
  CpuOptions cpu;
  WorkWatch watch;
  std::function<void(const Batch&)> watch_batches;
  std::unique_ptr<Backend> backend;  // outlives every tensor
  Context context;                   // current within the trainer's calls
  DataSplits data;
  std::optional<Loader> loader;
  std::unique_ptr<Model> model;
  std::vector<std::unique_ptr<Optimizer>> optimizers;
  std::vector<double> learning_rates;  // of each, which the schedule multiplies
  std::optional<GradScaler> scaler;
  std::optional<Autocast> autocast;
  std::optional<ArithmeticRules> arithmetic;
  std::unique_ptr<TraceSink> sink;
  std::optional<Recorder> recorder;
  std::optional<RecordingObserver> observer;
  std::optional<ShadowObserver> shadow;
  // Whether origins are captured when their ops run again.
  bool captures_later = false;
  bool step_failed = false;  // with an error: the device may be gone
  std::vector<Origin> origins;
  std::vector<Tensor> buffers_before;                 // the model's, as they were before the step
  std::vector<std::vector<int64_t>> batches_of_step;  // the samples of each
  std::optional<NonfiniteWatch> nonfinite_watch;
  std::optional<FaultInjector> faults;
  CapsuleOptions capsule;
  std::optional<CapsuleRing> ring;  // until the capsule is written
  std::vector<CapsuleStep> given_batches;
  Batch batch, test_batch;
  std::optional<Profiler> profiler;
  DataIdentity identity;  // of the training split
  std::string run_id;
  std::string warning;
  std::vector<std::string> changed_constants;
  bool told_of_targets = false;
  size_t recorded_products = 0;  // of the backend's library_products()
  uint64_t total_steps = 0;
  TrainResult result;
};

}  // namespace ulpscope
