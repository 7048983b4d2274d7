#include <algorithm>

#include "ulpscope/recorder/aten/tracker.h"

namespace ulpscope::aten {

// ---- collective ops between processes

// A collective has not written when it returns, but once the program has waited for it. Whoever reads that memory has waited, so
// that the op is told then: before an op writes there, or after one read its values.

void Tracker::begin_collective(const Schema& schema, const ulpscope_aten_op& op, const Bound& bound) {
  std::vector<Tensor> reads;
  std::vector<const Tensor*> writes;
  const auto add_written = [&](const Tensor& tensor) {  // results are what was written, once more
    if (std::none_of(writes.begin(), writes.end(), [&](const Tensor* each) { return each->data == tensor.data; }))
      writes.push_back(&tensor);
  };
  for (size_t i = 0; i < schema.parameters().size(); ++i) {
    const Schema::Parameter& parameter = schema.parameters()[i];
    bound.visit(i, [&](const Tensor& tensor) {
      if (!parameter.is_out) reads.push_back(tensor);
      if (parameter.is_written || parameter.is_out) add_written(tensor);
    });
  }
  for (uint32_t i = 0; i < op.results_count; ++i)
    if (op.results[i].is_present) add_written(op.results[i]);
  Collective collective;
  std::vector<MadePointer> made;
  for (const Tensor& tensor : reads) made.push_back(tensor.unreadable == nullptr ? memory_.last_recorded(tensor) : nullptr);
  collective.inputs_unknown = !values_of(reads, collective.inputs);
  Label label;
  const bool is_known = schema.function(bound) != OpFunction::other;
  const bool reads_gradients = !made.empty() && std::all_of(made.begin(), made.end(), [](const MadePointer& each) {
    return is_recorded(each) && is_gradient(each->role);
  });
  if (reads_gradients) label = {Role::activation_gradient, 0, 0, made[0]->scale};
  for (const Tensor* const tensor : writes) {
    if (tensor->unreadable != nullptr) continue;
    const Makers makers = memory_.find(*tensor);
    const MadePointer before = makers.others.empty() ? makers.last : nullptr;  // of many put together, as in a bucket, it is none's
    forget(*tensor);
    // Values on a device are taken through the tensor, which may be gone by then.
    if (!tensor->is_on_host || !has_statistics(*tensor) || collective.inputs.empty() || !is_known) continue;
    Label of_output = label;
    if (is_recorded(before)) of_output = {before->role, before->parameter, before->name, before->scale};
    if (of_output.role == Role::weight_gradient) of_output.role = Role::accumulated_gradient;
    KeptDescription kept(*tensor);
    collective.outputs.push_back({std::move(kept), of_output});
  }
  if (collective.outputs.empty() || !state_.is_open) return;
  const std::vector<Entry>& entries = stack();
  const bool is_in_module = !entries.empty() && op.task == -1;
  collective.name = name(schema.name());
  collective.function = schema.function(bound);
  collective.parameter = collective.outputs.size() == 1 ? collective.outputs[0].label.parameter : Name{0};
  collective.phase = !is_in_module ? Phase::communication : entries.back().is_evaluating ? Phase::evaluation : Phase::forward;
  collective.module = collective.parameter != 0 ? module_of(collective.parameter) : is_in_module ? entries.back().name : Name{0};
  if (is_in_module) collective.location = location_of(collective.phase, collective.module, collective.name);
  const auto shared = std::make_shared<Collective>(std::move(collective));
  for (const Collective::Output& output : shared->outputs) {
    const uint64_t storage = output.tensor.tensor.storage;
    if (in_flight_.insert_or_assign(storage, shared).second) adapter_.retain(adapter_.context, storage);
  }
}

bool Tracker::completes_collective(const Schema& schema, const Bound& bound) const {
  if (in_flight_.empty() || schema.base() != "copy") return false;
  const auto to = schema.find("self"), from = schema.find("src");
  const Tensor* const written = to ? bound.tensor(*to) : nullptr;
  const Tensor* const read = from ? bound.tensor(*from) : nullptr;
  if (written == nullptr || read == nullptr || written->unreadable != nullptr || read->unreadable != nullptr) return false;
  const auto at = in_flight_.find(written->storage);
  return at != in_flight_.end() && at->second->function == OpFunction::reduce_scatter && !is_recorded(memory_.last_recorded(*read));
}

void Tracker::settle(const Tensor& seen) {
  if (in_flight_.empty() || seen.unreadable != nullptr) return;
  const auto at = in_flight_.find(seen.storage);
  if (at == in_flight_.end()) return;
  const std::shared_ptr<Collective> collective = at->second;
  std::vector<LabelledOutput> outputs;
  std::vector<Tensor> tensors;
  tensors.reserve(collective->outputs.size());
  for (size_t slot = 0; slot < collective->outputs.size(); ++slot) {
    const Collective::Output& output = collective->outputs[slot];
    const Tensor tensor = output.tensor.described();
    const auto entry = in_flight_.find(tensor.storage);
    const bool is_there = entry != in_flight_.end() && entry->second == collective &&
                          adapter_.is_expired(adapter_.context, tensor.storage) == 0 &&
                          (tensor.storage != seen.storage || tensor.storage_data == seen.storage_data);
    if (is_there) outputs.push_back({static_cast<uint32_t>(slot), &tensors.emplace_back(tensor), output.label, true});
  }
  if (!outputs.empty() && state_.is_open) {
    Call call;
    call.name = collective->name;
    call.phase = collective->phase;
    call.function = collective->function;
    call.kind = OpKind::collective;
    call.module = collective->module;
    call.parameter = collective->parameter;
    call.location = collective->location;
    call.inputs = collective->inputs;
    call.inputs_unknown = collective->inputs_unknown;
    emit(call, outputs);
  }
  for (const Collective::Output& output : collective->outputs) drop_in_flight(output.tensor.tensor.storage, collective.get());
}

void Tracker::settle(const Schema& schema, const Bound& bound) {
  // A view may be made before the program waits.
  if (in_flight_.empty() || schema.is_view()) return;
  for (const Read& read : schema.reads(bound)) settle(*read.tensor);
  for (size_t i = 0; i < schema.parameters().size(); ++i)
    if (schema.parameters()[i].is_written) bound.visit(i, [&](const Tensor& tensor) { settle(tensor); });
}

void Tracker::drop_in_flight(uint64_t storage, const Collective* of) {
  const auto at = in_flight_.find(storage);
  if (at == in_flight_.end() || at->second.get() != of) return;
  in_flight_.erase(at);
  adapter_.release(adapter_.context, storage);
}

void Tracker::drop_all_in_flight() {
  for (const auto& [storage, collective] : in_flight_) adapter_.release(adapter_.context, storage);
  in_flight_.clear();
}

// ---- parameters of which each process has a part

// The others made the rest of it, whatever that is.
void Tracker::put_together(const Tensor& tensor, const Tensor& part) {
  const MadePointer made = memory_.last(part);
  if (is_recorded(made)) memory_.join(tensor, {&made, 1}, false);
}

void Tracker::put_together_written(const Schema& schema, const Bound& bound) {
  for (size_t i = 0; i < schema.parameters().size(); ++i)
    if (schema.parameters()[i].is_written)
      bound.visit(i, [&](const Tensor& tensor) {
        if (const auto part = parts_.find(tensor.storage); part != parts_.end()) put_together(tensor, part->second.described());
      });
}

void Tracker::unsharded(const Tensor& tensor, const Tensor& part) {
  if (tensor.unreadable != nullptr || part.unreadable != nullptr || tensor.storage == 0) return;
  if (parts_.insert_or_assign(tensor.storage, KeptDescription(part)).second) adapter_.retain(adapter_.context, tensor.storage);
  put_together(tensor, part);
}

}  // namespace ulpscope::aten
