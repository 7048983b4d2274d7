// Which recorded gradients are evidence: one that was computed, through any number of ops, from a gradient of which a rounding
// flushed too much to zero, more than a share of the elements and a part of the norm that may be felt, has other values than it
// would have at a scale at which that rounding fits, so it tells nothing about that scale.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_set>
#include <utility>
#include <vector>

#include "ulpscope/analyzers/subject/analysis.h"

namespace ulpscope {

class FlushedUpstream {
 public:
  // `limit`: the share of a gradient's nonzero elements that may be flushed.
  FlushedUpstream(const Snapshot& trace, double limit);

  // Before the rows of a step, each step's graph.
  void begin_step(uint32_t graph);
  // Takes all rows of a step, in the trace's order, whether they are looked at or not. True iff too much was flushed of one that is
  // an activation gradient.
  bool see(const TensorRow& row);
  // True iff the row's values were computed from a flushed gradient, by the edges of its step's graph, or its op read
  // too much of an input as zero. In a graph without edges all
  // that comes after a flushed activation gradient, in the same backward pass, counts as computed from it. Rows that have been
  // seen.
  bool is_behind(const TensorRow& row);

 private:
  struct OpState {
    std::vector<bool> flushed_slots;  // of its newest row, as far as one was flushed
    uint64_t pass = 0;                // the backward pass, by number, that `behind` is of
    bool behind = false;
  };

  void begin_pass(const TensorRow& row);
  bool lost_inputs(const TensorRow& row) const;  // more than the limit of them was read as zero
  bool behind(uint32_t op);

  Snapshot trace_;
  double limit_;
  std::unordered_set<uint32_t> backward_graphs_;  // those with edges between backward ops
  std::vector<OpState> ops_;
  std::optional<std::pair<uint32_t, uint8_t>> current_;  // micro-batch and loss of the pass
  uint64_t pass_ = 0;                                    // counts them
  std::optional<uint32_t> graph_;                        // of the step, where it is one of these
  std::vector<std::pair<uint32_t, size_t>> search_;      // ops, and how many of what each reads was looked at
  std::optional<uint32_t> flushed_at_;                   // the sequence number of the first flushed activation gradient of the pass
};

}  // namespace ulpscope
