#include "ulpscope/studies/error_split.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "ulpscope/base/error.h"
#include "ulpscope/core/engine/context.h"
#include "ulpscope/core/observe/shadow.h"
#include "ulpscope/studies/timed_trials.h"

namespace ulpscope {

namespace {

using OutputKey = std::pair<uint64_t, uint32_t>;                // the id of its op, and the slot
using OutputInPass = std::tuple<uint64_t, uint32_t, uint32_t>;  // with the micro-batch

OutputInPass in_pass(const ValueKey& value, uint32_t micro_batch) { return {value.op, value.slot, micro_batch}; }

// Updates and evaluation have no part in it.
bool is_looked_at(const OpEvent& event) {
  return event.phase == Phase::data || event.phase == Phase::forward || event.phase == Phase::loss ||
         event.phase == Phase::backward;
}

std::vector<double> without_scale(const Tensor& tensor) {
  std::vector<double> values = to_host(tensor);
  const double scale = tensor.body()->loss_scale;
  for (double& value : values) value /= scale;
  return values;
}

template <typename Visit>
void for_each_float(const OpEvent& event, Visit&& visit) {
  for (size_t slot = 0; slot < event.outputs.size(); ++slot)
    if (is_float(event.outputs[slot].dtype()) && event.call.outputs[slot].data != nullptr) visit(slot, event.outputs[slot]);
}

// Keeps what gradients of parameters were last in the backward pass.
class GradientWatch : public Observer {
 public:
  explicit GradientWatch(StepValues& values) : values_(values) {}
  void after(const OpEvent& event) override {
    if (event.phase != Phase::backward) return;
    for_each_float(event, [&](size_t slot, const Tensor& output) {
      const OutputLabel& label = event.labels[slot];
      if (label.parameter == nullptr || !is_gradient(label.role)) return;
      GradientValues& gradient = values_.gradients[*label.parameter];
      gradient.module = event.module;
      gradient.type = output.dtype();
      gradient.values = without_scale(output);
    });
  }

 private:
  StepValues& values_;
};

// Keeps all outputs, without their loss scales.
class ReferenceOutputs : public Observer {
 public:
  void after(const OpEvent& event) override {
    if (!is_looked_at(event)) return;
    for_each_float(event, [&](size_t slot, const Tensor& output) {
      const OutputInPass key = in_pass({event.id, static_cast<uint32_t>(slot)}, event.micro_batch);
      bytes_ += static_cast<size_t>(output.size()) * sizeof(double);
      if (bytes_ > ErrorSplit::kMostBytes) {
        values_.erase(key);  // an earlier one of an op that runs twice
        return;
      }
      values_[key] = without_scale(output);
    });
  }
  const std::vector<double>* find(const OutputInPass& key) const {
    const auto found = values_.find(key);
    return found == values_.end() ? nullptr : &found->second;
  }
  bool is_whole() const { return bytes_ <= ErrorSplit::kMostBytes; }

 private:
  std::map<OutputInPass, std::vector<double>> values_;
  size_t bytes_ = 0;
};

// Adds up squares of one output.
struct Squares {
  double reference = 0, own = 0, total = 0;
  double injected = 0, inherited = 0, product = 0, floor = 0, inputs = 0;
  bool is_split = false;
  uint64_t elements = 0, flipped = 0;
};

bool is_something(double reference, double own) { return reference > kNothing * kNothing * own && reference > 0; }

// An element of the result is 0, or another value, by a comparison.
bool chooses(OpFunction function) {
  switch (function) {
    case OpFunction::relu:
    case OpFunction::relu_backward:
    case OpFunction::clamp_backward:
    case OpFunction::maximum_backward:
    case OpFunction::minimum_backward:
    case OpFunction::max_backward:
    case OpFunction::max_pool_backward:
      return true;
    default:
      return false;
  }
}

class Splitter : public Observer {
 public:
  explicit Splitter(const ReferenceOutputs& reference) : reference_(reference) {}

  void after(const OpEvent& event) override {
    if (!is_looked_at(event)) return;
    // A cast holds what it is of, which the reference has under another name.
    if (event.op.function == OpFunction::cast)
      holds_[in_pass({event.id, 0}, event.micro_batch)] = held(in_pass(event.inputs[0].body()->value, event.micro_batch));
    for_each_float(event, [&](size_t slot, const Tensor& output) { add(event, slot, output); });
  }

  void shadowed(const ShadowedOutput& output) {
    const OpEvent& event = output.event;
    const std::vector<double>* const exact = exact_of(event, output.slot);
    if (exact == nullptr || static_cast<int64_t>(exact->size()) != output.wide.size()) return;
    Squares& squares = squares_of(event, output.slot);
    squares.is_split = true;
    const double scale = event.outputs[output.slot].body()->loss_scale;
    for (size_t i = 0; i < exact->size(); ++i) {
      const auto at = static_cast<int64_t>(i);
      const double stored = read_element(output.stored, at) / scale, wide = read_element(output.wide, at) / scale,
                   rounded = read_element(output.rounded, at) / scale;
      if (!std::isfinite(stored) || !std::isfinite(wide) || !std::isfinite(rounded) || !std::isfinite((*exact)[i])) continue;
      const double by_op = stored - wide, through_inputs = wide - (*exact)[i];
      squares.injected += by_op * by_op;
      squares.inherited += through_inputs * through_inputs;
      squares.product += 2 * by_op * through_inputs;
      squares.floor += (rounded - wide) * (rounded - wide);
      ++squares.elements;
      squares.flipped += (wide == 0) != ((*exact)[i] == 0);
    }
    double inputs = 0;
    for (const Tensor& input : event.inputs)
      if (const auto known = totals_.find(in_pass(input.body()->value, event.micro_batch)); known != totals_.end())
        inputs += known->second;
    squares.inputs += inputs * squares_in(*exact);
  }

  std::vector<OutputSplit> take() {
    std::vector<OutputSplit> outputs;
    for (const OutputKey& key : order_) {
      OutputSplit& output = described_.at(key);
      const Squares& squares = squares_.at(key);
      if (!is_something(squares.reference, squares.own)) continue;
      const auto share = [&](double square) { return std::sqrt(square / squares.reference); };
      output.total = share(squares.total);
      if (squares.is_split) {
        output.injected = share(squares.injected);
        output.inherited = share(squares.inherited);
        output.cross = squares.product / squares.reference;
        output.floor = share(squares.floor);
        output.inputs = share(squares.inputs);
        if (chooses(output.function) && squares.elements > 0)
          output.flipped = static_cast<double>(squares.flipped) / static_cast<double>(squares.elements);
      }
      outputs.push_back(std::move(output));
    }
    return outputs;
  }

 private:
  static double squares_in(const std::vector<double>& values) {
    double sum = 0;
    for (const double value : values) sum += std::isfinite(value) ? value * value : 0;
    return sum;
  }
  OutputInPass held(const OutputInPass& key) const {
    const auto found = holds_.find(key);
    return found == holds_.end() ? key : found->second;
  }
  const std::vector<double>* exact_of(const OpEvent& event, size_t slot) const {
    return reference_.find(held(in_pass({event.id, static_cast<uint32_t>(slot)}, event.micro_batch)));
  }
  Squares& squares_of(const OpEvent& event, size_t slot) {
    const OutputKey key{event.id, static_cast<uint32_t>(slot)};
    const auto [place, is_new] = squares_.try_emplace(key);
    if (is_new) {
      order_.push_back(key);
      const OutputLabel& label = event.labels[slot];
      OutputSplit& output = described_[key];
      output.op = event.op.name;
      output.module = event.module;
      if (label.parameter != nullptr) output.parameter = *label.parameter;
      output.role = label.role;
      output.phase = event.phase;
      output.function = event.op.function;
      output.type = event.outputs[slot].dtype();
    }
    return place->second;
  }
  void add(const OpEvent& event, size_t slot, const Tensor& output) {
    const std::vector<double>* const exact = exact_of(event, slot);
    if (exact == nullptr || static_cast<int64_t>(exact->size()) != output.size()) return;
    const std::vector<double> values = without_scale(output);
    double total = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      const double off = values[i] - (*exact)[i];
      if (std::isfinite(off)) total += off * off;
    }
    const double all = squares_in(*exact);
    totals_[in_pass({event.id, static_cast<uint32_t>(slot)}, event.micro_batch)] = all > 0 ? total / all : 0;
    if (event.phase == Phase::data) return;
    Squares& squares = squares_of(event, slot);
    squares.reference += all;
    squares.own += squares_in(values);
    squares.total += total;
  }

  const ReferenceOutputs& reference_;
  std::map<OutputInPass, OutputInPass> holds_;
  std::map<OutputInPass, double> totals_;  // squares, over those of the reference
  std::map<OutputKey, Squares> squares_;
  std::map<OutputKey, OutputSplit> described_;
  std::vector<OutputKey> order_;
};

}  // namespace

std::optional<double> OutputSplit::amplification() const {
  return inherited && inputs && *inputs > 0 ? std::optional(*inherited / *inputs) : std::nullopt;
}

double OutputSplit::added() const {
  const auto square = [](const std::optional<double>& value) { return value.value_or(0) * value.value_or(0); };
  return square(injected) + square(inherited) - square(inputs);
}

StepValues values_of_step(const Trial& start, const Experiment& experiment, const std::vector<Observer*>& watch) {
  StepValues values;
  GradientWatch gradients(values);
  Trial trial = start;
  trial.experiment = experiment;
  trial.experiment->training.evaluation = Evaluation::never;
  trial.experiment->shadow.enabled = false;
  trial.steps = 1;
  trial.before_step = [&](Trainer& trainer, uint64_t taken) {
    if (taken > 0) return true;
    std::vector<Observer*>& observers = trainer.context().observers;
    observers.push_back(&gradients);
    observers.insert(observers.end(), watch.begin(), watch.end());
    return true;
  };
  const TrialOutcome outcome = run(trial);
  if (!outcome.steps.empty()) values.loss = outcome.steps.front().result.loss;
  return values;
}

std::optional<GradientError> gradient_error(const std::string& parameter, const StepValues& values, const StepValues& reference) {
  const auto own_values = values.gradients.find(parameter), exact = reference.gradients.find(parameter);
  if (own_values == values.gradients.end() || exact == reference.gradients.end()) return std::nullopt;
  const GradientValues& gradient = own_values->second;
  if (exact->second.values.size() != gradient.values.size()) return std::nullopt;
  GradientError error{parameter, gradient.module, gradient.type};
  double off = 0, all = 0, own = 0;
  for (size_t i = 0; i < gradient.values.size(); ++i) {
    const double is = gradient.values[i], should_be = exact->second.values[i];
    if (!std::isfinite(is) || !std::isfinite(should_be)) {
      ++error.nonfinite;
      continue;
    }
    off += (is - should_be) * (is - should_be);
    all += should_be * should_be;
    own += is * is;
  }
  if (is_something(all, own)) error.error = std::sqrt(off / all);
  return error;
}

std::vector<GradientError> gradient_errors(const StepValues& values, const StepValues& reference) {
  std::vector<GradientError> errors;
  for (const auto& [parameter, gradient] : values.gradients)
    if (std::optional<GradientError> error = gradient_error(parameter, values, reference)) errors.push_back(std::move(*error));
  std::stable_sort(errors.begin(), errors.end(),
                   [](const GradientError& a, const GradientError& b) { return a.error.value_or(-1) > b.error.value_or(-1); });
  return errors;
}

ErrorSplit split_errors(const Trial& start) {
  ErrorSplit split;
  Experiment experiment = experiment_of(start);
  const std::optional<Experiment> wider = wider_than(experiment);
  if (!wider) throw usage_error("no type is wider than FP64, in which the step was computed");
  Experiment exact = *wider;
  exact.arithmetic = {};
  split.reference_name = format_of(exact);
  ReferenceOutputs reference;
  split.reference = values_of_step(start, exact, {&reference});
  split.is_whole = reference.is_whole();
  Splitter splitter(reference);
  ShadowObserver shadow({[&](const ShadowedOutput& output) { splitter.shadowed(output); },
                         [&](std::string_view note) { split.notes.emplace_back(note); }},
                        {.every = 1, .ops = {}, .type = exact.precision == Precision::fp64 ? ShadowType::fp64 : ShadowType::fp32},
                        start.cpu, 1);
  shadow.begin_step(0);
  split.values = values_of_step(start, experiment, {&splitter, &shadow});
  split.outputs = splitter.take();
  return split;
}

}  // namespace ulpscope
