#include "ulpscope/core/observe/recording.h"

#include <algorithm>

#include "ulpscope/kernels/output_rounding.h"
#include "ulpscope/recorder/running_sum.h"

namespace ulpscope {

namespace {

// Whether the op adds a term to a sum of many: the gradients of micro-batches, and those of a parameter that is used several times.
bool adds_to_sum(const OpEvent& event) {
  if (event.op.function == OpFunction::accumulate) return true;
  return event.op.function == OpFunction::add && event.phase == Phase::backward && event.labels[0].parameter != nullptr;
}

bool is_in_forward(const OpEvent& event) { return event.phase == Phase::forward || event.phase == Phase::loss; }

}  // namespace

std::vector<ValueMeasure> RecordingObserver::loss_of_values(const OpEvent& event) const {
  const OpFunction function = event.op.function;
  if (function != OpFunction::add && function != OpFunction::cast) return {};
  const TensorView& output = event.call.outputs[0];
  const std::span<const TensorView> inputs = event.call.inputs;
  const std::span<const int64_t> shape = event.outputs[0].shape();
  const bool have_one_shape = std::all_of(event.inputs.begin(), event.inputs.end(),
                                          [&](const Tensor& input) { return std::ranges::equal(input.shape(), shape); });
  if (!have_one_shape || !is_float(output.dtype)) return {};
  if (function == OpFunction::add)
    return measure_addition(sampled_values(inputs[0]), sampled_values(inputs[1]), 1, sampled_values(output));
  if (!may_round(inputs[0].dtype, output.dtype)) return {};
  const bool is_data = data_ops_.contains(event.inputs[0].body()->value.op) && shape.size() > 1;
  return measure_cast(inputs[0], output, is_data ? shape[0] : 0);
}

void RecordingObserver::before(const OpEvent& event, std::span<OutputRecord* const> records) {
  SmallVector<OutputDescription, 5> outputs;
  for (size_t i = 0; i < event.outputs.size(); ++i) {
    const Tensor& output = event.outputs[i];
    const OutputLabel& label = event.labels[i];
    const Rounding rounding = output_rounding(event.call, static_cast<int>(i), output.dtype());
    outputs.push_back({output.view(), label.role, label.parameter ? std::string_view(*label.parameter) : std::string_view(),
                       output.body()->loss_scale, label.stays_wide, label.name, label.gradient_of, label.gradient_input,
                       rounding.mode, rounding.subnormals == SubnormalResults::flush});
  }
  SmallVector<ValueKey, 8> inputs;
  for (const Tensor& input : event.inputs) inputs.push_back(input.body()->value);
  OpDescription description;
  description.name = event.op.name;
  description.module = event.module;
  description.phase = event.phase;
  description.id = event.id;
  description.forward_id = event.forward_id;
  description.function = event.op.function;
  description.kind = kind_of(event.op.function);
  description.micro_batch = event.micro_batch;
  description.loss_index = event.loss_index;
  description.attributes = &event.attributes;
  description.product = event.product();
  description.flushes_inputs = std::any_of(event.call.inputs.begin(), event.call.inputs.end(),
                                           [&](const TensorView& input) { return flushes_input(event.call, input.dtype); });
  description.flushes_narrow_products = flushes_narrow_products(event.call);
  description.inputs = inputs;
  description.input_views = event.call.inputs;
  description.outputs = outputs;
  recorder_.before(description, records, event.input_fingerprints);
  sum_.reset();
  if (capturing_ == Capturing::later || !adds_to_sum(event) || !loses_terms(event.outputs[0].dtype())) return;
  if (recorder_.wanted(event.module, event.op.name, event.phase) == StatisticsLevel::none) return;
  backend_.complete();
  sum_ = Sum{summed_values(event.call.inputs[0]), summed_values(event.call.inputs[1])};
}

void RecordingObserver::after(const OpEvent& event) {
  if (capturing_ == Capturing::later) {
    if (event.phase == Phase::optimizer) log_.add(event);
    return;
  }
  log_.add(event);
  backend_.complete();
  if (sum_) recorder_.add_sum(0, count_sum(sum_->before, sum_->addend, 1, summed_values(event.outputs[0].view())));
  // The host does not read a device's memory.
  const bool is_measured = !backend_.runs_behind() && is_in_forward(event) && measures_value_loss(recorder_.step()) &&
                           recorder_.wanted(event.module, event.op.name, event.phase) != StatisticsLevel::none;
  if (event.op.function == OpFunction::source && event.labels[0].role == Role::input) data_ops_.insert(event.id);
  if (is_measured)
    for (const ValueMeasure& each : loss_of_values(event)) recorder_.add_measure({event.id, 0}, each.name, each.value);
  if (const auto slot = recorder_.after()) recorder_.add_capture(*slot, log_.capture(backend_, *slot));
}

void RecordingObserver::find_origins(std::vector<Origin>& origins) {
  for (const Origin& origin : recorder_.find_origins()) {
    if (origin.phase == Phase::optimizer) {
      recorder_.add_capture(origin, log_.capture_earlier(backend_, origin.op, origin.slot));
    } else {
      origins.push_back(origin);
    }
  }
  log_.begin_pass(true);
}

bool CaptureObserver::wants(uint32_t micro_batch) const {
  return std::any_of(origins_.begin(), origins_.end(), [&](const Origin& origin) { return origin.micro_batch == micro_batch; });
}

void CaptureObserver::after(const OpEvent& event) {
  if (!wants(event.micro_batch)) return;
  log_.add(event);
  const auto is_here = [&](const Origin& origin) {
    return origin.op == event.id && origin.micro_batch == event.micro_batch && origin.loss_index == event.loss_index;
  };
  const auto found = std::find_if(origins_.begin(), origins_.end(), is_here);
  if (found == origins_.end()) return;
  recorder_.add_capture(*found, log_.capture(backend_, found->slot));
  origins_.erase(found);
}

}  // namespace ulpscope
