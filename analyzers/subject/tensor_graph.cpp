#include "ulpscope/analyzers/subject/tensor_graph.h"

#include <algorithm>
#include <numeric>
#include <tuple>

namespace ulpscope {

TensorGraph::TensorGraph(const Snapshot& trace) : trace_(trace), made_(trace.tensors().size()) {
  const std::vector<TensorInfo>& tensors = trace.tensors();
  std::iota(made_.begin(), made_.end(), 0u);
  const auto output = [&](uint32_t tensor) { return std::tuple(tensors[tensor].op, tensors[tensor].slot, tensor); };
  std::sort(made_.begin(), made_.end(), [&](uint32_t a, uint32_t b) { return output(a) < output(b); });
  for (uint32_t i = 0; i < trace.ops().size(); ++i) by_id_.emplace(trace.ops()[i].id, i);
}

std::span<const uint32_t> TensorGraph::made_by(uint32_t op) const {
  const std::vector<TensorInfo>& tensors = trace_.tensors();
  const auto first =
      std::lower_bound(made_.begin(), made_.end(), op, [&](uint32_t t, uint32_t wanted) { return tensors[t].op < wanted; });
  const auto last = std::upper_bound(first, made_.end(), op, [&](uint32_t wanted, uint32_t t) { return wanted < tensors[t].op; });
  return {first, last};
}

std::span<const uint32_t> TensorGraph::made_by(uint32_t op, uint32_t slot) const {
  const std::vector<TensorInfo>& tensors = trace_.tensors();
  const std::span<const uint32_t> all = made_by(op);
  const auto first =
      std::lower_bound(all.begin(), all.end(), slot, [&](uint32_t t, uint32_t wanted) { return tensors[t].slot < wanted; });
  const auto last = std::upper_bound(first, all.end(), slot, [&](uint32_t wanted, uint32_t t) { return wanted < tensors[t].slot; });
  return {first, last};
}

const GraphEdge* TensorGraph::read_by(uint32_t op, uint32_t input) const {
  const std::span<const GraphEdge> inputs = trace_.graph().inputs(op);
  const auto edge = std::find_if(inputs.begin(), inputs.end(), [&](const GraphEdge& e) { return e.input == input; });
  return edge == inputs.end() ? nullptr : &*edge;
}

std::span<const uint32_t> TensorGraph::tensors_read_by(uint32_t op, uint32_t input) const {
  const GraphEdge* const edge = read_by(op, input);
  return edge == nullptr ? std::span<const uint32_t>() : made_by(edge->producer, edge->slot);
}

const OpInfo* TensorGraph::served_by(const OpInfo& backward) const {
  const std::vector<OpInfo>& ops = trace_.ops();
  auto forward = by_id_.find(backward.forward_id);
  if (backward.forward_id == 0 || forward == by_id_.end()) return nullptr;
  uint32_t op = forward->second;
  for (size_t tries = 0; ops[op].kind == OpKind::cast && tries < ops.size(); ++tries) {
    const GraphEdge* edge = read_by(op, 0);
    if (edge == nullptr || edge->producer >= ops.size()) return nullptr;
    op = edge->producer;
  }
  return &ops[op];
}

}  // namespace ulpscope
