#include "ulpscope/trace/op_graph.h"

#include <algorithm>
#include <numeric>
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

// A table has the ops in the order in which they first ran; of several ranks or runs, those that only a later one has stand behind
// all others, and where they ran is recorded. Where that of any op is not, the table has to do.
std::vector<uint32_t> order_of(std::span<const OpInfo> ops) {
  std::vector<uint32_t> by_time(ops.size()), order(ops.size());
  std::iota(by_time.begin(), by_time.end(), 0);
  if (std::all_of(ops.begin(), ops.end(), [](const OpInfo& op) { return op.first_step >= 0; })) {
    std::stable_sort(by_time.begin(), by_time.end(), [&](uint32_t a, uint32_t b) {
      return std::tie(ops[a].first_step, ops[a].first_sequence) < std::tie(ops[b].first_step, ops[b].first_sequence);
    });
  }
  for (uint32_t i = 0; i < by_time.size(); ++i) order[by_time[i]] = i;
  return order;
}

}  // namespace

OpGraph::OpGraph(std::vector<GraphEdge> edges, std::span<const OpInfo> ops) : edges_(std::move(edges)), order_(order_of(ops)) {
  by_consumer_.edges = by_producer_.edges = edges_;
  std::stable_sort(by_consumer_.edges.begin(), by_consumer_.edges.end(), [](const GraphEdge& a, const GraphEdge& b) {
    return std::tie(a.consumer, a.graph, a.input) < std::tie(b.consumer, b.graph, b.input);
  });
  std::stable_sort(by_producer_.edges.begin(), by_producer_.edges.end(), [](const GraphEdge& a, const GraphEdge& b) {
    return std::tie(a.producer, a.graph, a.slot, a.consumer, a.input) < std::tie(b.producer, b.graph, b.slot, b.consumer, b.input);
  });
  by_consumer_.begin = begins(by_consumer_.edges, ops.size(), [](const GraphEdge& edge) { return edge.consumer; });
  by_producer_.begin = begins(by_producer_.edges, ops.size(), [](const GraphEdge& edge) { return edge.producer; });
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
