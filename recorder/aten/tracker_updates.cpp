#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "ulpscope/recorder/aten/tracker.h"
#include "ulpscope/recorder/aten/update_rule.h"

namespace ulpscope::aten {
namespace {

// The values, divided by a number.
void divide(const HostTensor& tensor, double divisor, KeptTensor& quotient) {
  const TensorView view = folded(tensor);
  quotient.dtype = DType::f64;
  quotient.shape.assign(tensor.shape.begin(), tensor.shape.end());
  const auto elements = static_cast<size_t>(view.size());
  auto* const values = reinterpret_cast<double*>(quotient.room.of(elements * sizeof(double)));
  read_values(view, 0, view.size(), values);
  for (size_t i = 0; i < elements; ++i) values[i] /= divisor;
}

// Strides of elements that lie in the logical order.
std::vector<int64_t> logical_strides(const Tensor& tensor) {
  std::vector<int64_t> strides(static_cast<size_t>(tensor.rank));
  int64_t stride = 1;
  for (size_t i = strides.size(); i-- > 0; stride *= std::max<int64_t>(tensor.shape[i], 1)) strides[i] = stride;
  return strides;
}

bool is_counted(const Tensor& tensor) { return tensor.is_present && is_readable(tensor); }

bool says_steps(const Tensor* steps) {
  return steps != nullptr && steps->is_present && steps->unreadable == nullptr && count_of_elements(*steps) == 1;
}

}  // namespace

// ---- updates

// Tensors that the optimizer keeps are outputs of its update where they have the parameter's shape.
bool Tracker::is_state(const Updated& left, size_t state) {
  const Tensor& tensor = left.states[state];
  return &tensor != left.steps && is_counted(tensor) && have_one_shape(tensor, left.weight);
}

void Tracker::keep(std::span<const Tensor> pairs, bool changes_gradients) {
  for (auto& [handle, each] : kept_) each.is_there = false;
  const auto copy = [&](const Tensor& tensor, KeptTensor& to, std::optional<DeviceTensor>& on_device) {
    on_device.reset();
    if (tensor.is_on_host) {
      to.keep(tensor, tensor.data);
      return true;
    }
    Tensor made{};
    if (measures_.is_capturing(tensor) || adapter_.keep(adapter_.context, &tensor, &made) == 0) return false;
    on_device.emplace(adapter_, made);
    return true;
  };
  for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
    const Tensor &parameter = pairs[i], &gradient = pairs[i + 1];
    settle(parameter);
    if (gradient.is_present) settle(gradient);
    if (!is_counted(parameter) || (gradient.is_present && !is_counted(gradient))) continue;
    Kept& kept = kept_[parameter.handle];
    kept.has_gradient = changes_gradients && gradient.is_present;
    kept.is_there = copy(parameter, kept.weight, kept.weight_on_device) &&
                    (!kept.has_gradient || copy(gradient, kept.gradient, kept.gradient_on_device));
  }
}

void Tracker::updated(const ulpscope_aten_update& update, bool is_skipped, double& before, double& after) {
  const std::span names(update.state_names, update.states_count);
  const auto steps = static_cast<size_t>(std::find(names.begin(), names.end(), name("step")) - names.begin());
  for (size_t i = 0; i < update.count; ++i) {
    const Tensor* const tensors = update.tensors + i * (2 + names.size());
    const std::span states(tensors + 2, names.size());
    const Updated of_parameter{tensors[0], tensors[1], steps < names.size() ? &states[steps] : nullptr, states};
    const auto at = kept_.find(of_parameter.weight.handle);
    if (at != kept_.end() && at->second.is_there) {
      updated(update, of_parameter, at->second, is_skipped, before, after);
      at->second.trim();
    } else if (!is_skipped && of_parameter.gradient.is_present && of_parameter.weight.unreadable == nullptr) {
      forget(of_parameter.weight);  // as with a sparse gradient
    }
  }
}

void Tracker::updated(const ulpscope_aten_update& update, const Updated& left, const Kept& copies, bool is_skipped, double& before,
                      double& after) {
  const Tensor& weight = left.weight;
  if (!copies.has_gradient && !is_counted(left.gradient)) return;
  const double divisor = update.factor * update.factor;
  const Tensor& gradient = copies.gradient_on_device ? copies.gradient_on_device->tensor() : left.gradient;
  const Number square = copies.has_gradient && !copies.gradient_on_device
                            ? Number{square_of_norm_of(copies.gradient.view()) / divisor}
                            : norm_of(gradient, divisor);
  const auto unclipped = unclipped_.find(parameter_of(weight.handle));
  const Number unclipped_square = unclipped == unclipped_.end() ? square : unclipped->second;
  if (unclipped != unclipped_.end()) unclipped_.erase(unclipped);
  if (square.is_known() && unclipped_square.is_known()) {
    after += square.value;
    before += unclipped_square.value;
  } else {
    norms_.push_back({unclipped_square, square});
  }
  if (is_skipped || weight.unreadable != nullptr || !has_statistics(weight)) return;
  if (copies.weight_on_device)
    updated_on_device(update, left, copies);
  else
    updated_on_host(update, left, copies);
}

void Tracker::updated_on_host(const ulpscope_aten_update& update, const Updated& left, const Kept& copies) {
  const Tensor& weight = left.weight;
  HostTensor gradient = copies.has_gradient ? copies.gradient.view() : host_tensor(left.gradient, left.gradient.data);
  if (update.factor != 1) {
    divide(gradient, update.factor, unscaled_);
    gradient = unscaled_.view();
  }
  std::vector<OptimizerState> states;
  for (size_t i = 0; i < left.states.size(); ++i)
    if (is_state(left, i)) states.push_back({text(update.state_names[i]), host_tensor(left.states[i], left.states[i].data)});
  const HostTensor before_step = copies.weight.view();
  const double steps = says_steps(left.steps) ? number_in(*left.steps).value : 0;
  const std::optional<DType> asked = asked_update(update, steps, before_step, &gradient, states, asked_);
  const std::vector<int64_t> strides = logical_strides(weight);
  Tensor asked_tensor = weight;
  if (asked) {
    asked_tensor.data = asked_.data();
    asked_tensor.strides = strides.data();
    asked_tensor.type = static_cast<int32_t>(*asked == DType::f64 ? ScalarType::f64 : ScalarType::f32);
    asked_tensor.storage = 0;  // memory of ours, which no op reads
  }
  const std::vector<MadePointer> made = emit_update(update, left, asked ? &asked_tensor : nullptr);
  if (made.empty() || made[0]->value.slot != 0) return;
  const ulpscope_tensor told_before = told_tensor(before_step), told_after = told_tensor(weight, weight.data),
                        told_gradient = told_tensor(gradient);
  ulpscope_tensor told_update{};
  if (asked) told_update = told_tensor(asked_tensor, asked_tensor.data);
  ulpscope_update counts{};
  counts.size = sizeof counts;
  counts.learning_rate = update.learning_rate;
  counts.before = &told_before;
  counts.after = &told_after;
  counts.gradient = &told_gradient;
  counts.update = asked ? &told_update : nullptr;
  check(calls_.set_update(recorder_, made[0]->op, 0, &counts));
  asked_.trim();
  unscaled_.room.trim();
}

void Tracker::updated_on_device(const ulpscope_aten_update& update, const Updated& left, const Kept& copies) {
  const Tensor& before = copies.weight_on_device->tensor();
  const Tensor& gradient = copies.gradient_on_device ? copies.gradient_on_device->tensor() : left.gradient;
  std::vector<std::string_view> names;
  for (size_t i = 0; i < left.states.size(); ++i)
    names.push_back(is_state(left, i) ? std::string_view(text(update.state_names[i])) : std::string_view());
  std::optional<DeviceTensor> asked;
  if (const auto states = states_of_rule(update, names, says_steps(left.steps))) {
    ulpscope_aten_asked rule{};
    rule.rule = &update;
    rule.weight = &before;
    rule.gradient = &gradient;
    if (states->first) rule.first = &left.states[*states->first];
    if (states->second) rule.second = &left.states[*states->second];
    if (says_steps(left.steps) && left.steps->is_on_host)
      rule.count = number_in(*left.steps).value;
    else if (update.rule == ULPSCOPE_ATEN_ADAM)
      rule.steps = left.steps;
    Tensor made{};
    if (adapter_.ask(adapter_.context, &rule, &made) != 0) asked.emplace(adapter_, made);
  }
  Tensor asked_tensor{};
  if (asked) asked_tensor = asked->tensor();
  asked_tensor.storage = 0;
  const std::vector<MadePointer> made = emit_update(update, left, asked ? &asked_tensor : nullptr);
  if (made.empty() || made[0]->value.slot != 0) return;
  measures_.take_update(made[0]->op, 0, update.learning_rate, before, left.weight, &gradient, update.factor,
                        asked ? &asked_tensor : nullptr);
}

std::vector<MadePointer> Tracker::emit_update(const ulpscope_aten_update& update, const Updated& left, const Tensor* asked) {
  const Tensor& weight = left.weight;
  const Name parameter = parameter_of(weight.handle);
  std::vector<ulpscope_value> inputs;
  inputs.reserve(2 + left.states.size());
  bool unknown = false;
  const auto read = [&](const Tensor& tensor, bool must_be_known) {
    const Makers found = memory_.find(tensor);
    if (is_recorded(found.last))
      inputs.push_back(found.last->value);
    else if (must_be_known && !found.is_complete)
      unknown = true;
  };
  read(weight, true);
  if (is_counted(left.gradient)) read(left.gradient, true);
  std::vector<LabelledOutput> outputs;
  outputs.reserve(2 + left.states.size());
  outputs.push_back({0, &weight, {Role::weight, parameter, 0, 1}, true});
  for (size_t i = 0; i < left.states.size(); ++i) {
    if (!is_state(left, i)) continue;
    read(left.states[i], !is_counted(left.gradient) && outputs.size() == 1);
    outputs.push_back({static_cast<uint32_t>(outputs.size()),
                       &left.states[i],
                       {Role::optimizer_state, parameter, update.state_names[i], 1},
                       true});
  }
  if (asked != nullptr) outputs.push_back({static_cast<uint32_t>(outputs.size()), asked, {Role::update, parameter, 0, 1}, false});
  Call call;
  call.function = update.rule == ULPSCOPE_ATEN_SGD    ? OpFunction::sgd_update
                  : update.rule == ULPSCOPE_ATEN_ADAM ? OpFunction::adam_update
                                                      : OpFunction::assign;
  call.name = update.rule == ULPSCOPE_ATEN_UNKNOWN_RULE ? update.optimizer : name(name_of(call.function));
  call.phase = Phase::optimizer;
  call.module = module_of(parameter);
  call.parameter = parameter;
  if (update.rule == ULPSCOPE_ATEN_ADAM)
    call.attributes = name(fmt::format("beta1={:g} beta2={:g} eps={:g} weight_decay={:g} decoupled={:d}{}", update.first_decay,
                                       update.second_decay, update.epsilon, update.weight_decay, int{update.decoupled != 0},
                                       update.is_stepwise ? " stepwise=1" : ""));
  call.inputs = inputs;
  call.inputs_unknown = unknown;
  return emit(call, outputs);
}

}  // namespace ulpscope::aten
