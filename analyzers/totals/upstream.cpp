#include "ulpscope/analyzers/totals/upstream.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "ulpscope/analyzers/subject/tensor_rounding.h"
#include "ulpscope/analyzers/totals/flush_loss.h"
#include "ulpscope/analyzers/totals/what_if.h"

namespace ulpscope {

FlushedUpstream::FlushedUpstream(const Snapshot& trace, double limit) : trace_(trace), limit_(limit), ops_(trace.ops().size()) {
  const auto is_backward = [&](uint32_t op) { return trace.ops()[op].phase == Phase::backward; };
  for (const GraphEdge& edge : trace.edges())
    if (is_backward(edge.consumer) && is_backward(edge.producer)) backward_graphs_.insert(edge.graph);
}

void FlushedUpstream::begin_step(uint32_t graph) {
  for (OpState& op : ops_) op.flushed_slots.clear();
  graph_ = backward_graphs_.contains(graph) ? std::optional(graph) : std::nullopt;
  current_.reset();
}

void FlushedUpstream::begin_pass(const TensorRow& row) {
  const std::pair pass{row.micro_batch, row.loss_index};
  if (current_ == pass) return;
  current_ = pass;
  ++pass_;
  flushed_at_.reset();
}

bool FlushedUpstream::see(const TensorRow& row) {
  begin_pass(row);
  const TensorInfo& tensor = trace_.tensors()[row.tensor];
  const bool starved = lost_inputs(row);
  if (!is_computed_gradient(tensor.role) || !(is_narrow(tensor.dtype) || starved)) return false;
  const auto seen = as_seen(row);
  const bool flushed =
      starved || (seen && seen->base > 0 && static_cast<double>(seen->flushed.lower) > limit_ * static_cast<double>(seen->base) &&
                  flushed_norm_bound(row, *info(tensor.dtype).format, rounding_of(tensor)) > felt_part(*info(tensor.dtype).format));
  std::vector<bool>& slots = ops_[tensor.op].flushed_slots;
  if (flushed && slots.size() <= tensor.slot) slots.resize(tensor.slot + 1);
  if (slots.size() > tensor.slot) slots[tensor.slot] = flushed;
  if (!flushed || tensor.role != Role::activation_gradient) return false;
  if (!flushed_at_) flushed_at_ = row.sequence;
  return true;
}

bool FlushedUpstream::lost_inputs(const TensorRow& row) const {
  return static_cast<double>(row.input.flushed) > limit_ * static_cast<double>(row.input.nonzero);
}

// A search in depth, without recursion: a graph can be as deep as it has ops.
bool FlushedUpstream::behind(uint32_t op) {
  const auto is_new = [&](uint32_t each) { return std::exchange(ops_[each].pass, pass_) != pass_; };
  const auto enter = [&](uint32_t each) {
    ops_[each].behind = false;  // also ends the search at an op that adds to its own output
    search_.emplace_back(each, 0);
  };
  if (is_new(op)) enter(op);
  while (!search_.empty()) {
    const auto [reader, next] = search_.back();
    const std::span<const GraphEdge> sources = trace_.graph().inputs(reader, *graph_);
    if (next == sources.size()) {
      search_.pop_back();
      continue;
    }
    const GraphEdge& source = sources[next];
    if (trace_.ops()[source.producer].phase != Phase::backward) {
      ++search_.back().second;
    } else if (const std::vector<bool>& slots = ops_[source.producer].flushed_slots;
               source.slot < slots.size() && slots[source.slot]) {
      ops_[reader].behind = true;
      search_.pop_back();
    } else if (is_new(source.producer)) {
      enter(source.producer);
    } else if (ops_[source.producer].behind) {
      ops_[reader].behind = true;
      search_.pop_back();
    } else {
      ++search_.back().second;
    }
  }
  return ops_[op].behind;
}

bool FlushedUpstream::is_behind(const TensorRow& row) {
  begin_pass(row);
  const uint32_t op = trace_.tensors()[row.tensor].op;
  if (trace_.ops()[op].phase != Phase::backward) return false;
  if (lost_inputs(row)) return true;
  return graph_ ? behind(op) : flushed_at_ && *flushed_at_ < row.sequence;
}

}  // namespace ulpscope
