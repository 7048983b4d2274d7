// What a trainer keeps of its steps, for checkpoints and for the capsule.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <new>

#include "ulpscope/core/run/trainer_state.h"
#include "ulpscope/kernels/cpu_in_use.h"

namespace ulpscope {

void Trainer::State::keep_state(uint64_t step) {
  if (!ring) return;
  try {
    ring->begin_step(step, training());
  } catch (const std::bad_alloc&) {
    result.capsule->failure = fmt::format("step {}: no memory to keep the weights and states in", step);
    ring.reset();
  }
}

CheckpointInfo Trainer::State::checkpoint_info() const {
  return {run_id, to_toml(experiment), experiment.seed, next_step(), identity};
}

Experiment Trainer::State::experiment_on(const KeptSamples& kept) const {
  Experiment changed = experiment;
  changed.data = {};
  changed.data.kind = DataKind::capsule;
  // A batch of what would be left over is none that the run had.
  changed.data.drop_last = kept.batch.samples() >= experiment.training.batch_size;
  changed.training.steps = static_cast<int64_t>(total_steps);
  std::erase_if(changed.inject, [&](const InjectedFault& fault) { return fault.sample && kept.place_of(*fault.sample) < 0; });
  for (InjectedFault& fault : changed.inject)
    if (fault.sample) fault.sample = kept.place_of(*fault.sample);
  return changed;
}

uint64_t Trainer::State::weights_fingerprint() const {
  uint64_t fingerprint = hash_text("");
  for (const NamedTensor& parameter : model->parameters()) {
    const HostView host(parameter.tensor);
    const auto bytes = host.bytes();
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    fingerprint = hash_combine(fingerprint, hash_text(text));
  }
  return fingerprint;
}

bool Trainer::State::weights_are_finite() const {
  const auto finite = [](const auto& parameter) { return !holds_nonfinite(parameter.tensor); };
  const std::vector<NamedTensor> parameters = model->parameters();
  return std::all_of(parameters.begin(), parameters.end(), finite) &&
         std::all_of(optimizers.begin(), optimizers.end(), [&](const auto& optimizer) {
           return std::all_of(optimizer->parameters().begin(), optimizer->parameters().end(), finite);
         });
}

uint64_t Trainer::weights_fingerprint() const { return state_->weights_fingerprint(); }
bool Trainer::weights_are_finite() const { return state_->weights_are_finite(); }

std::string Trainer::State::capsule_event(const StepResult& step) const {
  switch (capsule.event) {
    case CapsuleEvent::nan:
      if (!std::isfinite(step.loss)) return std::isnan(step.loss) ? "the loss was NaN" : "the loss was infinite";
      return step.skipped || weights_are_finite() ? "" : "a weight was not finite";
    case CapsuleEvent::overflow: {
      const std::optional<NonfiniteOutput>& found = nonfinite_watch->first_infinite();
      if (step.skipped || !found) return "";
      return fmt::format("{} had {}, and the step was taken", found->place(), fmt::format("{} Inf", found->infinite));
    }
    case CapsuleEvent::backoff:
      return scale() < step.scale ? fmt::format("the loss scale went from {} to {}", step.scale, scale()) : "";
    case CapsuleEvent::step:
      return step.step == capsule.step ? "it was asked for" : "";
  }
  return "";
}

void Trainer::State::keep_step(const StepResult& step) {
  ring->end_step(step.loss, step.scale, step.skipped);
  CapsuleOutcome& outcome = *result.capsule;
  outcome.event = capsule_event(step);
  if (outcome.event.empty()) return;
  outcome.first_step = ring->first_step();
  outcome.last_step = step.step;
  // Training goes on, whatever prevents it.
  try {
    CheckpointInfo info = checkpoint_info();
    std::optional<KeptSamples> kept;
    if (capsule.keep_samples || experiment.data.kind == DataKind::capsule) {
      kept = keep_samples(*data.train, ring->samples());
      info.experiment = to_toml(experiment_on(*kept));
      info.data = identity_of(KeptDataset(*kept));
    }
    ring->save(info, *data.train, {outcome.event, {}, weights_fingerprint(), backend->description(), cpu, cpu_options_in_use()},
               kept ? &*kept : nullptr);
    outcome.written = true;
  } catch (const std::exception& error) {
    outcome.failure = error.what();
  }
  ring.reset();
}

void Trainer::save_checkpoint(const std::string& path) {
  State& s = *state_;
  const ContextScope current(s.context);
  // A run that goes on from the checkpoint records the steps after it only: those before have to be in this trace even if the
  // process is killed now. Where the recording has failed, training goes on, and a reader finds the steps missing.
  s.settle();
  if (s.sink) s.sink->flush();
  const auto* const kept = dynamic_cast<const KeptDataset*>(s.data.train.get());
  ulpscope::save_checkpoint(path, s.checkpoint_info(), s.training(), kept != nullptr ? &kept->samples() : nullptr);
}

}  // namespace ulpscope
