#include "ulpscope/recorder/memory_watch.h"

#include <fmt/format.h>

#include <bit>

#include "ulpscope/kernels/fingerprint.h"

namespace ulpscope {

namespace {

constexpr int kMaximumEvents = 1000;

bool is_watched(const OutputDescription& output) {
  const bool is_kept = output.role == Role::weight || output.role == Role::master_weight || output.role == Role::optimizer_state;
  return is_kept && output.view.data != nullptr && is_float(output.view.dtype);
}

// `of_models`: parameters that were seen in a type of which a master weight is the copy; of others it is the weight itself.
std::string name_of(const OutputDescription& output, const OpDescription& op, std::unordered_set<std::string>& of_models) {
  std::string of(!output.parameter.empty() ? std::string_view(output.parameter) : !op.module.empty() ? op.module : op.name);
  if (output.role == Role::weight) of_models.insert(of);
  if (output.role == Role::weight || (output.role == Role::master_weight && !of_models.contains(of))) return of;
  return fmt::format("{} of {}", output.name.empty() ? name_of(output.role) : output.name, of);
}

// What is known of a change from the sums before and after it.
std::string describe_change(uint64_t before, uint64_t after, DType dtype) {
  const uint64_t up = after - before, down = before - after;
  const auto element_bits = static_cast<int>(8 * info(dtype).size);
  if (up == down && up != 0 && element_bits == 64)
    return "the sum of its bit patterns changed by 2^63, as where bit 63 of one element is flipped";
  for (const auto& [change, verb] : {std::pair(up, "set"), std::pair(down, "cleared")}) {
    if (!std::has_single_bit(change) || std::countr_zero(change) >= element_bits) continue;
    return fmt::format("the sum of its bit patterns {} by 2^{}, as where bit {} of one element is {}",
                       change == up ? "grew" : "fell", std::countr_zero(change), std::countr_zero(change), verb);
  }
  return fmt::format("the sum of its bit patterns was {:#x} and is {:#x}", before, after);
}

}  // namespace

MemoryWatch::Place& MemoryWatch::place_of(const void* address, uint32_t& index) {
  const auto [position, is_new] = by_address_.try_emplace(address, static_cast<uint32_t>(places_.size()));
  if (is_new) places_.emplace_back();
  index = position->second;
  return places_[index];
}

void MemoryWatch::before(const OpDescription& op, uint32_t entry, const OpTable& ops, uint64_t step,
                         std::span<OutputRecord* const> outputs, std::span<Fingerprint* const> inputs, Pass& pass) {
  if (inputs.size() == op.inputs.size() && inputs.size() == op.input_views.size()) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      const auto found = by_address_.find(op.input_views[i].data);
      if (found == by_address_.end()) continue;
      Place& place = places_[found->second];
      if (place.value.op != op.inputs[i].op || place.value.slot != op.inputs[i].slot || place.checked == step) continue;
      // A part of it is another sum.
      const TensorView view = without_repeats(op.input_views[i]);
      if (view.dtype != place.dtype || view.size() != place.elements || !is_dense(view)) continue;
      place.checked = step;
      inputs[i]->wanted = true;
      pass.sums_.push_back({inputs[i], found->second, entry, place.tensor, place.dtype, op.micro_batch, op.loss_index, false});
    }
  }
  for (size_t slot = 0; slot < outputs.size(); ++slot) {
    const OutputDescription& output = op.outputs[slot];
    if (!is_watched(output)) continue;
    outputs[slot]->fingerprint.wanted = true;
    const uint32_t tensor = ops.tensor(ops[entry].first_tensor, static_cast<uint32_t>(slot)).tensor;
    uint32_t index = 0;
    Place& place = place_of(output.view.data, index);
    if (const auto [name, is_new] = names_.try_emplace(tensor); is_new) name->second = name_of(output, op, of_models_);
    place.value = {op.id, static_cast<uint32_t>(slot)};
    place.elements = output.view.size();
    place.dtype = output.view.dtype;
    place.checked = kNever;
    place.tensor = tensor;
    pass.rows_ += ops[entry].rows_wanted;
    pass.sums_.push_back({&outputs[slot]->fingerprint, index, entry, tensor, place.dtype, op.micro_batch, op.loss_index, true});
  }
}

void MemoryWatch::forget(Pass& pass) {
  for (const Sum& sum : pass.sums_)
    if (sum.is_written) places_[sum.place].known = false;
  pass.sums_.clear();
  pass.rows_ = 0;
}

void MemoryWatch::say_changed(const Place& place, const Sum& read, uint64_t step, const OpTable& ops) {
  if (events_ > kMaximumEvents) return;
  EventRow event;
  event.step = step;
  event.kind = EventKind::memory_changed;
  event.tensor = read.tensor;
  event.micro_batch = place.micro_batch;
  event.loss_index = place.loss_index;
  event.count = place.step;
  event.text =
      events_++ < kMaximumEvents
          ? fmt::format(
                "{} changed between {} in step {}, which wrote it, and {} in step {}, which read it: a flipped bit, memory "
                "that is shared, or a foreign write; {}",
                names_[read.tensor], ops[place.writer].label, place.step, ops[read.entry].label, step,
                describe_change(place.sum, read.fingerprint->value, read.dtype))
          : fmt::format("{} changed, as memory did {} times before: no more changes are recorded", names_[read.tensor],
                        kMaximumEvents);
  sink_.add_event(event);
}

void MemoryWatch::end_pass(Pass& pass, const OpTable& ops, uint64_t step, bool rows) {
  for (const Sum& sum : pass.sums_) {
    Place& place = places_[sum.place];
    const Fingerprint& found = *sum.fingerprint;
    if (sum.is_written) {
      place.known = found.known;
      place.sum = found.value;
      place.step = step;
      place.writer = sum.entry;
      place.micro_batch = sum.micro_batch;
      place.loss_index = sum.loss_index;
      if (found.known && rows && ops[sum.entry].rows_wanted) sink_.add_fingerprint({step, sum.tensor, found.value});
    } else if (found.known) {
      if (place.known && place.sum != found.value) say_changed(place, sum, step, ops);
      place.known = true;
      place.sum = found.value;
    }
  }
  pass.sums_.clear();
  pass.rows_ = 0;
}

}  // namespace ulpscope
