#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "ulpscope/recorder/aten/tracker.h"
#include "ulpscope/recorder/aten/update_rule.h"

namespace ulpscope::aten {
namespace {

// The values, divided by a number.
KeptTensor divided(const HostTensor& tensor, double divisor) {
  const TensorView view = folded(tensor);
  KeptTensor quotient;
  quotient.dtype = DType::f64;
  quotient.shape.assign(tensor.shape.begin(), tensor.shape.end());
  std::vector<double> values(static_cast<size_t>(view.size()));
  read_values(view, 0, view.size(), values.data());
  for (double& value : values) value /= divisor;
  quotient.bytes.resize(values.size() * sizeof(double));
  std::memcpy(quotient.bytes.data(), values.data(), quotient.bytes.size());
  return quotient;
}

// Strides of elements that lie in the logical order.
std::vector<int64_t> logical_strides(const Tensor& tensor) {
  std::vector<int64_t> strides(static_cast<size_t>(tensor.rank));
  int64_t stride = 1;
  for (size_t i = strides.size(); i-- > 0; stride *= std::max<int64_t>(tensor.shape[i], 1)) strides[i] = stride;
  return strides;
}

}  // namespace

// ---- updates

void Tracker::keep(const Tensor& parameter, const Tensor* gradient, bool with_gradient) {
  const auto is_kept_here = [](const Tensor& tensor) { return tensor.unreadable == nullptr && has_statistics(tensor); };
  if (!is_kept_here(parameter) || (gradient != nullptr && !is_kept_here(*gradient)) || (gradient == nullptr && with_gradient))
    return;
  const auto copy = [&](Tensor tensor) {
    const void* const data = on_host(tensor);
    std::vector<int64_t> strides;
    if (!tensor.is_on_host) {  // the copy lies in the logical order
      strides = logical_strides(tensor);
      tensor.strides = strides.data();
    }
    return kept(tensor, data);
  };
  Kept copies{copy(parameter), {}};
  if (with_gradient) copies.gradient = copy(*gradient);
  kept_.insert_or_assign(parameter.handle, std::move(copies));
}

bool Tracker::updated(const ulpscope_aten_update& update, bool is_skipped, double& before, double& after) {
  const Tensor& weight = *update.parameter;
  const auto at = kept_.find(weight.handle);
  if (at == kept_.end()) {  // as with a sparse gradient
    const bool is_changed =
        !is_skipped && update.gradient != nullptr && update.gradient->is_present && weight.unreadable == nullptr;
    if (is_changed) forget(weight);
    return false;
  }
  const Kept copies = std::move(at->second);
  kept_.erase(at);
  const bool has_gradient = update.gradient != nullptr && update.gradient->is_present && update.gradient->unreadable == nullptr &&
                            has_statistics(*update.gradient);
  if (!copies.gradient && !has_gradient) return false;
  HostTensor gradient = copies.gradient ? copies.gradient->view() : host_tensor(*update.gradient, on_host(*update.gradient));
  const Name parameter = parameter_of(weight.handle);
  const double square = square_of_norm_of(gradient) / (update.factor * update.factor);
  after += square;
  const auto unclipped = unclipped_.find(parameter);
  before += unclipped == unclipped_.end() ? square : unclipped->second;
  if (unclipped != unclipped_.end()) unclipped_.erase(unclipped);
  if (is_skipped || weight.unreadable != nullptr || !has_statistics(weight)) return true;

  KeptTensor unscaled;
  if (update.factor != 1) {
    unscaled = divided(gradient, update.factor);
    gradient = unscaled.view();
  }
  std::vector<OptimizerState> states;
  const auto is_state = [&](const Tensor& state) {
    return state.is_present && state.unreadable == nullptr && has_statistics(state) && have_one_shape(state, weight);
  };
  for (uint32_t i = 0; i < update.states_count; ++i)
    if (is_state(update.states[i]))
      states.push_back({text(update.state_names[i]), host_tensor(update.states[i], on_host(update.states[i]))});
  const HostTensor before_step = copies.weight.view();
  const bool says_steps = update.steps != nullptr && update.steps->is_present && update.steps->unreadable == nullptr;
  const double steps = says_steps && count_of_elements(*update.steps) == 1 ? number_in(*update.steps) : 0;
  const std::optional<AskedUpdate> asked = asked_update(update, steps, before_step, &gradient, states);

  std::vector<ulpscope_value> inputs;
  bool unknown = false;
  const auto read = [&](const Tensor& tensor, bool must_be_known) {
    const Makers found = memory_.find(tensor);
    if (is_recorded(found.last))
      inputs.push_back(found.last->value);
    else if (must_be_known && !found.is_complete)
      unknown = true;
  };
  read(weight, true);
  if (has_gradient) read(*update.gradient, true);
  std::vector<LabelledOutput> outputs{{0, &weight, {Role::weight, parameter, 0, 1}, true}};
  for (uint32_t i = 0; i < update.states_count; ++i) {
    if (!is_state(update.states[i])) continue;
    read(update.states[i], !has_gradient && i == 0);
    outputs.push_back({static_cast<uint32_t>(outputs.size()),
                       &update.states[i],
                       {Role::optimizer_state, parameter, update.state_names[i], 1},
                       true});
  }
  const std::vector<int64_t> strides = logical_strides(weight);
  Tensor asked_tensor = weight;
  if (asked) {
    asked_tensor.data = asked->data();
    asked_tensor.strides = strides.data();
    asked_tensor.type = static_cast<int32_t>(asked->dtype == DType::f64 ? ScalarType::f64 : ScalarType::f32);
    asked_tensor.storage = 0;  // memory of ours, which no op reads
    asked_tensor.is_on_host = 1;
    outputs.push_back({static_cast<uint32_t>(outputs.size()), &asked_tensor, {Role::update, parameter, 0, 1}, false});
  }
  Call call;
  call.function = update.rule == ULPSCOPE_ATEN_SGD    ? OpFunction::sgd_update
                  : update.rule == ULPSCOPE_ATEN_ADAM ? OpFunction::adam_update
                                                      : OpFunction::assign;
  call.name = update.rule == ULPSCOPE_ATEN_UNKNOWN_RULE ? update.optimizer : name(name_of(call.function));
  call.phase = Phase::optimizer;
  call.module = module_of(parameter);
  call.parameter = parameter;
  if (update.rule == ULPSCOPE_ATEN_ADAM)
    call.attributes = name(fmt::format("beta1={:g} beta2={:g} eps={:g}{}", update.first_decay, update.second_decay, update.epsilon,
                                       update.is_stepwise ? " stepwise=1" : ""));
  call.inputs = inputs;
  call.inputs_unknown = unknown;
  const std::vector<MadePointer> made = emit(call, outputs);
  if (made.empty() || made[0]->value.slot != 0) return true;
  const ulpscope_tensor told_before = told_tensor(before_step), told_after = told_tensor(weight, on_host(weight)),
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
  return true;
}

}  // namespace ulpscope::aten
