#include "ulpscope/core/run/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "ulpscope/base/clock.h"
#include "ulpscope/base/error.h"
#include "ulpscope/core/data/dataset.h"
#include "ulpscope/core/observe/recording.h"
#include "ulpscope/core/optim/grad_scaler.h"
#include "ulpscope/core/run/build_model.h"
#include "ulpscope/core/run/build_optimizers.h"
#include "ulpscope/core/run/changed_constants.h"
#include "ulpscope/core/run/checkpoint.h"
#include "ulpscope/core/run/describe_run.h"
#include "ulpscope/core/run/trainer_state.h"
#include "ulpscope/emulation/tensor_core.h"
#include "ulpscope/recorder/new_run.h"

namespace ulpscope {

namespace {

AutocastPolicy make_policy(const Experiment& experiment) {
  AutocastPolicy policy;
  policy.dtype = dtype_of(experiment.precision);
  policy.lists = row_of(experiment.precision).lists;
  for (const auto& [op, precision] : experiment.autocast.ops) policy.ops.emplace(op, dtype_of(precision));
  for (const auto& [module, precision] : experiment.autocast.modules) policy.modules.emplace_back(module, dtype_of(precision));
  return policy;
}

// What of the arithmetic asks for tensor cores that the GPU does not have, or "".
std::string missing_tensor_cores(const Experiment& experiment) {
  const PrecisionRow& row = row_of(experiment.precision);
  std::vector<Arithmetic> asked{experiment.arithmetic.run};
  for (const auto& [op, change] : experiment.arithmetic.ops) asked.push_back(change.applied_to(asked[0]));
  for (const auto& [module, change] : experiment.arithmetic.modules) asked.push_back(change.applied_to(asked[0]));
  std::set<std::string> missing;
  for (const Arithmetic& how : asked) {
    if (how.accumulation->accumulator != Accumulator::tensor_core) continue;
    const auto check = [&](const FloatFormat& format) {
      if (library_tensor_core(how.accumulation->name, format, format)) return;
      missing.insert(
          fmt::format("{} has no tensor cores for {}: products of it are summed in fp32", how.accumulation->name, format.name));
    };
    if (row.dtype != DType::f32) check(*info(row.dtype).format);
    if (row.dtype == DType::f32 && how.tf32) check(tensor_float32);
    if (row.fp8) check(*info(experiment.fp8.forward_type()).format);
  }
  return fmt::format("{}", fmt::join(missing, "; "));
}

uint64_t count_steps(const Experiment& experiment, int64_t batches_per_epoch) {
  const TrainingSettings& training = experiment.training;
  if (training.steps > 0) return static_cast<uint64_t>(training.steps);
  if (training.epochs > kMostCounted / batches_per_epoch) {
    throw usage_error("{}: training.epochs: expected at most 2^40 batches in all, found {} epochs of {}",
                      experiment.place_of({"training", "data"}), training.epochs, batches_per_epoch);
  }
  const int64_t batches = batches_per_epoch * training.epochs;
  return static_cast<uint64_t>((batches + training.accumulation - 1) / training.accumulation);
}

struct StepValues {
  explicit StepValues(StepScalars scalars) {
    std::vector<Tensor> all = std::move(scalars.losses);
    const size_t batches = all.size(), optimizers = scalars.nonfinite.size();
    all.insert(all.end(), scalars.nonfinite.begin(), scalars.nonfinite.end());
    all.insert(all.end(), scalars.norms.begin(), scalars.norms.end());
    const std::vector<double> values = read_scalars(all);
    const auto flags = values.begin() + static_cast<std::ptrdiff_t>(batches),
               norms_at = flags + static_cast<std::ptrdiff_t>(optimizers);
    loss = std::accumulate(values.begin(), flags, 0.0);
    nonfinite.assign(flags, norms_at);
    norms.assign(norms_at, values.end());
  }

  double loss;
  std::vector<double> nonfinite, norms;
};

// What differs between the data of the checkpoint at `path` and those that are there now, or "".
std::string difference(const DataIdentity& then, const DataIdentity& now, const std::string& path) {
  if (then == now) return "";
  const std::string what = then.samples == now.samples ? fmt::format("the first or last of the {} samples differ", now.samples)
                                                       : fmt::format("{} samples then, {} now", then.samples, now.samples);
  return fmt::format("the training data are not those of '{}': {}", path, what);
}

// Takes a step and an evaluation on the plan: throws what the device would throw of their calls.
void check_calls(const Experiment& experiment, const TrainerOptions& options, std::unique_ptr<Backend> plan) {
  TrainerOptions planned = options;
  planned.make_backend = [&] { return std::move(plan); };
  planned.trace_path.clear();
  planned.capsule = {};
  planned.profile = planned.watch_nonfinite = false;
  planned.watch_batches = {};
  if (options.watch) planned.watch = [&](std::string_view, double share) { options.watch("planning", share); };
  Trainer trainer(experiment, planned);
  trainer.step();
  if (experiment.training.evaluation != Evaluation::never) trainer.evaluate();
}

}  // namespace

Trainer::State::State(const Experiment& settings, const TrainerOptions& options)
    : experiment(settings),
      cpu(options.cpu),
      watch(options.watch),
      watch_batches(options.watch_batches),
      backend(options.make_backend ? options.make_backend() : make_cpu_backend(options.cpu)),
      capsule(options.capsule),
      given_batches(options.batches) {
  run_id = new_run_id();
  const ContextScope current(context);
  context.backend = backend.get();
  context.seed = experiment.seed;
  validate(experiment);
  if (std::unique_ptr<Backend> plan = backend->plan()) check_calls(experiment, options, std::move(plan));

  data = open_data_of(options);
  model = build_model(experiment, *data.train);
  for (const Dataset* split : {data.train.get(), data.test.get()})
    if (split) split->prepare(watch);
  identity = identity_of(*data.train);
  at_place(experiment.place_of({"data", "training.batch_size"}), [&] {
    loader.emplace(*data.train, Loader::Options{experiment.training.batch_size, experiment.data.shuffle, experiment.data.drop_last,
                                                experiment.seed});
  });
  if (is_narrow(*info(dtype_of(experiment.precision)).format)) {
    at_place(experiment.place_of({"autocast", "precision"}), [&] { autocast.emplace(make_policy(experiment)); });
  }
  // No device's arithmetic has a part in FP64.
  if (experiment.arithmetic != ArithmeticPolicy{} && dtype_of(experiment.precision) != DType::f64) {
    arithmetic.emplace(experiment.arithmetic);
    context.arithmetic = &*arithmetic;
  }
  total_steps = count_steps(experiment, loader->batches_per_epoch());

  model->create_tensors(experiment.seed, row_of(experiment.precision).parameter_types());
  optimizers = build_optimizers(experiment, *model);
  at_place(experiment.place_of({"optimizer.learning_rate", "optimizers", "optimizer.math", "precision"}),
           [&] { check_learning_rates(optimizers); });
  if (arithmetic) {
    at_place(experiment.place_of({"arithmetic", "optimizer.math", "precision"}), [&] { check_updates(optimizers, *arithmetic); });
  }
  if (arithmetic) warning = missing_tensor_cores(experiment);
  changed_constants = ulpscope::changed_constants(experiment, optimizers, arithmetic ? &*arithmetic : nullptr);
  for (const auto& optimizer : optimizers) learning_rates.push_back(optimizer->learning_rate);
  if (experiment.scaler_enabled()) scaler.emplace(experiment.scaler_rule());

  std::optional<CheckpointInfo> parent;
  if (!options.resume_from.empty()) {
    parent = load_checkpoint(options.resume_from, training(), options.samples ? Restored::part : Restored::all);
    result.first_step = parent->step;
    const std::string changed = options.samples ? "" : difference(parent->data, identity, options.resume_from);
    warning += (warning.empty() || changed.empty() ? "" : "; ") + changed;
    if (parent->step >= total_steps) {
      throw usage_error("'{}' stands at step {}, and the experiment ends at {}: expected more steps in all (training.steps)",
                        options.resume_from, parent->step, total_steps);
    }
  }

  check_batches();

  if (!experiment.inject.empty()) {
    faults.emplace(experiment.inject, *backend, *model, *data.train, total_steps);
    if (faults->watches_ops()) context.observers.push_back(&*faults);
  }
  const bool has_shadow = computes_again();
  if (!options.trace_path.empty() && experiment.recording.level != RecordLevel::off) {
    RunInfo run = describe_run(experiment, *backend, scaler.has_value(), parent);
    run.run_id = run_id;
    TraceOptions trace = options.trace;
    trace.overwrite = options.overwrite;
    sink = create_trace(options.trace_path, run, trace);
    recorder.emplace(*sink, experiment.recording.recorder_options());
    for (const SettingInfo& setting : describe_settings(experiment)) recorder->add_setting(setting);
    add_sources();
    // A fault that is injected again would not be the same.
    captures_later = backend->runs_behind() && !faults;
    observer.emplace(*recorder, *backend, captures_later ? Capturing::later : Capturing::at_once);
    context.observers.push_back(&*observer);
    if (has_shadow) context.observers.push_back(&shadow.emplace(recorded_shadow(*recorder), experiment.shadow, cpu, total_steps));
  }
  if (!capsule.path.empty()) {
    ring.emplace(capsule);
    result.capsule.emplace().path = capsule.path;
  }
  if (options.watch_nonfinite || (ring && capsule.event == CapsuleEvent::overflow))
    context.observers.push_back(&nonfinite_watch.emplace());
  if (options.profile) profiler.emplace(*backend, measure_roofline(*backend));
  if (profiler) context.observers = profiler->around(context.observers);
}

bool Trainer::State::computes_again() const {
  const ShadowSettings& settings = experiment.shadow;
  const bool is_asked_for = settings.every > 0;
  if (!settings.enabled || (!is_asked_for && (backend->runs_behind() || !accumulates_in_16_bits(experiment.arithmetic))))
    return false;
  if (backend->runs_behind())
    throw usage_error("shadow.every: ops are computed again from the CPU's memory; expected 0, or a run on the CPU, not on {}",
                      backend->name());
  return true;
}

DataSplits Trainer::State::open_data_of(const TrainerOptions& options) const {
  const DataUse use{experiment.seed, experiment.loss.ignored_label()};
  std::optional<KeptSamples> kept = options.samples;
  if (!kept && experiment.data.kind == DataKind::capsule && !options.resume_from.empty())
    kept = read_capsule_samples(options.resume_from, use);
  if (!kept) return open_data(experiment.data, use);
  DataSplits splits;
  splits.train = std::make_unique<KeptDataset>(std::move(*kept));
  splits.description = fmt::format("{} in the capsule", count_of(static_cast<uint64_t>(splits.train->size()), "sample"));
  return splits;
}

void Trainer::State::add_sources() {
  const auto add = [&](const Dataset& split, uint32_t number, const char* name) {
    for (SourceInfo& source : split.sources()) {
      source.source = number;
      source.name = name;
      recorder->add_source(source);
    }
  };
  add(*data.train, kTrainSource, "train");
  if (data.test) add(*data.test, kTestSource, "test");
}

Tensor Trainer::State::load_inputs(const Batch& loaded) const {
  if (!loaded.indices.empty()) return from_host(*backend, loaded.input_shape, loaded.indices);
  const DType type = loaded.input_type == dtype_of(experiment.precision) ? loaded.input_type : DType::f32;
  return from_host(*backend, type, loaded.input_shape, loaded.inputs, Layout::channels_last);
}

Tensor Trainer::State::load_targets(const Batch& loaded) const {
  if (!loaded.labels.empty()) return from_host(*backend, loaded.target_shape, loaded.labels);
  return from_host(*backend, DType::f32, loaded.target_shape, loaded.values, Layout::channels_last);
}

Tensor Trainer::State::run_model(Tensor inputs, bool training) {
  const PrecisionRow& row = row_of(experiment.precision);
  if (row.casts_model && is_float(inputs.dtype())) inputs = cast(inputs, row.dtype);
  Tensor output = (*model)(inputs, training);
  return row.output_fp32 && output.dtype() != DType::f32 ? cast(output, DType::f32) : output;
}

Tensor Trainer::State::compute_loss(const Tensor& output, Tensor target, double factor) const {
  const PrecisionRow& row = row_of(experiment.precision);
  if (row.narrow_loss && is_float(target.dtype())) target = cast(target, row.dtype);
  const OutputHint hint{Role::loss, nullptr};
  Tensor loss = type_of(experiment.loss.function).compute(output, target, experiment.loss);
  if (row.narrow_loss) loss = call("cast", {loss}, {}, {.dtype = row.dtype, .hints = {&hint, 1}});
  if (factor == 1.0) return loss;
  return call("scale", {loss}, {{"factor", factor}}, {.hints = {&hint, 1}});
}

void Trainer::State::check_batches() const {
  const auto accumulation = static_cast<size_t>(experiment.training.accumulation);
  for (const CapsuleStep& step : given_batches) {
    if (step.batches.size() != accumulation) {
      throw usage_error("the steps to run again have {} batches each; expected training.accumulation = {}, got {}",
                        step.batches.size(), step.batches.size(), accumulation);
    }
    for (const CapsuleBatch& given : step.batches) {
      const auto wrong = std::find_if(given.samples.begin(), given.samples.end(),
                                      [&](int64_t sample) { return sample < 0 || sample >= data.train->size(); });
      if (wrong != given.samples.end())
        throw usage_error("the steps to run again have sample {}, and the data {}: they are other data", *wrong,
                          count_of(static_cast<uint64_t>(data.train->size()), "sample"));
    }
  }
}

void Trainer::State::next_batch() {
  loader->next(batch);
  if (result.steps >= given_batches.size()) return;
  const CapsuleBatch& given = given_batches[result.steps].batches[context.micro_batch];
  if (batch.numbers != given.samples) {
    batch.numbers = given.samples;
    data.train->fill_batch(batch.numbers, batch);
  }
  if (hash_of(batch) == given.hash) return;
  throw unreadable_error(
      "the data are not those of step {}: the samples of its batch {}, the first of them number {}, hold other values",
      context.step, context.micro_batch, given.samples.front());
}

void Trainer::State::warn_of_targets() {
  const LossType& loss = type_of(experiment.loss.function);
  if (!recorder || told_of_targets || loss.beyond_probabilities == nullptr) return;
  const auto wrong = std::find_if(batch.values.begin(), batch.values.end(), [](float value) { return value < 0 || value > 1; });
  if (wrong == batch.values.end()) return;
  told_of_targets = true;
  const auto place = static_cast<size_t>(wrong - batch.values.begin()), each = batch.values.size() / batch.numbers.size();
  recorder->add_warning(
      fmt::format("element {} of the target of sample {} of train is {}: {} is of targets from 0 to 1, and beyond {}", place % each,
                  batch.numbers[place / each], *wrong, loss.name, loss.beyond_probabilities));
}

Tensor Trainer::State::run_batch() {
  next_batch();
  if (ring) ring->add_batch(batch.numbers);
  if (recorder) recorder->add_batch(Phase::forward, context.micro_batch, kTrainSource, batch.numbers);
  warn_of_targets();
  if (faults) faults->change(batch);
  if (watch_batches) watch_batches(batch);
  if (captures_later) batches_of_step.push_back(batch.numbers);
  return run_loaded_batch();
}

Tensor Trainer::State::run_loaded_batch() {
  Tensor inputs, targets;
  {
    const PhaseGuard phase(Phase::data);
    inputs = source(load_inputs(batch), Role::input, nullptr, "inputs");
    targets = source(load_targets(batch), Role::input, nullptr, "targets");
  }
  Tensor loss;
  {
    const AutocastScope scope(autocast ? &*autocast : nullptr);
    const Tensor output = run_model(inputs, true);
    const PhaseGuard phase(Phase::loss);
    loss = compute_loss(output, targets, experiment.loss.factor / static_cast<double>(experiment.training.accumulation));
  }
  backward(scaler ? scaler->scale_loss(loss) : loss);
  return loss.detach();
}

Trainer::Trainer(const Experiment& experiment, const TrainerOptions& options)
    : state_(std::make_unique<State>(experiment, options)) {}
Trainer::~Trainer() = default;

uint64_t Trainer::first_step() const { return state_->result.first_step; }
uint64_t Trainer::total_steps() const { return state_->total_steps; }
const std::string& Trainer::warning() const { return state_->warning; }
const std::vector<std::string>& Trainer::changed_constants() const { return state_->changed_constants; }
const Dataset& Trainer::training_data() const { return *state_->data.train; }
const std::string& Trainer::data_description() const { return state_->data.description; }
bool Trainer::finished() const {
  return state_->next_step() >= state_->total_steps || (state_->recorder && state_->recorder->stop_requested());
}
Model& Trainer::model() { return *state_->model; }
Recorder* Trainer::recorder() { return state_->recorder ? &*state_->recorder : nullptr; }
Context& Trainer::context() { return state_->context; }

void Trainer::State::begin_step(uint64_t step) {
  backend->reset_peak();
  context.begin_step(step);
  keep_state(step);
  if (nonfinite_watch) nonfinite_watch->begin_step();
  if (faults) faults->begin_step(step, *model);
  if (captures_later) keep_to_run_again();
  if (recorder) {
    recorder->begin_step(step);
    observer->begin_pass();
    if (shadow) shadow->begin_step(step);
  }
  if (result.steps > 0) return;
  if (recorder)
    for (const std::string& changed : changed_constants) recorder->add_warning(changed);
  record_initial_values();
}

std::vector<Tensor> Trainer::State::run_batches() {
  std::vector<Tensor> losses;
  for (int64_t i = 0; i < experiment.training.accumulation; ++i) {
    if (i > 0) begin_pass(static_cast<uint32_t>(i));
    losses.push_back(run_batch());
  }
  return losses;
}

void Trainer::State::record_products() {
  for (const LibraryProduct& product : backend->library_products().subspan(recorded_products)) {
    recorder->add_product({product.product, product.algorithm});
    ++recorded_products;
  }
}

double Trainer::State::take_gradients(uint64_t step) {
  // Trials go on behind the end of the run.
  const double factor = experiment.schedule.factor(std::min(step, total_steps - 1), total_steps);
  for (size_t i = 0; i < optimizers.size(); ++i) {
    optimizers[i]->learning_rate = learning_rates[i] * factor;
    optimizers[i]->take_gradients();
  }
  return optimizers[0]->learning_rate;
}

void Trainer::State::unscale_and_clip(StepScalars& scalars) {
  if (scaler)
    for (const auto& optimizer : optimizers) scalars.nonfinite.push_back(scaler->unscale(*optimizer));
  const ClippingSettings& clipping = experiment.clipping;
  if (recorder || clipping.norm > 0 || clipping.value > 0) scalars.norms.push_back(gradient_norm(optimizers));
  if (clipping.value > 0) {
    for (const auto& optimizer : optimizers) clip_gradient_value(*optimizer, clipping.value);
    scalars.norms.push_back(gradient_norm(optimizers));
  }
  if (clipping.norm > 0)
    for (const auto& optimizer : optimizers) clip_gradient_norm(*optimizer, scalars.norms.back(), clipping.norm);
}

bool Trainer::State::update(const std::vector<double>& nonfinite) {
  bool taken = true;
  for (size_t i = 0; i < optimizers.size(); ++i) {
    Optimizer& optimizer = *optimizers[i];
    if (!scaler) {
      optimizer.step();
    } else if (!scaler->step(optimizer, nonfinite[i] != 0)) {
      taken = false;
    }
    optimizer.zero_grad();
  }
  if (scaler) scaler->update();
  return taken;
}

void Trainer::State::describe_norms(const std::vector<double>& norms, StepRow& row) const {
  if (norms.empty()) return;
  const double limit = experiment.clipping.norm;
  row.norm_known = true;
  row.gradient_norm = norms.front();
  row.clipped_gradient_norm = norms.back();
  // What clip_norm multiplied by.
  if (limit > 0) row.clipped_gradient_norm *= std::min(1.0, limit / (norms.back() + 1e-6));
}

void Trainer::State::count_step(const StepResult& step, uint64_t peak_memory) {
  if (result.steps == 0) result.first_loss = step.loss;
  result.final_loss = step.loss;
  result.skipped_steps += step.skipped;
  result.seconds += step.seconds;
  result.peak_memory_bytes = std::max<size_t>(result.peak_memory_bytes, peak_memory);
  ++result.steps;
}

bool Trainer::State::evaluation_is_due(int64_t epoch_before) const {
  const Evaluation when = experiment.training.evaluation;
  if (next_step() == total_steps) return when != Evaluation::never;
  return when == Evaluation::epoch && loader->position().epoch != epoch_before;
}

void Trainer::State::evaluate_step(StepResult& step) {
  step.test = result.test = evaluate(true);
  if (!recorder || !step.test) return;
  recorder->add_metric("test_loss", MetricKind::evaluation_loss, step.test->loss);
  if (step.test->accuracy) recorder->add_metric("test_accuracy", MetricKind::evaluation_accuracy, *step.test->accuracy);
}

void Trainer::State::end_faults(bool skipped) {
  for (const std::string& changed : faults->take_notes())
    if (recorder) recorder->add_note(changed);
  if (recorder && next_step() == total_steps)
    for (const std::string& missed : faults->never_met()) recorder->add_note(missed);
  faults->end_step(skipped);
}

StepResult Trainer::step() {
  State& s = *state_;
  const ContextScope current(s.context);
  const auto start = Clock::now();
  s.step_failed = true;  // until its end
  StepResult result;
  StepRow row;
  result.step = s.next_step();
  result.epoch = s.loader->position().epoch;
  s.begin_step(result.step);
  StepScalars scalars;
  scalars.losses = s.run_batches();
  row.learning_rate = result.learning_rate = s.take_gradients(result.step);
  row.scale_before = result.scale = s.scale();
  s.unscale_and_clip(scalars);

  const StepValues values(std::move(scalars));
  if (s.backend->runs_behind()) {
    if (s.nonfinite_watch) s.nonfinite_watch->end_pass();
    s.find_origins();
    s.run_again([&](CaptureObserver& captures) { s.run_step_again(captures); });
  }
  row.loss = result.loss = values.loss;
  row.loss_known = true;
  row.skipped = result.skipped = !s.update(values.nonfinite);
  if (s.backend->runs_behind()) s.write_ended();
  row.scale_after = s.scale();
  s.describe_norms(values.norms, row);
  row.peak_memory = s.backend->peak_bytes();
  row.seconds = result.seconds = seconds_since(start) - (s.shadow ? s.shadow->seconds() : 0);
  s.count_step(result, row.peak_memory);

  if (s.nonfinite_watch) {
    s.backend->complete();
    s.nonfinite_watch->end_pass();
    result.nonfinite = s.nonfinite_watch->first();
  }
  if (s.ring) s.keep_step(result);
  if (s.evaluation_is_due(result.epoch)) s.evaluate_step(result);
  if (s.faults) s.end_faults(result.skipped);
  const auto recording = Clock::now();
  if (s.recorder) {
    s.record_products();
    s.recorder->end_step(row, !s.backend->runs_behind());
    // Whether training stops here may depend on the update.
    if (s.experiment.recording.stop_on != StopOn::never) s.settle();
  }
  if (s.profiler) {
    s.profiler->add_recording(seconds_since(recording));
    s.profiler->add_total(seconds_since(start));
  }
  s.step_failed = false;
  return result;
}

std::optional<TestResult> Trainer::evaluate() {
  State& s = *state_;
  const ContextScope current(s.context);
  const ContextGuard<&Context::observers> unrecorded(s.profiler ? s.profiler->around({}) : std::vector<Observer*>{});
  return s.evaluate(false);
}

std::optional<TestResult> Trainer::State::evaluate(bool recorded) {
  if (!data.test) return {};
  const PhaseGuard phase(Phase::evaluation);
  const NoGrad no_grad;
  const std::optional<int64_t> ignored = experiment.loss.ignored_label();  // of labels
  const int64_t size = data.test->size();
  const int64_t batch_size =
      experiment.training.evaluation_batch_size > 0 ? experiment.training.evaluation_batch_size : experiment.training.batch_size;
  const auto fill = [&](int64_t first) {
    std::vector<int64_t>& numbers = test_batch.numbers;
    numbers.resize(static_cast<size_t>(std::min(size - first, batch_size)));
    std::iota(numbers.begin(), numbers.end(), first);
    data.test->fill_batch(numbers, test_batch);
  };
  const auto run = [&](std::vector<Tensor>& scalars, std::vector<int64_t>& counted) {
    const Tensor inputs = source(load_inputs(test_batch), Role::input, nullptr, "inputs"),
                 targets = source(load_targets(test_batch), Role::input, nullptr, "targets");
    const AutocastScope scope(autocast ? &*autocast : nullptr);
    const Tensor output = run_model(inputs, false);
    scalars.push_back(compute_loss(output, targets, experiment.loss.factor));
    counted.push_back(targets.size());
    if (!ignored) return;
    const auto [logits, labels] = as_rows(output, targets);
    scalars.push_back(call("correct_count", {logits, labels}, {{"ignore_index", static_cast<double>(*ignored)}}));
    counted.back() -= std::count(test_batch.labels.begin(), test_batch.labels.end(), *ignored);
  };
  std::vector<Tensor> scalars;   // read together: of each batch the loss, and of labels how many were right
  std::vector<int64_t> counted;  // targets of each batch that are not ignored
  for (int64_t first = 0; first < size; first += batch_size) {
    if (recorded) begin_pass(static_cast<uint32_t>(counted.size()));
    if (watch && first > 0) watch("evaluating", static_cast<double>(first) / static_cast<double>(size));
    fill(first);
    if (recorded && recorder) recorder->add_batch(Phase::evaluation, context.micro_batch, kTestSource, test_batch.numbers);
    run(scalars, counted);
  }
  const std::vector<double> values = read_scalars(scalars);
  if (recorded && captures_later) {
    find_origins();
    run_again([&](CaptureObserver& captures) {
      std::vector<Tensor> known_scalars;
      std::vector<int64_t> known_counts;
      for (uint32_t i = 0; i < counted.size(); ++i) {
        if (!captures.wants(i)) continue;
        context.begin_pass(i, 0);
        captures.begin_pass();
        fill(i * batch_size);
        run(known_scalars, known_counts);
      }
    });
  }
  const size_t each = ignored ? 2 : 1;
  double all = 0, losses = 0, correct = 0;
  for (size_t i = 0; i < counted.size(); ++i) {
    if (counted[i] == 0) continue;  // its loss is 0 / 0
    const auto count = static_cast<double>(counted[i]);
    all += count;
    losses += count * values[each * i];
    if (ignored) correct += values[each * i + 1];
  }
  TestResult measured{losses / all, {}};
  if (ignored && all > 0) measured.accuracy = correct / all;
  return measured;
}

TrainResult Trainer::finish(const std::string& interruption) {
  State& s = *state_;
  TrainResult& result = s.result;
  try {
    s.settle();
    result.weights_fingerprint = s.weights_fingerprint();
  } catch (const Error&) {
    // Of a device that a step has lost nothing more comes; the trace is closed with what it has.
    if (!s.step_failed) throw;
  }
  result.stop_reason = interruption;
  if (s.sink) {
    if (interruption.empty()) {
      result.stop_reason = s.recorder->stop_reason();
    } else {
      EventRow stopped;
      stopped.step = s.next_step() - std::min<uint64_t>(result.steps, 1);
      stopped.kind = EventKind::stopped;
      stopped.text = "training stopped: " + interruption;
      s.sink->add_event(stopped);
    }
    result.limits_met = s.recorder->limits_met();
    s.sink->close();
    result.trace = s.sink->status();
  }
  if (s.profiler) result.profile = s.profiler->profile();
  return result;
}

TrainResult train(const Experiment& experiment, const TrainerOptions& options,
                  const std::function<void(const StepResult&)>& on_step) {
  Trainer trainer(experiment, options);
  while (!trainer.finished()) {
    const StepResult result = trainer.step();
    if (on_step) on_step(result);
  }
  return trainer.finish();
}

}  // namespace ulpscope
