#include "ulpscope/analyzers/upstream.h"

#include <algorithm>
#include <tuple>

#include "ulpscope/analyzers/what_if.h"

namespace ulpscope {

FlushedUpstream::FlushedUpstream(const Snapshot& reader, double limit)
    : reader_(reader), limit_(limit), ops_(reader.ops().size()), flushed_rows_(reader.tensors().size()) {
  const std::vector<OpInfo>& ops = reader.ops();
  const auto is_backward = [&](uint32_t op) { return op < ops.size() && ops[op].phase == Phase::backward; };
  std::vector<GraphEdge> edges = reader.edges();
  std::erase_if(edges, [&](const GraphEdge& edge) { return !is_backward(edge.consumer) || !is_backward(edge.producer); });
  std::sort(edges.begin(), edges.end(),
            [](const GraphEdge& a, const GraphEdge& b) { return std::tie(a.graph, a.consumer) < std::tie(b.graph, b.consumer); });
  for (const GraphEdge& edge : edges) {
    if (graphs_.size() <= edge.graph) graphs_.resize(edge.graph + 1);
    Graph& graph = graphs_[edge.graph];
    graph.begin.resize(ops.size() + 1);
    ++graph.begin[edge.consumer + 1];
    graph.sources.push_back({edge.producer, edge.slot});
  }
  for (Graph& graph : graphs_) {
    for (size_t i = 1; i < graph.begin.size(); ++i) graph.begin[i] += graph.begin[i - 1];
  }
  reader.visit_steps({}, [&](std::span<const StepRow> rows) {
    for (const StepRow& row : rows) {
      if (graph_from_.empty() || graph_from_.back().second != row.graph) graph_from_.emplace_back(row.step, row.graph);
    }
    return true;
  });
}

const FlushedUpstream::Graph* FlushedUpstream::graph_of(uint64_t step) const {
  const auto after = std::upper_bound(graph_from_.begin(), graph_from_.end(), std::pair(step, UINT32_MAX));
  if (after == graph_from_.begin()) return nullptr;
  const uint32_t graph = std::prev(after)->second;
  return graph < graphs_.size() && !graphs_[graph].sources.empty() ? &graphs_[graph] : nullptr;
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

bool FlushedUpstream::behind(const Graph& graph, uint32_t op) {
  OpState& state = ops_[op];
  if (state.pass == pass_) return state.behind;
  state.pass = pass_;
  state.behind = false;  // also ends the search at an op that adds to its own output
  for (uint32_t i = graph.begin[op]; i < graph.begin[op + 1]; ++i) {
    const auto [source, slot] = graph.sources[i];
    if ((slot < 64 && (ops_[source].flushed_slots >> slot & 1)) || behind(graph, source)) {
      ops_[op].behind = true;
      break;
    }
  }
  return ops_[op].behind;
}

bool FlushedUpstream::is_behind(const TensorRow& row) {
  begin_pass(row);
  const uint32_t op = reader_.tensors()[row.tensor].op;
  if (reader_.ops()[op].phase != Phase::backward) return false;
  if (lost_inputs(row)) return true;
  return graph_ ? behind(*graph_, op) : flushed_at_ && *flushed_at_ < row.sequence;
}

}  // namespace ulpscope
