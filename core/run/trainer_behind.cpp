// When the rows of a trainer's passes are written: at once, or, with a backend that runs behind, when it is waited for; and the
// step that runs again there for what only its ops can tell.
#include <utility>

#include "ulpscope/core/run/trainer_state.h"

namespace ulpscope {

namespace {

Tensor empty_like(const Tensor& tensor) { return empty(tensor.storage().backend(), tensor.dtype(), tensor.shape()); }

// Unseen by observers.
void assign(const Tensor& to, const Tensor& from) {
  const TensorView inputs[] = {to.view(), from.view()}, outputs[] = {to.view()};
  const Attributes none;
  to.storage().backend().submit({"assign", inputs, outputs, &none, {}});
}

}  // namespace

void Trainer::State::begin_pass(uint32_t micro_batch) {
  if (recorder) {
    recorder->end_pass(!backend->runs_behind());
    observer->begin_pass();
  }
  if (nonfinite_watch && !backend->runs_behind()) nonfinite_watch->end_pass();
  context.begin_pass(micro_batch, 0);
  if (!recorder || recorder->waiting_ops() <= kMostWaitingOps) return;
  backend->complete();
  if (nonfinite_watch) nonfinite_watch->end_pass();
  find_origins();
  write_ended();
}

void Trainer::State::record_initial_values() const {
  model->record_initial_values();
  for (const auto& optimizer : optimizers) optimizer->record_initial_values();
}

void Trainer::State::find_origins() {
  if (captures_later) observer->find_origins(origins);
}

void Trainer::State::write_ended() {
  if (recorder) recorder->write_ended();
  context.records.release();
}

void Trainer::State::run_again(const std::function<void(CaptureObserver&)>& run) {
  if (origins.empty()) return;
  write_ended();  // the step before comes first
  CaptureObserver captures(*recorder, *backend, std::exchange(origins, {}));
  const ContextGuard<&Context::observers> observed({&captures});
  const ContextGuard<&Context::records> records(RecordsOfPasses{});
  const ContextGuard<&Context::counters> counters(CallCounters{});
  const ContextGuard<&Context::micro_batch> micro_batch(context.micro_batch);
  Model::Watch watched = model->watch_layers({});
  run(captures);
  model->watch_layers(std::move(watched));
}

void Trainer::State::run_step_again(CaptureObserver& captures) {
  std::vector<std::pair<Tensor, Tensor>> gradients;
  for (const auto& optimizer : optimizers) {
    for (const OptimizedParameter& parameter : optimizer->parameters())
      for (const Tensor& tensor : {parameter.tensor, parameter.model})
        if (tensor) gradients.emplace_back(tensor, tensor.grad());
    optimizer->zero_grad();
  }
  std::optional<GradScaler> scaler_before = scaler;
  if (scaler) {
    scaler.emplace(experiment.scaler_rule());
    scaler->restore(scaler_before->state());
  }
  const std::vector<NamedTensor> buffers = model->buffers();
  std::vector<Tensor> buffers_after;
  for (size_t i = 0; i < buffers.size(); ++i) {
    buffers_after.push_back(empty_like(buffers[i].tensor));
    assign(buffers_after[i], buffers[i].tensor);
    assign(buffers[i].tensor, buffers_before[i]);
  }

  for (size_t i = 0; i < batches_of_step.size() && !captures.done(); ++i) {
    context.begin_pass(static_cast<uint32_t>(i), 0);
    captures.begin_pass();
    if (i == 0 && result.steps == 0) record_initial_values();
    batch.numbers = batches_of_step[i];
    data.train->fill_batch(batch.numbers, batch);
    run_loaded_batch();
  }
  if (!captures.done()) {
    take_gradients(context.step);
    StepScalars scalars;
    unscale_and_clip(scalars);
  }

  scaler = std::move(scaler_before);
  for (size_t i = 0; i < buffers.size(); ++i) assign(buffers[i].tensor, buffers_after[i]);
  for (auto& [tensor, gradient] : gradients) tensor.set_grad(std::move(gradient));
}

void Trainer::State::settle() {
  if (!backend->runs_behind()) return;
  backend->complete();
  find_origins();
  write_ended();
}

void Trainer::State::keep_to_run_again() {
  batches_of_step.clear();
  const std::vector<NamedTensor> buffers = model->buffers();
  for (size_t i = 0; i < buffers.size(); ++i) {
    if (i == buffers_before.size()) buffers_before.push_back(empty_like(buffers[i].tensor));
    assign(buffers_before[i], buffers[i].tensor);
  }
}

}  // namespace ulpscope
