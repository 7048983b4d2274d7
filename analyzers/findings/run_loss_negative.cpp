#include <algorithm>
#include <cmath>

#include "ulpscope/analyzers/findings/families.h"
#include "ulpscope/analyzers/judgements/loss_ends.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/subject/precision_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/trend.h"
#include "ulpscope/trace/op_semantics.h"

namespace ulpscope::findings {

namespace {

constexpr Template kLossNegative{"run.loss_negative",
                                 "The loss is negative: its median over the last {steps} steps is {median:.4g}."};
constexpr Template kNeverNegative{"run.loss_negative.bound", "`{function}` of {arguments} is never below 0."};
constexpr Template kLogProbabilities{"loss.meant_for_log_probabilities", "log-probabilities"};
constexpr Template kProbabilitiesToo{"loss.meant_for_probabilities", "log-probabilities, with probabilities as targets,"};
constexpr Template kTargetsTo1{"loss.meant_for_targets_to_1", "targets from 0 to 1"};
constexpr Template kLogSoftmaxOrCrossEntropy{"advice.log_softmax_or_cross_entropy",
                                             "Put `log_softmax` before it, or use a loss that includes it (`cross_entropy`)."};
constexpr Template kSoftmaxAndTargets{"advice.log_softmax_and_targets",
                                      "Put `log_softmax` before it, and check that the targets are probabilities."};
constexpr Template kBringTargetsTo1{"advice.bring_targets_to_1", "Bring the targets into the range 0 to 1."};

// A loss that is 0 at least of what it is meant for.
struct BoundedLoss {
  OpFunction function;
  const Template& meant_for;
  const Template& advice;
};
constexpr BoundedLoss kBoundedLosses[] = {
    {OpFunction::nll, kLogProbabilities, kLogSoftmaxOrCrossEntropy},
    {OpFunction::kl_div, kProbabilitiesToo, kSoftmaxAndTargets},
    {OpFunction::bce_with_logits, kTargetsTo1, kBringTargetsTo1},
    {OpFunction::binary_cross_entropy, kTargetsTo1, kBringTargetsTo1},
};

void find_negative_loss(const RunFacts& facts, Findings& found) {
  // Of the first loss: what rounding takes from one that came down to 0 is less.
  constexpr double kRounding = 0.01;
  const AnalysisContext& context = facts.context;
  const StepTotals& steps = facts.judged_steps();
  const std::vector<double> last = last_losses(steps);
  if (last.size() < kEndLosses || !steps.first.loss_known) return;
  const double most = *std::max_element(last.begin(), last.end()), end = median(last);
  if (!(most < 0) || !std::isfinite(end) || !(end < -kRounding * std::abs(steps.first.loss))) return;
  const std::vector<OpInfo>& ops = context.trace.ops();
  for (const BoundedLoss& loss : kBoundedLosses) {
    const auto op = std::find_if(ops.begin(), ops.end(), [&](const OpInfo& other) {
      return other.function == loss.function && other.phase != Phase::evaluation;
    });
    if (op == ops.end()) continue;
    const auto number = static_cast<uint32_t>(op - ops.begin());
    const std::span<const GraphEdge> uses = context.trace.graph().uses(number);
    if (std::any_of(uses.begin(), uses.end(),
                    [&](const GraphEdge& edge) { return attribute(ops[edge.consumer], "factor").value_or(1) < 0; }))
      return;
    const std::span<const uint32_t> made = context.graph.made_by(number);
    found.add_judged(Severity::error,
                     {kLossNegative({{"median", end}, {"steps", kEndLosses}}),
                      kNeverNegative({{"function", Name{NameKind::function, std::string(name_of(loss.function))}},
                                      {"arguments", loss.meant_for()}})},
                     {{key_of_step(context.trace, steps.first.step), {{"first_loss", steps.first.loss}}},
                      {key_of_step(context.trace, steps.last.step), {{"median_loss", end}}}},
                     loss.advice(), {{made.begin(), made.end()}, steps.first.step});
    return;
  }
}

}  // namespace

extern constinit const FindingRule run_loss_negative{
    .code = "run.loss_negative",
    .part = Part::run,
    .raised =
        "Each of the last ten losses is below 0, and their median by more than a hundredth of the first loss, though the loss "
        "function is never negative for proper arguments.",
    .meaning = "The arguments of the loss are not the ones that it needs: it falls without bound, or its minimum is no solution.",
    .help = "Give `nll` and `kl_div` log-probabilities, and the binary cross entropies targets from 0 to 1.",
    .explains = kOfNonfinite + Codes{"run.diverged", "model.values_grow"},
    .shown_by = "experiments/failures/nll_of_logits.toml",
    .find = find_negative_loss,
};

}  // namespace ulpscope::findings
