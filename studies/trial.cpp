#include "ulpscope/studies/trial.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <filesystem>

#include "ulpscope/base/error.h"
#include "ulpscope/base/text.h"
#include "ulpscope/core/data/data_files.h"
#include "ulpscope/core/nn/model.h"
#include "ulpscope/core/run/build_model.h"
#include "ulpscope/studies/guessing.h"

namespace ulpscope {

namespace {

bool is_same(double a, double b) { return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b); }

// What a capsule has is no matter of how it is used.
Experiment experiment_in(const std::string& capsule, const std::string& text) {
  try {
    return parse_experiment(text, "its experiment");
  } catch (const Error& error) {
    throw unreadable_error("'{}' is damaged: {}", capsule, one_line(error.what()));
  }
}

Experiment experiment_of(const Trial& trial, const CheckpointInfo& start) {
  Experiment experiment = trial.experiment ? *trial.experiment : experiment_in(trial.capsule, start.experiment);
  experiment.given = {};  // the text of a checkpoint has all keys
  if (trial.by_op) keep_attention(experiment);
  for (const Override& change : trial.changes) apply_override(experiment, change);
  for (const char* key : {"training.steps", "training.epochs", "training.batch_size"}) {
    if (const auto given = experiment.given.overrides.find(key); given != experiment.given.overrides.end())
      throw usage_error("{}: {} cannot be changed: steps that run again are those of the capsule, with their batches",
                        given->second, key);
  }
  validate(experiment);
  return experiment;
}

namespace fs = std::filesystem;

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

// Where data lie whose path was relative to the folder in which the run was trained, or that were moved with what was written of
// the run: at the path, there or in a folder above `beside`, or under their own name in `beside`.
std::string located(const std::string& path, const fs::path& beside) {
  if (path.empty() || is_there(path)) return path;
  std::error_code error;
  const fs::path whole = beside.empty() ? fs::path() : fs::absolute(beside, error);
  const fs::path folder = fs::is_directory(whole, error) ? whole : whole.parent_path();
  if (fs::path(path).is_relative()) {
    for (fs::path above = folder; !above.empty(); above = above.parent_path()) {
      if (is_there(above / path)) return (above / path).string();
      if (above == above.root_path()) break;
    }
  }
  if (!folder.empty() && is_there(folder / fs::path(path).filename())) return (folder / fs::path(path).filename()).string();
  const std::string here = fs::current_path(error).string();
  if (folder.empty())
    throw unreadable_error("cannot read '{}', data of the run: it is not in the folder '{}', where it was looked for", path, here);
  throw unreadable_error(
      "cannot read '{}', data of the run: looked in '{}'{}, and in the folders above it. Run this in the folder that the run was "
      "trained in, or put the file beside '{}'",
      path, folder.string(), folder == fs::path(here) ? "" : fmt::format(" and in the current folder, '{}'", here),
      beside.string());
}

Experiment with_located_data(Experiment experiment, const fs::path& beside) {
  for (const auto key : path_keys(experiment.data.kind)) experiment.data.*key = located(experiment.data.*key, beside);
  return experiment;
}

}  // namespace

bool TrialStep::is_as_before() const {
  return original && is_same(original->loss, result.loss) && is_same(original->scale, result.scale) &&
         original->skipped == result.skipped;
}

bool TrialOutcome::is_as_before() const {
  return steps.size() == original.steps.size() && first_different_step() == nullptr &&
         weights_fingerprint == original.weights_fingerprint;
}

const TrialStep* TrialOutcome::first_different_step() const {
  const auto found = std::find_if(steps.begin(), steps.end(), [](const TrialStep& step) { return !step.is_as_before(); });
  return found == steps.end() ? nullptr : &*found;
}

const TrialStep* TrialOutcome::first_nonfinite_step() const {
  const auto found =
      std::find_if(steps.begin(), steps.end(), [](const TrialStep& step) { return step.result.nonfinite.has_value(); });
  return found == steps.end() ? nullptr : &*found;
}

Experiment experiment_of(const Trial& trial) {
  return experiment_of(trial, trial.experiment ? CheckpointInfo() : read_checkpoint_info(trial.capsule));
}

TrialOutcome run(const Trial& trial) {
  if (trial.by_op && (trial.make_backend || trial.cpu.threads > 0 || !trial.cpu.isa.empty()))
    throw usage_error(
        "ops are compared with those of the steps as they were, on the CPU with the capsule's threads and instruction set: "
        "expected "
        "neither --device nor --threads nor --isa with --by-op and --as fp64");
  TrialOutcome outcome;
  if (!trial.capsule.empty()) {
    outcome.start = read_checkpoint_info(trial.capsule);
    if (trial.batches.empty()) outcome.original = read_capsule_steps(trial.capsule);
  }
  outcome.experiment = experiment_of(trial, outcome.start);
  if (trial.level) outcome.experiment.recording.level = *trial.level;
  outcome.experiment.recording.bits |= trial.bits;
  const std::string& beside = trial.beside.empty() ? trial.capsule : trial.beside;
  // The experiment stays what it was, whatever lies where by now.
  const Experiment located = with_located_data(outcome.experiment, beside);

  TrainerOptions options;
  options.cpu = outcome.original.steps.empty() ? trial.cpu : cpu_as_before(outcome.original, trial.cpu);
  options.make_backend = trial.make_backend;
  options.trace_path = trial.trace_path;
  options.overwrite = trial.overwrite;
  options.resume_from = trial.capsule;
  options.batches = trial.batches.empty() ? outcome.original.steps : trial.batches;
  options.samples = trial.samples;
  options.capsule = trial.kept;
  options.watch_batches = trial.watch_batches;
  options.watch_nonfinite = true;
  options.watch = trial.watch;
  OpDifferences differences;
  std::optional<Trainer> as_it_was;
  if (trial.by_op) {
    Trial original;
    original.capsule = trial.capsule;
    TrainerOptions unseen = options;
    unseen.trace_path.clear();
    unseen.capsule = {};
    unseen.watch_batches = {};
    Experiment experiment = with_located_data(experiment_of(original), beside);
    experiment.training.evaluation = Evaluation::never;
    as_it_was.emplace(experiment, unseen).context().observers.push_back(&differences.original());
  }
  Trainer trainer(located, options);
  if (as_it_was) {
    trainer.context().observers.push_back(&differences.changed());
    if (Recorder* const recorder = trainer.recorder())
      differences.tell = [recorder](const ValueKey& output, double difference) {
        recorder->add_measure(output, kRelativeDifference, difference);
      };
  }
  outcome.machine = trainer.context().backend->description();
  outcome.warning = trainer.warning();
  if (trial.guesses)
    outcome.loss_of_guessing = loss_of_guessing(outcome.experiment, trainer.training_data(), trainer.model().output_shape());

  // Not by finished(): the capsule may end before the experiment, recording.stop_on may want to, and trials may go on behind it.
  const size_t known = outcome.original.steps.size(), count = trial.steps > 0 ? trial.steps : options.batches.size();
  for (size_t i = 0; i < count && (trial.beyond_end || trainer.first_step() + i < trainer.total_steps()); ++i) {
    if (trial.before_step && !trial.before_step(trainer, i)) break;
    TrialStep& step = outcome.steps.emplace_back();
    if (i < known) step.original = outcome.original.steps[i];
    if (as_it_was && i < known) {
      differences.begin_step(trainer.first_step() + i);
      TrialStep again;
      again.original = step.original;
      again.result = as_it_was->step();  // which may throw: of a capsule whose batches do not fit
      if (!again.is_as_before() && !outcome.original_differs_in) outcome.original_differs_in = trainer.first_step() + i;
    }
    step.result = trainer.step();
    if (trial.goes_on && !trial.goes_on(step.result)) break;
  }
  outcome.ops = differences.found();
  outcome.has_all_ops = differences.is_complete();
  outcome.weights_fingerprint = trainer.weights_fingerprint();
  outcome.weights_are_finite = trainer.weights_are_finite();
  const TrainResult trained = trainer.finish();
  if (trained.capsule && !trained.capsule->failure.empty()) throw failed_error("{}", trained.capsule->failure);
  outcome.trace = trained.trace;
  return outcome;
}

}  // namespace ulpscope
