#include "ulpscope/trace/op_graph.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace ulpscope {

namespace {

// Where the edges of each op begin; `op_of` names the op that they are sorted by.
template <typename OpOf>
std::vector<size_t> begins(std::span<const GraphEdge> edges, size_t op_count, OpOf&& op_of) {
  std::vector<size_t> begin(op_count + 1);
  for (const GraphEdge& edge : edges) ++begin[op_of(edge) + 1];
  for (size_t i = 1; i < begin.size(); ++i) begin[i] += begin[i - 1];
  return begin;
}

}  // namespace

OpGraph::OpGraph(std::vector<GraphEdge> edges, size_t op_count) : edges_(std::move(edges)) {
  by_consumer_.edges = by_producer_.edges = edges_;
  std::stable_sort(by_consumer_.edges.begin(), by_consumer_.edges.end(), [](const GraphEdge& a, const GraphEdge& b) {
    return std::tie(a.consumer, a.graph, a.input) < std::tie(b.consumer, b.graph, b.input);
  });
  std::stable_sort(by_producer_.edges.begin(), by_producer_.edges.end(), [](const GraphEdge& a, const GraphEdge& b) {
    return std::tie(a.producer, a.graph, a.slot, a.consumer, a.input) < std::tie(b.producer, b.graph, b.slot, b.consumer, b.input);
  });
  by_consumer_.begin = begins(by_consumer_.edges, op_count, [](const GraphEdge& edge) { return edge.consumer; });
  by_producer_.begin = begins(by_producer_.edges, op_count, [](const GraphEdge& edge) { return edge.producer; });
}

std::span<const GraphEdge> OpGraph::Sorted::of(uint32_t op) const {
  if (op + size_t{1} >= begin.size()) return {};
  return std::span(edges).subspan(begin[op], begin[op + 1] - begin[op]);
}

std::span<const GraphEdge> OpGraph::Sorted::of(uint32_t op, uint32_t graph) const {
  const std::span<const GraphEdge> all = of(op);
  const auto first = std::partition_point(all.begin(), all.end(), [&](const GraphEdge& edge) { return edge.graph < graph; });
  const auto last = std::partition_point(first, all.end(), [&](const GraphEdge& edge) { return edge.graph == graph; });
  return {first, last};
}

std::span<const GraphEdge> OpGraph::inputs(uint32_t op) const { return by_consumer_.of(op); }
std::span<const GraphEdge> OpGraph::inputs(uint32_t op, uint32_t graph) const { return by_consumer_.of(op, graph); }
std::span<const GraphEdge> OpGraph::uses(uint32_t op) const { return by_producer_.of(op); }
std::span<const GraphEdge> OpGraph::uses(uint32_t op, uint32_t graph) const { return by_producer_.of(op, graph); }

}  // namespace ulpscope
