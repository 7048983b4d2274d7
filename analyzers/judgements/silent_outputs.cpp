#include "ulpscope/analyzers/judgements/silent_outputs.h"

#include <algorithm>

#include "ulpscope/analyzers/judgements/range_judgement.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/training_loss.h"
#include "ulpscope/trace/op_semantics.h"

namespace ulpscope {

namespace {

// Whether every way from what a batch brings to the loss, its targets apart, leads through these ops.
bool hides_batch(const AnalysisContext& context, const std::vector<uint32_t>& ops) {
  const Snapshot& trace = context.trace;
  std::vector<bool> seen(trace.ops().size());
  for (const uint32_t op : ops) seen[op] = true;
  std::vector<uint32_t> open;
  const auto visit = [&](uint32_t op) {
    if (!seen[op]) open.push_back(op);
    seen[op] = true;
  };
  bool any = false;
  for (const uint32_t op : loss_ops(context)) {
    visit(op);
    any = true;
  }
  while (!open.empty()) {
    const uint32_t op = open.back();
    open.pop_back();
    if (trace.ops()[op].kind == OpKind::source && trace.ops()[op].phase == Phase::data && trace.graph().inputs(op).empty()) {
      for (const TensorInfo& tensor : trace.tensors())
        if (tensor.op == op && tensor.role == Role::input) return false;
    }
    for (const GraphEdge& edge : trace.graph().inputs(op))
      if (trace.graph().is_within_step(edge) && !reads_as(trace.ops()[op].function, edge.input, Meaning::target))
        visit(edge.producer);
  }
  return any;
}

}  // namespace

SilentOutputs::SilentOutputs(const AnalysisContext& context, const RangeJudgement& ranges) {
  constexpr uint64_t kLeastRows = 10;
  std::vector<uint32_t> dead_ops;
  const auto is_silent = [](const TensorRanges& facts) { return facts.zeros.rows >= kLeastRows; };
  for (const auto& [i, facts, unused] : ranges.tensors()) {
    const TensorInfo& tensor = context.selection.tensor(i);
    const OpInfo& op = context.selection.op(i);
    if (tensor.role != Role::activation || op.phase != Phase::forward || !has_trait(op.function, kMayDrop)) continue;
    if (!is_float(tensor.dtype) || tensor.slot != 0 || !is_silent(facts)) continue;
    const std::span<const GraphEdge> inputs = context.trace.graph().inputs(tensor.op);
    if (inputs.empty() || context.graph.read_by(tensor.op, 1) != nullptr) continue;
    const std::span<const uint32_t> read = context.graph.made_by(inputs.front().producer, inputs.front().slot);
    const bool was_fed = std::any_of(read.begin(), read.end(), [&](uint32_t r) {
      const RangeJudgement::Tensor* const input = ranges.find(r);
      return input && input->judged.totals.rows > 0 && !is_silent(input->judged) && ranges.nonfinite(r).rows == 0;
    });
    if (!was_fed) continue;
    const bool drops = op.function == OpFunction::dropout;
    if (drops && !facts.zeros.all) continue;
    (drops ? dropped : dead).push_back(i);
    if (!drops) dead_ops.push_back(tensor.op);
  }
  loss_sees_nothing = !dead.empty() && hides_batch(context, dead_ops);
}

}  // namespace ulpscope
