// Which recorded gradients are evidence: one that was computed, through any number of ops, from a gradient of which a rounding
// flushed too much to zero has other values than it would have at a scale at which that rounding fits, so it tells nothing about
// that scale.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "ulpscope/analyzers/analysis.h"

namespace ulpscope {

class FlushedUpstream {
 public:
  // `limit`: the share of a gradient's nonzero elements that may be flushed.
  FlushedUpstream(const Snapshot& reader, double limit);

  // Takes all rows of a step, in the trace's order, whether they are looked at or not.
  void see(const TensorRow& row);
  // True iff the row's values were computed from a flushed gradient, by the edges of its step's graph, or its op read
  // too much of an input as zero. In a graph without edges all
  // that comes after a flushed activation gradient, in the same backward pass, counts as computed from it. Rows that have been
  // seen.
  bool is_behind(const TensorRow& row);
  // How many rows of each tensor, where it is an activation gradient, were flushed too much.
  const std::vector<uint64_t>& flushed_rows() const { return flushed_rows_; }

 private:
  struct OpState {
    uint64_t flushed_slots = 0;  // a bit for each output, of its newest row
    uint64_t pass = 0;           // the backward pass, by number, that `behind` is of
    bool behind = false;
  };

  bool is_backward(uint32_t op) const;
  std::optional<uint32_t> graph_of(uint64_t step) const;  // where it has edges between backward ops
  void begin_pass(const TensorRow& row);
  bool lost_inputs(const TensorRow& row) const;  // more than the limit of them was read as zero
  bool behind(uint32_t graph, uint32_t op);

  const Snapshot& reader_;
  double limit_;
  std::set<uint32_t> backward_graphs_;                     // that have edges between backward ops
  std::vector<std::pair<uint64_t, uint32_t>> graph_from_;  // the steps from which on another graph holds, ascending
  std::vector<OpState> ops_;
  std::vector<uint64_t> flushed_rows_;
  std::optional<std::tuple<uint64_t, uint32_t, uint8_t>> current_;  // step, micro-batch, pass
  uint64_t pass_ = 0;                                               // counts them
  std::optional<uint32_t> graph_;
  std::optional<uint32_t> flushed_at_;  // the sequence number of the first flushed activation gradient of the pass
};

}  // namespace ulpscope
