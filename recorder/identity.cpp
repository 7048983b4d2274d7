#include "ulpscope/recorder/identity.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "ulpscope/base/hash.h"
#include "ulpscope/base/text.h"

namespace ulpscope {

namespace {

bool matches_any(const std::vector<std::string>& patterns, std::string_view text) {
  return patterns.empty() ||
         std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) { return glob_match(pattern, text); });
}

}  // namespace

std::string attributes_text(const Attributes* attributes, AttributesOf what) {
  std::string text;
  if (attributes == nullptr) return text;
  for (size_t i = 0; i < attributes->items().size(); ++i) {
    const Attributes::Item& item = attributes->items()[i];
    const bool unknown = what == AttributesOf::op && attributes->varies(i);
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", item.name, unknown ? "varies" : fmt::format("{}", item.value));
  }
  return text;
}

void OpTable::begin_step(uint64_t number) {
  step_ = number;
  std::swap(order_, last_order_);
  order_.clear();
  expected_ = 0;
}

uint32_t OpTable::find_or_add(const OpDescription& op) {
  uint32_t index;
  if (expected_ < last_order_.size() && entries_[last_order_[expected_]].id == op.id) {
    index = last_order_[expected_++];
  } else if (const auto found = by_id_.find(op.id); found != by_id_.end()) {
    index = found->second;
    expected_ = entries_[index].last_position + 1;
  } else {
    index = add(op);
  }
  OpEntry& entry = entries_[index];
  entry.last_position = static_cast<uint32_t>(order_.size());
  order_.push_back(index);
  use_outputs(entry, op);
  return index;
}

const OpEntry* OpTable::find(uint64_t id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : &entries_[found->second];
}

const TensorEntry* OpTable::find_tensor(const ValueKey& value) const {
  const OpEntry* const entry = find(value.op);
  return entry == nullptr || value.slot >= entry->outputs ? nullptr : &tensors_[entry->first_tensor + value.slot];
}

bool OpTable::is_nonfinite(const ValueKey& value) const {
  const OpEntry* const entry = find(value.op);
  return entry != nullptr && value.slot < entry->nonfinite.size() && entry->nonfinite[value.slot];
}

bool OpTable::wants_rows(std::string_view module, std::string_view name, Phase phase) const {
  return matches_any(options_.modules, module) && matches_any(options_.ops, name) &&
         (options_.phases.empty() || std::find(options_.phases.begin(), options_.phases.end(), phase) != options_.phases.end());
}

uint32_t OpTable::add(const OpDescription& op) {
  OpInfo info;
  info.id = op.id;
  info.forward_id = op.forward_id;
  info.name = op.name;
  info.module = op.module;
  info.phase = op.phase;
  info.kind = op.kind;
  info.function = op.function;
  info.attributes = op.attributes != nullptr ? attributes_text(op.attributes, AttributesOf::op) : std::string(op.attributes_text);
  info.inputs_told = op.inputs_told;
  info.location = op.location;
  info.first_step = static_cast<int64_t>(step_);
  info.first_sequence = static_cast<uint32_t>(order_.size());
  if (op.product && op.product->k != ProductShape::kUnknown) info.product = op.product->numbers();

  OpEntry entry;
  entry.id = op.id;
  entry.op = sink_.add_op(info);
  entry.phase = op.phase;
  entry.rows_wanted = wants_rows(op.module, op.name, op.phase);
  entry.label = op.module.empty() ? info.name : fmt::format("{} in {}", op.name, op.module);
  const auto index = static_cast<uint32_t>(entries_.size());
  entries_.push_back(std::move(entry));
  by_id_.emplace(op.id, index);
  return index;
}

bool TensorEntry::is_described_by(const OpDescription& op, size_t slot) const {
  const OutputDescription& output = op.outputs[slot];
  return role == output.role && dtype == output.view.dtype && rounding == output.rounding &&
         flushes_results == output.flushes_results && flushes_inputs == op.flushes_inputs &&
         flushes_narrow_products == op.flushes_narrow_products && parameter == output.parameter;
}

bool OpTable::has_outputs(const OpEntry& entry, uint32_t first_tensor, const OpDescription& op) const {
  const size_t outputs = std::min<size_t>(entry.outputs, op.outputs.size());
  for (size_t slot = 0; slot < outputs; ++slot)
    if (!tensors_[first_tensor + slot].is_described_by(op, slot)) return false;
  return true;
}

void OpTable::use_outputs(OpEntry& entry, const OpDescription& op) {
  if (entry.outputs < op.outputs.size()) add_outputs(entry, op);
  if (has_outputs(entry, entry.first_tensor, op)) return;
  const auto use =
      std::find_if(entry.uses.begin(), entry.uses.end(), [&](uint32_t first) { return has_outputs(entry, first, op); });
  if (use != entry.uses.end()) {
    entry.first_tensor = *use;
    return;
  }
  const auto first = static_cast<uint32_t>(tensors_.size());
  for (uint32_t slot = 0; slot < entry.outputs; ++slot) {
    const auto same = std::find_if(entry.uses.begin(), entry.uses.end(), [&](uint32_t other) {
      return slot >= op.outputs.size() || tensors_[other + slot].is_described_by(op, slot);
    });
    TensorEntry tensor = same == entry.uses.end() ? add_tensor(entry, op, slot) : tensors_[*same + slot];
    entry.any_float |= tensor.is_float();
    tensors_.push_back(std::move(tensor));
  }
  entry.uses.push_back(first);
  entry.first_tensor = first;
}

void OpTable::add_outputs(OpEntry& entry, const OpDescription& op) {
  std::vector<TensorEntry> more;
  for (size_t slot = entry.outputs; slot < op.outputs.size(); ++slot) {
    more.push_back(add_tensor(entry, op, slot));
    entry.any_float |= more.back().is_float();
  }
  // Outputs of one use lie together: those that are known move to the end.
  if (entry.uses.empty()) entry.uses.push_back(0);
  for (uint32_t& use : entry.uses) {
    const auto first = static_cast<uint32_t>(tensors_.size());
    for (uint32_t slot = 0; slot < entry.outputs; ++slot) {
      TensorEntry known = tensors_[use + slot];
      tensors_.push_back(std::move(known));
    }
    tensors_.insert(tensors_.end(), more.begin(), more.end());
    use = first;
  }
  entry.first_tensor = entry.uses.front();
  entry.outputs = static_cast<uint32_t>(op.outputs.size());
  entry.nonfinite.resize(entry.outputs);
}

TensorEntry OpTable::add_tensor(const OpEntry& entry, const OpDescription& op, size_t slot) {
  const OutputDescription& output = op.outputs[slot];
  TensorInfo info;
  info.op = entry.op;
  info.slot = static_cast<uint32_t>(slot);
  info.role = output.role;
  info.dtype = output.view.dtype;
  info.stays_wide = output.stays_wide;
  info.parameter = output.parameter;
  info.name = output.name;
  info.gradient_of = output.gradient_of.op;
  info.gradient_slot = output.gradient_of.slot;
  info.gradient_input = output.gradient_input;
  info.rounding = output.rounding;
  info.flushes_results = output.flushes_results;
  info.flushes_inputs = op.flushes_inputs;
  info.flushes_narrow_products = op.flushes_narrow_products;
  if (output.shape.empty()) {
    info.shape.assign(output.view.shape.begin(), output.view.shape.begin() + output.view.rank);
  } else {
    info.shape.assign(output.shape.begin(), output.shape.end());
  }
  return {sink_.add_tensor(info),       info.role,     info.dtype, info.rounding, info.flushes_results, info.flushes_inputs,
          info.flushes_narrow_products, info.parameter};
}

void StepGraph::clear() {
  hash_ = 0;
  inputs_.clear();
}

void StepGraph::add(const OpDescription& op, uint32_t op_index) {
  hash_ = hash_combine(hash_, op.id);
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    const ValueKey& value = op.inputs[i];
    hash_ = hash_combine(hash_, value.op + value.slot);
    inputs_.push_back({value, op_index, static_cast<uint32_t>(i)});
  }
}

uint32_t GraphTable::number_of(const StepGraph& step, TraceSink& sink, const OpTable& ops) {
  const auto [position, is_new] = graphs_.try_emplace(step.hash_, static_cast<uint32_t>(graphs_.size()));
  const uint32_t graph = position->second;
  if (!is_new) return graph;
  std::vector<GraphEdge> edges;
  for (const StepGraph::Input& input : step.inputs_) {
    // A value that no described op made has no edge.
    if (const OpEntry* producer = ops.find(input.value.op)) {
      edges.push_back({graph, input.consumer, input.input, producer->op, input.value.slot});
    }
  }
  // Micro-batches repeat edges.
  const auto key = [](const GraphEdge& edge) { return std::tuple(edge.consumer, edge.input, edge.producer, edge.slot); };
  std::sort(edges.begin(), edges.end(), [&](const GraphEdge& a, const GraphEdge& b) { return key(a) < key(b); });
  edges.erase(std::unique(edges.begin(), edges.end(), [&](const GraphEdge& a, const GraphEdge& b) { return key(a) == key(b); }),
              edges.end());
  for (const GraphEdge& edge : edges) sink.add_edge(edge);
  return graph;
}

}  // namespace ulpscope
