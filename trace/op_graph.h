// Which op reads the output of which, in each of a run's graphs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ulpscope/trace/records.h"

namespace ulpscope {

class OpGraph {
 public:
  // `edges` as the trace has them, of these ops.
  OpGraph(std::vector<GraphEdge> edges, std::span<const OpInfo> ops);

  // All of them, in the order of the trace.
  const std::vector<GraphEdge>& edges() const { return edges_; }
  // What the op reads, by graph, then by input; of all graphs or of one. Empty for an op or a graph without edges.
  std::span<const GraphEdge> inputs(uint32_t op) const;
  std::span<const GraphEdge> inputs(uint32_t op, uint32_t graph) const;
  // Who reads the op's outputs, by graph, then by output, consumer and input.
  std::span<const GraphEdge> uses(uint32_t op) const;
  std::span<const GraphEdge> uses(uint32_t op, uint32_t graph) const;
  // Whether the first op has its place in a step before the second one. False of an op and itself.
  bool runs_before(uint32_t first, uint32_t second) const { return order_[first] < order_[second]; }
  // Whether the consumer reads what its producer made in the same step. Else, as where it comes through a weight, it was made in
  // the step before.
  bool is_within_step(const GraphEdge& edge) const { return runs_before(edge.producer, edge.consumer); }

 private:
  // Edges sorted by an op and a graph; those of op i stand at [begin[i], begin[i + 1]).
  struct Sorted {
    std::vector<GraphEdge> edges;
    std::vector<size_t> begin;

    std::span<const GraphEdge> of(uint32_t op) const;
    std::span<const GraphEdge> of(uint32_t op, uint32_t graph) const;
  };

  std::vector<GraphEdge> edges_;
  Sorted by_consumer_, by_producer_;
  std::vector<uint32_t> order_;  // of each op, how many ran before it when they first ran
};

}  // namespace ulpscope
