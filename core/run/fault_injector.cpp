#include "ulpscope/core/run/fault_injector.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <tuple>
#include <utility>

#include "ulpscope/base/error.h"
#include "ulpscope/base/text.h"
#include "ulpscope/core/nn/model.h"
#include "ulpscope/emulation/rounding.h"

namespace ulpscope {

namespace {

uint64_t changed(const InjectedFault& fault, const FloatFormat& format, uint64_t encoding) {
  if (fault.flip_bit) return encoding ^ (uint64_t{1} << *fault.flip_bit);
  return round_to_encoding(format, fault.set ? *fault.set : value_of(format, encoding) * *fault.scale);
}

// Throws where the tensor has no such element, or the element no such bit. `what`: "parameter head.weight".
void check(const InjectedFault& fault, const std::string& what, DType dtype, int64_t size) {
  if (!is_float(dtype))
    throw usage_error("{}: expected a tensor of floating-point numbers, {} is one of {}", fault.place.text, what, info(dtype).name);
  if (fault.element >= size)
    throw usage_error("{}: element: expected one below {}, the size of {}, found {}", fault.place.text, size, what, fault.element);
  const FloatFormat& format = *info(dtype).format;
  if (fault.flip_bit && *fault.flip_bit >= format.storage_bits())
    throw usage_error("{}: flip_bit: expected one below {}, the bits of {}, found {}", fault.place.text, format.storage_bits(),
                      format.name, *fault.flip_bit);
}

NamedTensor parameter_of(const InjectedFault& fault, const Model& model) {
  std::vector<std::string> names;
  for (const NamedTensor& parameter : model.parameters()) {
    if (*parameter.name == fault.parameter) return parameter;
    names.push_back(*parameter.name);
  }
  throw usage_error("{}: the model has no parameter '{}'{}", fault.place.text, one_line(fault.parameter),
                    did_you_mean_or_expected(fault.parameter, names));
}

}  // namespace

bool InjectedFault::is_due(uint64_t in_step) const {
  const auto first = static_cast<uint64_t>(step);
  return in_step >= first && (steps == 0 || in_step - first < static_cast<uint64_t>(steps));
}

bool InjectedFault::operator==(const InjectedFault& other) const {
  const auto key = [](const InjectedFault& fault) {
    const auto bits = [](const std::optional<double>& value) { return value ? std::optional(encoding_of(*value)) : std::nullopt; };
    return std::tuple(fault.parameter, fault.op, fault.sample, fault.module, fault.phase, fault.input, fault.call, fault.element,
                      fault.step, fault.steps, bits(fault.set), bits(fault.scale), fault.flip_bit);
  };
  return key(*this) == key(other);
}

FaultInjector::FaultInjector(const std::vector<InjectedFault>& faults, Backend& backend, const Model& model, const Dataset& data,
                             uint64_t total_steps)
    : faults_(faults), backend_(backend), states_(faults.size()) {
  for (const InjectedFault& fault : faults_) {
    if (static_cast<uint64_t>(fault.step) >= total_steps)
      throw usage_error("{}: step: expected one below {}, the steps of the run, found {}", fault.place.text, total_steps,
                        fault.step);
    if (!fault.parameter.empty()) {
      const Tensor& tensor = parameter_of(fault, model).tensor;
      check(fault, "parameter " + fault.parameter, tensor.dtype(), tensor.size());
    } else if (fault.sample) {
      if (data.input_indices() > 0) throw usage_error("{}: sample: expected data of numbers, these are indices", fault.place.text);
      if (*fault.sample >= data.size())
        throw usage_error("{}: sample: expected one below {}, of which the data are, found {}", fault.place.text, data.size(),
                          *fault.sample);
      int64_t size = 1;
      for (const int64_t extent : data.input_shape()) size *= extent;
      check(fault, "a sample", DType::f32, size);
    } else {
      at_place(fault.place.text, [&] { find_op(fault.op); });
    }
  }
}

bool FaultInjector::watches_ops() const {
  return std::any_of(faults_.begin(), faults_.end(), [](const InjectedFault& fault) { return !fault.op.empty(); });
}

void FaultInjector::note(size_t fault, const std::string& what, double before, double after) {
  if (states_[fault].noted) return;
  states_[fault].noted = true;
  notes_.push_back(
      fmt::format("inject[{}] changed element {} of {} from {:.9g} to {:.9g}", fault, faults_[fault].element, what, before, after));
}

void FaultInjector::change(size_t fault, const Tensor& tensor, const std::string& what) {
  check(faults_[fault], what, tensor.dtype(), tensor.size());
  const DTypeInfo& type = info(tensor.dtype());
  std::byte* const at =
      tensor.view().as<std::byte>() + offset_of(tensor.view(), faults_[fault].element) * static_cast<int64_t>(type.size);
  uint64_t before = 0;
  backend_.copy_to_host(at, &before, type.size);
  const uint64_t after = changed(faults_[fault], *type.format, before);
  backend_.copy_from_host(&after, at, type.size);
  note(fault, what, value_of(*type.format, before), value_of(*type.format, after));
}

void FaultInjector::begin_step(uint64_t step, const Model& model) {
  step_ = step;
  for (size_t i = 0; i < faults_.size(); ++i) {
    states_[i].calls = 0;
    states_[i].others.clear();
    if (faults_[i].parameter.empty() || !faults_[i].is_due(step)) continue;
    change(i, parameter_of(faults_[i], model).tensor, "parameter " + faults_[i].parameter);
  }
}

void FaultInjector::change(Batch& batch) {
  for (size_t i = 0; i < faults_.size(); ++i) {
    const InjectedFault& fault = faults_[i];
    if (!fault.sample || !fault.is_due(step_)) continue;
    const size_t size = batch.inputs.size() / batch.numbers.size();
    for (size_t place = 0; place < batch.numbers.size(); ++place) {
      if (batch.numbers[place] != *fault.sample) continue;
      float& value = batch.inputs[place * size + static_cast<size_t>(fault.element)];
      const float before = value;
      value = std::bit_cast<float>(static_cast<uint32_t>(changed(fault, binary32, encoding_of(before))));
      note(i, fmt::format("sample {}", *fault.sample), before, value);
    }
  }
}

void FaultInjector::before(const OpEvent& event, std::span<OutputRecord* const>) {
  for (size_t i = 0; i < faults_.size(); ++i) {
    const InjectedFault& fault = faults_[i];
    if (fault.op.empty() || fault.phase != event.phase || !fault.is_due(step_) || !glob_match(fault.module, event.module)) continue;
    if (fault.op != event.op.name) {
      states_[i].others.insert(event.op.name);
      continue;
    }
    if (states_[i].calls++ != fault.call) continue;
    if (static_cast<size_t>(fault.input) >= event.inputs.size())
      throw usage_error("{}: input: expected one below {}, the inputs of {}, found {}", fault.place.text, event.inputs.size(),
                        fault.op, fault.input);
    change(i, event.inputs[static_cast<size_t>(fault.input)], fmt::format("input {} of {}{}", fault.input, fault.op, in_module()));
  }
}

void FaultInjector::end_step(bool skipped) {
  for (size_t i = 0; i < faults_.size(); ++i) {
    const InjectedFault& fault = faults_[i];
    if (fault.op.empty() || !fault.is_due(step_) || states_[i].calls > fault.call) continue;
    if (skipped && fault.phase == Phase::optimizer) continue;
    const std::vector<std::string> others(states_[i].others.begin(), states_[i].others.end());
    throw usage_error("{}: step {} has {} of {} in modules '{}' in phase {}, expected more than {}{}", fault.place.text, step_,
                      count_of(static_cast<uint64_t>(states_[i].calls), "call"), fault.op, fault.module, name_of(fault.phase),
                      fault.call, states_[i].calls == 0 ? did_you_mean_or_expected(fault.op, others) : "");
  }
}

std::vector<std::string> FaultInjector::never_met() const {
  std::vector<std::string> all;
  for (size_t i = 0; i < faults_.size(); ++i)
    if (faults_[i].sample && !states_[i].noted)
      all.push_back(fmt::format("inject[{}] changed nothing: no batch of its steps had sample {}", i, *faults_[i].sample));
  return all;
}

std::vector<std::string> FaultInjector::take_notes() { return std::exchange(notes_, {}); }

}  // namespace ulpscope
