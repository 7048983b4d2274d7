#include "ulpscope/analyzers/findings/guessing.h"

#include <algorithm>
#include <cmath>

#include "ulpscope/analyzers/precision_facts.h"
#include "ulpscope/analyzers/run_analysis.h"

namespace ulpscope::findings {

namespace {

// How many classes the op that computes the loss tells apart; 0: that is not known.
double classes_of(const AnalysisContext& context, uint32_t loss) {
  const GraphEdge* const read = context.graph.read_by(loss, 0);
  if (read == nullptr) return 0;
  const std::span<const uint32_t> logits = context.graph.made_by(read->producer, read->slot);
  if (logits.empty() || context.selection.tensor(logits.front()).shape.size() < 2) return 0;
  return static_cast<double>(context.selection.tensor(logits.front()).shape[1]);
}

// Of a target that has `smoothing` of its share spread over all classes alike: no loss of it is less.
double entropy_of_smoothed(double classes, double smoothing) {
  const double other = smoothing / classes, own = 1 - smoothing + other;
  return -(own > 0 ? own * std::log(own) : 0) - (other > 0 ? (classes - 1) * other * std::log(other) : 0);
}

}  // namespace

std::optional<Guessing> guessing_of(const AnalysisContext& context) {
  const std::vector<OpInfo>& ops = context.trace.ops();
  const auto loss = std::find_if(ops.begin(), ops.end(), [](const OpInfo& op) {
    return op.function == OpFunction::cross_entropy && op.phase != Phase::evaluation;
  });
  if (loss == ops.end()) return std::nullopt;
  const auto loss_op = static_cast<uint32_t>(loss - ops.begin());
  Guessing guessing{classes_of(context, loss_op), {}};
  if (!(guessing.classes >= 2)) return std::nullopt;
  const std::span<const GraphEdge> uses = context.trace.graph().uses(loss_op);
  const bool multiplied = std::any_of(
      uses.begin(), uses.end(), [&](const GraphEdge& edge) { return ops[edge.consumer].phase == Phase::loss && edge.slot == 0; });
  if (!multiplied) guessing.loss = std::log(guessing.classes);
  guessing.least = entropy_of_smoothed(guessing.classes, attribute(*loss, "label_smoothing").value_or(0));
  return guessing;
}

}  // namespace ulpscope::findings
