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

}  // namespace

// ---- updates

void Tracker::keep(std::span<const Tensor> pairs, bool changes_gradients) {
  for (auto& [handle, each] : kept_) each.is_there = false;
  for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
    const Tensor &parameter = pairs[i], &gradient = pairs[i + 1];
    settle(parameter);
    if (gradient.is_present) settle(gradient);
    const auto is_kept_here = [](const Tensor& tensor) { return tensor.unreadable == nullptr && has_statistics(tensor); };
    if (!is_kept_here(parameter) || (gradient.is_present && !is_kept_here(gradient))) continue;
    const auto copy = [&](Tensor tensor, KeptTensor& to) {
      const void* const data = on_host(tensor);
      std::vector<int64_t> strides;
      if (!tensor.is_on_host) {  // the copy lies in the logical order
        strides = logical_strides(tensor);
        tensor.strides = strides.data();
      }
      to.keep(tensor, data);
    };
    Kept& kept = kept_[parameter.handle];
    kept.is_there = true;
    kept.has_gradient = changes_gradients && gradient.is_present;
    copy(parameter, kept.weight);
    if (kept.has_gradient) copy(gradient, kept.gradient);
  }
}

void Tracker::updated(const ulpscope_aten_update& update, bool is_skipped, double& before, double& after) {
  const size_t each = 3 + update.states_count;
  for (size_t i = 0; i < update.count; ++i) {
    const Tensor* const tensors = update.tensors + i * each;
    const Updated of_parameter{tensors[0], tensors[1], tensors[2], {tensors + 3, update.states_count}};
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
  const Tensor &weight = left.weight, &given = left.gradient;
  const bool has_gradient = given.is_present && given.unreadable == nullptr && has_statistics(given);
  if (!copies.has_gradient && !has_gradient) return;
  HostTensor gradient = copies.has_gradient ? copies.gradient.view() : host_tensor(given, on_host(given));
  const Name parameter = parameter_of(weight.handle);
  const double square = square_of_norm_of(gradient) / (update.factor * update.factor);
  after += square;
  const auto unclipped = unclipped_.find(parameter);
  before += unclipped == unclipped_.end() ? square : unclipped->second;
  if (unclipped != unclipped_.end()) unclipped_.erase(unclipped);
  if (is_skipped || weight.unreadable != nullptr || !has_statistics(weight)) return;

  if (update.factor != 1) {
    divide(gradient, update.factor, unscaled_);
    gradient = unscaled_.view();
  }
  std::vector<OptimizerState> states;
  const auto is_state = [&](const Tensor& state) {
    return state.is_present && state.unreadable == nullptr && has_statistics(state) && have_one_shape(state, weight);
  };
  for (size_t i = 0; i < left.states.size(); ++i)
    if (is_state(left.states[i]))
      states.push_back({text(update.state_names[i]), host_tensor(left.states[i], on_host(left.states[i]))});
  const HostTensor before_step = copies.weight.view();
  const bool says_steps = left.steps.is_present && left.steps.unreadable == nullptr && count_of_elements(left.steps) == 1;
  const double steps = says_steps ? number_in(left.steps) : 0;
  const std::optional<DType> asked = asked_update(update, steps, before_step, &gradient, states, asked_);

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
  if (has_gradient) read(given, true);
  std::vector<LabelledOutput> outputs{{0, &weight, {Role::weight, parameter, 0, 1}, true}};
  for (size_t i = 0; i < left.states.size(); ++i) {
    if (!is_state(left.states[i])) continue;
    read(left.states[i], !has_gradient && i == 0);
    outputs.push_back({static_cast<uint32_t>(outputs.size()),
                       &left.states[i],
                       {Role::optimizer_state, parameter, update.state_names[i], 1},
                       true});
  }
  const std::vector<int64_t> strides = logical_strides(weight);
  Tensor asked_tensor = weight;
  if (asked) {
    asked_tensor.data = asked_.data();
    asked_tensor.strides = strides.data();
    asked_tensor.type = static_cast<int32_t>(*asked == DType::f64 ? ScalarType::f64 : ScalarType::f32);
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
  if (made.empty() || made[0]->value.slot != 0) return;
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
  asked_.trim();
  unscaled_.room.trim();
}

}  // namespace ulpscope::aten
