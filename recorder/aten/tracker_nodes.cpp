#include <algorithm>
#include <string_view>
#include <utility>

#include "ulpscope/recorder/aten/tracker.h"

namespace ulpscope::aten {

// ---- which node of autograd's graph stands for which op

namespace {

// Views whose gradients are computed: they are ops of their own to their backward ops.
constexpr std::string_view kViewsWithGradients[] = {"expand", "select", "slice", "as_strided", "unfold", "diagonal"};

// Whether autograd makes a node of an op that reads these.
bool makes_node(const ulpscope_aten_op& op, const Bound& bound) {
  bool grows = false;
  for (size_t i = 0; i < bound.arguments.size(); ++i)
    bound.visit(i, [&](const Tensor& tensor) { grows = grows || tensor.requires_grad != 0; });
  return op.grad_enabled && grows;
}

}  // namespace

void Tracker::view(const Schema& schema, const ulpscope_aten_op& op, std::span<const Tensor* const> reads) {
  if (!state_.is_open || !makes_node(op, bound_of(op, schema))) return;
  const MadePointer made = makers_of(*reads[0], op.task).last;
  if (!is_recorded(made)) return;
  Node node{made->value.op, made->module, made->value, made->role == Role::weight || made->role == Role::weight_cast, {0}, false};
  const std::vector<Entry>& entries = stack();
  if (contains(kViewsWithGradients, schema.base()) && op.task == -1 && !entries.empty()) {
    node.module = entries.back().name;
    ulpscope_call call{};
    call.size = sizeof call;
    call.name = told(name(schema.base()));
    call.module = told(node.module);
    call.phase = static_cast<int32_t>(Phase::forward);
    call.function = call.kind = -1;
    call.inputs = &made->value;
    call.inputs_count = 1;
    ulpscope_op token = 0;
    if (check(calls_.begin_op(recorder_, &call, &token, &node.op))) check(calls_.drop_op(recorder_, token));
  }
  nodes_.add(op.made_node, std::move(node));
}

void Tracker::map_node(const Schema& schema, const ulpscope_aten_op& op, const Row& row, const Made& made, Name module) {
  const bool is_node = makes_node(op, row.bound);
  if (!is_node && op.grad_enabled) return;
  Node node{made.value.op, module, {}, made.role == Role::weight_cast, {}, false};
  node.inputs.reserve(row.reads.size());
  for (size_t i = 0; i < schema.parameters().size(); ++i) {
    if (!schema.parameters()[i].is_tensor) continue;
    if (row.bound.arguments[i].kind == ULPSCOPE_ATEN_NOTHING) node.inputs.push_back(-1);
    size_t index = 0;
    row.bound.visit(i, [&](const Tensor& tensor) {
      const size_t wanted = index++;
      if (!has_statistics(tensor)) return;
      size_t seen = 0;
      int32_t number = -1;
      for (const Read& read : row.reads)
        if (read.argument == i && seen++ == wanted) number = static_cast<int32_t>(read.number);
      node.inputs.push_back(number);
    });
  }
  node.wrote_view = std::any_of(row.outputs.begin(), row.outputs.end(),
                                [](const Output& each) { return each.is_written && each.tensor->is_view; });
  if (is_node)
    nodes_.add(op.made_node, std::move(node));
  else
    nodes_.add_custom(op.made_node, std::move(node));
}

}  // namespace ulpscope::aten
