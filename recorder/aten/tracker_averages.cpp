#include <algorithm>
#include <cmath>
#include <limits>
#include <thread>

#include "ulpscope/recorder/aten/tracker.h"
#include "ulpscope/recorder/aten/update_rule.h"
#include "ulpscope/recorder/running_sum.h"

namespace ulpscope::aten {

// ---- running averages of weights that the program keeps beside its optimizer

namespace {

// The addition as a rule of torch.optim: SGD's d is -lr * (g + decay * w).
ulpscope_aten_update rule_of(double part, bool is_towards) {
  ulpscope_aten_update rule{};
  rule.rule = ULPSCOPE_ATEN_SGD;
  rule.learning_rate = -part;
  rule.weight_decay = is_towards ? -1 : 0;
  rule.factor = 1;
  return rule;
}

}  // namespace

void Tracker::keep_averages(const Schema& schema, const ulpscope_aten_op& op, const Bound& bound) {
  additions_.clear();
  const bool is_towards = schema.base() == "lerp";
  if (!schema.writes() || (!is_towards && schema.base() != "add")) return;
  if (!state_.is_open || state_.optimizing > 0 || op.task != -1 || !stack().empty()) return;
  const std::optional<double> part = schema.number(bound, is_towards ? "weight" : "alpha");
  const std::optional<size_t> self = schema.find("self");
  if (!part || !(*part > 0 && *part < 1) || !self || !schema.parameters()[*self].is_written) return;
  for (const char* const other : {"other", "end", "tensors1"}) {
    const std::optional<size_t> weights = schema.find(other);
    if (!weights) continue;
    std::vector<const Tensor*> lists[2];
    bound.visit(*self, [&](const Tensor& tensor) { lists[0].push_back(&tensor); });
    bound.visit(*weights, [&](const Tensor& tensor) { lists[1].push_back(&tensor); });
    if (lists[0].size() != lists[1].size()) return;
    for (size_t i = 0; i < lists[0].size(); ++i) keep_average(*lists[0][i], *lists[1][i], *part, is_towards);
  }
}

void Tracker::keep_average(const Tensor& average, const Tensor& weights, double part, bool is_towards) {
  if (!is_readable(average) || !is_readable(weights) || !loses_terms(*dtype_of(average)) || !have_one_shape(average, weights))
    return;
  const MadePointer of = memory_.last(weights);
  if (!is_recorded(of) || of->parameter == 0 || (of->role != Role::weight && of->role != Role::weight_cast)) return;
  if (measures_.is_capturing(average)) return;
  const MadePointer before = memory_.last(average);
  if (is_recorded(before)) {
    // A parameter of the model may be the average of another.
    const bool is_known = before->role == Role::buffer && before->parameter == of->parameter;
    if (!is_known && !(before->role == Role::weight && before->parameter != of->parameter)) return;
  } else {
    Call source;
    source.name = name("average");
    source.phase = Phase::data;
    source.function = OpFunction::source;
    source.module = module_of(of->parameter);
    source.parameter = of->parameter;
    const LabelledOutput output{0, &average, {Role::buffer, of->parameter, source.name, 1}, false};
    if (emit(source, {&output, 1}).empty()) return;
  }
  Addition addition{.thread = std::this_thread::get_id(), .data = average.data, .part = part, .is_towards = is_towards};
  if (average.is_on_host) {
    addition.average.keep(average, average.data);
  } else {
    Tensor copy{};
    if (adapter_.keep(adapter_.context, &average, &copy) == 0) return;
    addition.average_on_device.emplace(adapter_, copy);
  }
  additions_.push_back(std::move(addition));
}

void Tracker::added_to_average(const Tensor& average, const Tensor& weights, const Made& made) {
  const auto at = std::find_if(additions_.begin(), additions_.end(), [&](const Addition& each) {
    return each.data == average.data && each.thread == std::this_thread::get_id();
  });
  if (at == additions_.end()) return;
  constexpr double kNoRate = std::numeric_limits<double>::quiet_NaN();
  const ulpscope_aten_update rule = rule_of(at->part, at->is_towards);
  if (at->average_on_device) {
    ulpscope_aten_asked asked{};
    asked.rule = &rule;
    asked.weight = &at->average_on_device->tensor();
    asked.gradient = &weights;
    Tensor wanted{};
    if (adapter_.ask(adapter_.context, &asked, &wanted) == 0) return;
    const DeviceTensor kept(adapter_, wanted);
    measures_.take_update(made.op, made.value.slot, kNoRate, *asked.weight, average, nullptr, 1, &kept.tensor());
    return;
  }
  const HostTensor before = at->average.view(), added = host_tensor(weights, weights.data);
  const std::optional<DType> type = asked_update(rule, 0, before, &added, {}, asked_);
  if (!type) return;
  const ulpscope_tensor told_before = told_tensor(before), told_after = told_tensor(average, average.data),
                        told_asked = told_tensor(HostTensor{asked_.data(), *type, before.shape, {}});
  ulpscope_update counts{};
  counts.size = sizeof counts;
  counts.learning_rate = kNoRate;
  counts.before = &told_before;
  counts.after = &told_after;
  counts.update = &told_asked;
  check(calls_.set_update(recorder_, made.op, made.value.slot, &counts));
  asked_.trim();
}

}  // namespace ulpscope::aten
