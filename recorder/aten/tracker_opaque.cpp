// Kernels that PyTorch does not dispatch cannot be looked into: their outputs are those of ops of kind opaque.
#include <algorithm>
#include <cmath>

#include "ulpscope/recorder/aten/tracker.h"

namespace ulpscope::aten {
namespace {

constexpr std::string_view kBackward = "Backward";  // ends the name of the node of a torch.autograd.Function, and of no other
constexpr std::string_view kCompiledRegion = "compiled_region";
constexpr std::string_view kUnrecordedMemory = "unrecorded_memory";

bool is_of_program(std::string_view node) { return node.ends_with(kBackward); }

std::string_view name_of_function(std::string_view name) {
  if (is_of_program(name)) name.remove_suffix(kBackward.size());
  return name == "CompiledFunction" ? kCompiledRegion : name;
}

// Whether its values are read at all.
bool has_values(const Tensor& tensor) {
  return tensor.is_present && tensor.unreadable == nullptr && has_statistics(tensor) && count_of_elements(tensor) > 0;
}

}  // namespace

// ---- calls of functions

bool Tracker::begin_function(std::string_view name_of_call, int64_t sequence, int64_t task, std::span<const Tensor> inputs) {
  const std::optional<Place> place = state_.paused > 0 ? std::nullopt : here(task);
  if (!place) return false;
  OpaqueCall call;
  call.name = name(name_of_function(name_of_call));
  call.place = *place;
  for (const Tensor& each : inputs) {
    if (!has_values(each)) continue;
    const Makers makers = makers_of(each, task);
    if (place->phase == Phase::loss && each.requires_grad == 0 && is_new_input(makers.last)) input(each, "target");
  }
  call.inputs_unknown = !values_of(inputs, call.inputs);
  if (place->phase == Phase::forward || place->phase == Phase::loss)
    call.location = location_of(place->phase, place->module, call.name);
  call.began = last_function_ = told_;
  functions_.insert_or_assign(sequence, std::move(call));
  running_[std::this_thread::get_id()].push_back(sequence);
  return true;
}

void Tracker::end_function() {
  std::vector<int64_t>& running = running_[std::this_thread::get_id()];
  if (!running.empty()) running.pop_back();
}

// ---- who wrote memory that no op did

bool Tracker::has_no_maker(const Tensor& tensor) const {
  if (!has_values(tensor)) return false;
  const Makers makers = memory_.find(tensor);
  return !is_recorded(makers.last) && makers.last != constant();
}

bool Tracker::values_of(std::span<const Tensor> tensors, std::vector<ulpscope_value>& values) const {
  bool is_known = true;
  for (const Tensor& tensor : tensors) {
    if (!tensor.is_present) continue;
    const Makers makers = tensor.unreadable == nullptr ? memory_.find(tensor) : Makers();
    const bool has_value = is_recorded(makers.last);
    const auto add = [&](const MadePointer& made) {
      const auto is_it = [&](const ulpscope_value& each) { return is_same(each, made->value); };
      if (is_recorded(made) && std::none_of(values.begin(), values.end(), is_it)) values.push_back(made->value);
    };
    add(makers.last);
    for (const MadePointer& made : makers.others) add(made);
    const bool matters = tensor.unreadable != nullptr || has_statistics(tensor);
    is_known = is_known && (!matters || (makers.is_complete && (has_value || makers.last == constant())));
  }
  return is_known;
}

MadePointer Tracker::tell_opaque(const OpaqueCall& opaque, const Tensor& tensor, uint32_t slot, const Label& label) {
  Call call;
  call.name = opaque.name;
  call.kind = OpKind::opaque;
  call.phase = opaque.place.phase;
  call.module = opaque.place.module;
  call.location = opaque.location;
  call.forward_id = opaque.forward_id;
  call.inputs = opaque.inputs;
  call.inputs_unknown = opaque.inputs_unknown;
  const LabelledOutput output{slot, &tensor, label, false};
  const std::vector<MadePointer> made = emit(call, {&output, 1});
  return made.empty() ? nullptr : made[0];
}

bool Tracker::is_of_function(const Tensor& tensor, ulpscope_aten_function& function) const {
  return adapter_.function_of != nullptr && adapter_.function_of(adapter_.context, &tensor, &function) != 0;
}

bool Tracker::adopt(const Tensor& tensor, const Makers& makers, const OpaqueCall& otherwise) {
  ulpscope_aten_function function{};
  if (!is_of_function(tensor, function)) return false;
  auto at = functions_.find(function.sequence);
  if (at != functions_.end() ? is_recorded(makers.last) && makers.last->order > at->second.began : is_recorded(makers.last))
    return false;
  if (at == functions_.end()) {
    at = functions_.emplace(function.sequence, otherwise).first;
    at->second.name = name(name_of_function(function.name));
  }
  OpaqueCall& call = at->second;
  const MadePointer made = tell_opaque(call, tensor, function.slot, {});
  if (made != nullptr && !call.has_node)
    nodes_.set(function.sequence, Node{made->value.op, call.place.module, {}, false, {}, false});
  call.has_node = true;
  return made != nullptr;
}

Makers Tracker::makers_of(const Tensor& tensor, int64_t task) {
  Makers makers = memory_.find(tensor);
  if (tensor.requires_grad == 0 || !state_.is_open || !has_values(tensor)) return makers;
  const bool is_recorded_here = is_recorded(makers.last);
  if (is_recorded_here && (makers.last->order > last_function_ || makers.last->role != Role::activation)) return makers;
  const std::optional<Place> place = here(task);
  if (place && adopt(tensor, makers, {.place = *place})) return memory_.find(tensor);
  return makers;
}

Tracker::OpaqueCall Tracker::writer_of(const Reading& reading, const Tensor& tensor, const MadePointer& made) {
  const Place& place = reading.place;
  OpaqueCall call;
  call.place = place;
  if (is_recorded(made) && made->returned_by != 0) {
    call.name = made->returned_by;
    call.place.module = made->module;
    call.forward_id = made->forward_id;
    return call;
  }
  if (place.phase == Phase::backward) {
    if (const Node* const forward = reading.op->node == -1 ? nullptr : nodes_.find(reading.op->node)) {
      call.place.module = forward->module;
      call.forward_id = forward->op;
    }
    const bool is_of_node = reading.op->node_name != nullptr && is_of_program(reading.op->node_name);
    call.name = is_of_node ? name(reading.op->node_name) : name(kUnrecordedMemory);
    return call;
  }
  ulpscope_aten_function function{};
  if (tensor.requires_grad != 0 && is_of_function(tensor, function)) {
    if (const auto at = functions_.find(function.sequence); at != functions_.end()) return at->second;
    call.name = name(name_of_function(function.name));
  } else if (const std::vector<int64_t>& running = running_[std::this_thread::get_id()]; !running.empty()) {
    if (const auto at = functions_.find(running.back()); at != functions_.end()) return at->second;
  } else if (is_in_compiled(*reading.op)) {
    call.name = name(kCompiledRegion);
  }
  if (call.name == 0) call.name = name(kUnrecordedMemory);
  if (place.phase == Phase::forward || place.phase == Phase::loss)
    call.location = location_of(place.phase, place.module, call.name);
  return call;
}

bool Tracker::tell_unseen(const Reading& reading) {
  bool is_told = false;
  const auto was_finite = [&](const MadePointer& made) {
    if (!is_recorded(made)) return true;
    uint8_t answer = 0;
    return made->step == state_.step && check(calls_.was_finite(recorder_, made->op, made->value.slot, &answer)) && answer != 0;
  };
  for (size_t i = 0; i < reading.reads.size(); ++i) {
    const Tensor& tensor = *reading.reads[i].tensor;
    Makers& makers = reading.makers[i];
    const bool is_overwritten = std::any_of(reading.outputs.begin(), reading.outputs.end(), [&](const LabelledOutput& each) {
      return each.is_written && each.tensor->storage == tensor.storage;
    });
    // Values on a device are known once the step ends.
    if (!has_values(tensor) || !tensor.is_on_host || is_overwritten || makers.last == constant()) continue;
    if (!was_finite(makers.last) || !std::all_of(makers.others.begin(), makers.others.end(), was_finite)) continue;
    const Nonfinite found = nonfinite_in(host_tensor(tensor, tensor.data));
    // Infinities alone in memory that no op wrote are a constant, as of a mask.
    const bool is_known = makers.is_complete && is_recorded(makers.last);
    if (!found.nan && !(is_known && found.infinity)) continue;
    OpaqueCall call = writer_of(reading, tensor, makers.last);
    if (is_recorded(makers.last)) {
      const auto is_it = [&](const ulpscope_value& each) { return is_same(each, makers.last->value); };
      if (std::none_of(call.inputs.begin(), call.inputs.end(), is_it)) call.inputs.push_back(makers.last->value);
    }
    const bool is_backward = call.place.phase == Phase::backward;
    const Label label = is_backward ? Label{Role::activation_gradient, 0, 0, scale_} : Label{};
    if (const MadePointer made = tell_opaque(call, tensor, 0, label)) {
      makers = {made, {}, true};
      is_told = true;
    }
  }
  return is_told;
}

// ---- what modules and nodes return

bool Tracker::is_opaque(std::span<const Tensor> outputs) const {
  return state_.is_open && state_.paused == 0 &&
         std::any_of(outputs.begin(), outputs.end(), [&](const Tensor& output) { return has_no_maker(output); });
}

void Tracker::opaque(Name module, Name class_name, int64_t task, std::span<const Tensor> inputs, std::span<const Tensor> outputs,
                     const int64_t* nodes, const uint32_t* slots) {
  const std::optional<Place> place = here(task);
  if (!place) return;
  OpaqueCall call{.name = class_name, .place = {place->phase, module}};
  call.inputs_unknown = !values_of(inputs, call.inputs);
  if (place->phase == Phase::forward) call.location = location_of(Phase::forward, module, class_name);
  std::vector<LabelledOutput> told;
  std::vector<size_t> told_outputs;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const bool is_told = std::any_of(told.begin(), told.end(), [&](const LabelledOutput& each) { return each.slot == slots[i]; });
    if (!has_no_maker(outputs[i]) || is_told || adopt(outputs[i], memory_.find(outputs[i]), call)) continue;
    told.push_back({slots[i], &outputs[i], {}, false});
    told_outputs.push_back(i);
  }
  if (told.empty()) return;
  Call described;
  described.name = call.name;
  described.kind = OpKind::opaque;
  described.phase = place->phase;
  described.module = module;
  described.location = call.location;
  described.inputs = call.inputs;
  described.inputs_unknown = call.inputs_unknown;
  const std::vector<MadePointer> made = emit(described, told);
  if (made.empty()) return;
  for (const size_t i : told_outputs)
    if (nodes[i] != -1) nodes_.add(nodes[i], Node{made[0]->value.op, module, {}, false, {}, false});
}

void Tracker::handed_on_by_program(int64_t node, const char* name_of_node, std::span<const Tensor> gradients,
                                   std::span<const Tensor> arrived) {
  if (!state_.is_open || state_.paused > 0) return;
  // Memory that arrived may have been written over.
  const auto is_own = [&](const Tensor& gradient) {
    if (!has_values(gradient)) return false;
    if (has_no_maker(gradient)) return true;
    const MadePointer made = memory_.last(gradient);
    const auto is_it = [&](const Tensor& each) { return each.is_present && each.storage == gradient.storage; };
    return is_recorded(made) && made->node != node && std::any_of(arrived.begin(), arrived.end(), is_it);
  };
  const Node* const forward = nodes_.find(node);
  const Name named = name(name_of_node);
  if (std::any_of(gradients.begin(), gradients.end(), is_own)) {
    std::vector<ulpscope_value> values;
    Call call;
    call.inputs_unknown = !values_of(arrived, values);
    call.inputs = values;
    call.name = named;
    call.kind = OpKind::opaque;
    call.phase = Phase::backward;
    if (forward != nullptr) {
      call.module = forward->module;
      call.forward_id = forward->op;
    }
    std::vector<LabelledOutput> told;
    for (size_t i = 0; i < gradients.size(); ++i) {
      const auto is_it = [&](const LabelledOutput& each) { return each.tensor->data == gradients[i].data; };
      if (is_own(gradients[i]) && std::none_of(told.begin(), told.end(), is_it))
        told.push_back({static_cast<uint32_t>(i), &gradients[i], {Role::activation_gradient, 0, 0, scale_}, false});
    }
    for (const MadePointer& made : emit(call, told)) made->node = node;
  }
  for (const Tensor& gradient : gradients) {
    const MadePointer made = has_values(gradient) ? memory_.last(gradient) : nullptr;
    if (!is_recorded(made) || made->node != node) continue;
    made->returned_by = named;
    made->forward_id = forward == nullptr ? 0 : forward->op;
  }
}

// ---- what the program hands in

void Tracker::observe(Name named, double scale, int64_t task, const Tensor& tensor) {
  const std::optional<Place> place = state_.paused > 0 ? std::nullopt : here(task);
  if (!place) return;
  if (tensor.unreadable != nullptr) {
    ++not_read_[tensor.unreadable];
    return;
  }
  const Makers makers = makers_of(tensor, task);
  OpaqueCall call{.name = named, .place = *place};
  call.inputs_unknown = !values_of({&tensor, 1}, call.inputs);
  if (place->phase == Phase::forward || place->phase == Phase::loss)
    call.location = location_of(place->phase, place->module, named);
  // Values that are read later are those handed in; weights and gradients stay what they are.
  const bool is_taken_over = !is_recorded(makers.last) || makers.last->role == Role::activation;
  Tensor read = tensor;
  if (!is_taken_over) read.storage = 0;  // memory that no op reads
  const Role role = place->phase == Phase::backward ? Role::activation_gradient : Role::activation;
  tell_opaque(call, read, 0, {role, 0, 0, scale});
}

}  // namespace ulpscope::aten
