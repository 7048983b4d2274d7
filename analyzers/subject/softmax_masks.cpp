#include "ulpscope/analyzers/subject/softmax_masks.h"

#include <algorithm>
#include <set>

#include "ulpscope/trace/op_semantics.h"

namespace ulpscope {

namespace {

bool takes_softmax(OpFunction function) { return has_trait(function, kWeighsRow); }
bool hands_on(OpFunction function) { return function == OpFunction::add || has_trait(function, kSameValues); }
bool holds_weights(Role role) {
  return role == Role::weight || role == Role::weight_cast || role == Role::master_weight || role == Role::optimizer_state;
}
bool puts_constants(OpFunction function) { return has_trait(function, kTakesConstants); }

}  // namespace

SoftmaxMasks::SoftmaxMasks(const Snapshot& trace, const TensorGraph& graph) {
  const std::vector<OpInfo>& ops = trace.ops();
  const bool has_softmax = std::any_of(ops.begin(), ops.end(), [](const OpInfo& op) { return takes_softmax(op.function); });
  if (!has_softmax || trace.edges().empty()) return;
  // A mask that is written out in the model follows from constants and buffers alone, whatever ops it takes. An op may stand before
  // one that it reads, where that first ran in a later step: the ops are looked at until nothing changes.
  std::vector<bool> makes(ops.size()), is_constant(ops.size());
  const auto look_at = [&](uint32_t op) {
    const auto inputs = trace.graph().inputs(op);
    const auto outputs = graph.made_by(op);
    const auto any_role = [&](auto&& holds) {
      return std::any_of(outputs.begin(), outputs.end(), [&](uint32_t tensor) { return holds(trace.tensors()[tensor].role); });
    };
    const bool is_source = ops[op].kind == OpKind::source && any_role([](Role role) { return !holds_weights(role); });
    const bool is_buffer = ops[op].kind == OpKind::source && !any_role([](Role role) { return role != Role::buffer; });
    is_constant[op] =
        ops[op].function == OpFunction::fill || is_buffer ||
        (!inputs.empty() && ops[op].inputs_told &&
         std::all_of(inputs.begin(), inputs.end(), [&](const GraphEdge& edge) { return is_constant[edge.producer]; }));
    // A bias that is added is no mask: weights are no such sources.
    return is_source || is_constant[op] || puts_constants(ops[op].function) ||
           (hands_on(ops[op].function) &&
            std::any_of(inputs.begin(), inputs.end(), [&](const GraphEdge& edge) { return makes[edge.producer]; }));
  };
  for (bool changes = true; changes;) {
    changes = false;
    for (uint32_t op = 0; op < ops.size(); ++op) {
      const bool was_constant = is_constant[op], made = makes[op];
      makes[op] = look_at(op);
      changes = changes || makes[op] != made || is_constant[op] != was_constant;
    }
  }
  readers_.resize(trace.tensors().size());
  for (uint32_t i = 0; i < readers_.size(); ++i) {
    const TensorInfo& tensor = trace.tensors()[i];
    if (!makes[tensor.op] || holds_weights(tensor.role)) continue;
    std::set<uint32_t> seen;
    std::vector<GraphEdge> open;
    const auto follow = [&](uint32_t op, uint32_t slot) {
      for (const GraphEdge& use : trace.graph().uses(op))
        if (use.slot == slot && seen.insert(use.consumer).second) open.push_back(use);
    };
    follow(tensor.op, tensor.slot);
    while (!open.empty()) {
      const uint32_t op = open.back().consumer;
      open.pop_back();
      const OpFunction function = ops[op].function;
      if (takes_softmax(function))
        for (const uint32_t output : graph.made_by(op, 0)) readers_[i].push_back(output);
      if (hands_on(function) || puts_constants(function)) follow(op, 0);
    }
  }
}

bool holds_mask(const TensorRow& row) {
  const TensorStatistics& statistics = row.statistics;
  return row.known != StatisticsLevel::none && statistics.nan == 0 &&
         (statistics.positive_infinity > 0) != (statistics.negative_infinity > 0) &&
         !(row.before_rounding && row.rounding_known && row.rounding.infinite() > 0);
}

}  // namespace ulpscope
