#include "ulpscope/analyzers/upstream.h"

#include <algorithm>
#include <tuple>

#include "ulpscope/analyzers/what_if.h"

namespace ulpscope {

FlushedUpstream::FlushedUpstream(const Snapshot& reader, double limit)
    : reader_(reader), limit_(limit), ops_(reader.ops().size()), flushed_rows_(reader.tensors().size()) {
  for (const GraphEdge& edge : reader.graph().edges())
    if (is_backward(edge.consumer) && is_backward(edge.producer)) backward_graphs_.insert(edge.graph);
  reader.visit_steps({}, [&](std::span<const StepRow> rows) {
    for (const StepRow& row : rows) {
      if (graph_from_.empty() || graph_from_.back().second != row.graph) graph_from_.emplace_back(row.step, row.graph);
    }
    return true;
  });
}

bool FlushedUpstream::is_backward(uint32_t op) const { return reader_.ops()[op].phase == Phase::backward; }

std::optional<uint32_t> FlushedUpstream::graph_of(uint64_t step) const {
  const auto after = std::upper_bound(graph_from_.begin(), graph_from_.end(), std::pair(step, UINT32_MAX));
  if (after == graph_from_.begin() || !backward_graphs_.contains(std::prev(after)->second)) return std::nullopt;
  return std::prev(after)->second;
}

void FlushedUpstream::begin_pass(const TensorRow& row) {
  const std::tuple pass{row.step, row.micro_batch, row.pass};
  if (current_ == pass) return;
  if (!current_ || std::get<0>(*current_) != row.step) {
    for (OpState& op : ops_) op.flushed_slots = 0;
    graph_ = graph_of(row.step);
  }
  current_ = pass;
  ++pass_;
  flushed_at_.reset();
}

void FlushedUpstream::see(const TensorRow& row) {
  begin_pass(row);
  const TensorInfo& tensor = reader_.tensors()[row.tensor];
  const bool starved = lost_inputs(row);
  if (!is_computed_gradient(tensor.role) || !(is_narrow(tensor.dtype) || starved) || tensor.slot >= 64) return;
  const auto seen = as_seen(row);
  const bool flushed =
      starved || (seen && seen->base > 0 && static_cast<double>(seen->flushed.lower) > limit_ * static_cast<double>(seen->base));
  const uint64_t bit = uint64_t{1} << tensor.slot;
  uint64_t& slots = ops_[tensor.op].flushed_slots;
  slots = flushed ? slots | bit : slots & ~bit;
  if (!flushed || tensor.role != Role::activation_gradient) return;
  ++flushed_rows_[row.tensor];
  if (!flushed_at_) flushed_at_ = row.sequence;
}

bool FlushedUpstream::lost_inputs(const TensorRow& row) const {
  return static_cast<double>(row.input.flushed) > limit_ * static_cast<double>(row.input.nonzero);
}

bool FlushedUpstream::behind(uint32_t graph, uint32_t op) {
  OpState& state = ops_[op];
  if (state.pass == pass_) return state.behind;
  state.pass = pass_;
  state.behind = false;  // also ends the search at an op that adds to its own output
  for (const GraphEdge& edge : reader_.graph().inputs(op, graph)) {
    if (!is_backward(edge.producer)) continue;
    if ((edge.slot < 64 && (ops_[edge.producer].flushed_slots >> edge.slot & 1)) || behind(graph, edge.producer)) {
      ops_[op].behind = true;
      break;
    }
  }
  return ops_[op].behind;
}

bool FlushedUpstream::is_behind(const TensorRow& row) {
  begin_pass(row);
  const uint32_t op = reader_.tensors()[row.tensor].op;
  if (!is_backward(op)) return false;
  if (lost_inputs(row)) return true;
  return graph_ ? behind(*graph_, op) : flushed_at_ && *flushed_at_ < row.sequence;
}

}  // namespace ulpscope
