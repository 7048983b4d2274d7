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
  // `edges` as the trace has them, of ops below `op_count`.
  OpGraph(std::vector<GraphEdge> edges, size_t op_count);

  // All of them, in the order of the trace.
  const std::vector<GraphEdge>& edges() const { return edges_; }
  // What the op reads, by graph, then by input; of all graphs or of one. Empty for an op or a graph without edges.
  std::span<const GraphEdge> inputs(uint32_t op) const;
  std::span<const GraphEdge> inputs(uint32_t op, uint32_t graph) const;
  // Who reads the op's outputs, by graph, then by output, consumer and input.
  std::span<const GraphEdge> uses(uint32_t op) const;
  std::span<const GraphEdge> uses(uint32_t op, uint32_t graph) const;

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
};

}  // namespace ulpscope
