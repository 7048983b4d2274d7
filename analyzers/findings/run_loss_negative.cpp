#include <algorithm>
#include <cmath>

#include "ulpscope/analyzers/findings/families.h"
#include "ulpscope/analyzers/judgements/loss_ends.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/subject/precision_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/trend.h"

namespace ulpscope::findings {

namespace {

constexpr Template kLossNegative{"run.loss_negative",
                                 "The loss fell below 0, and its median is {median:.4g} in the last {steps} steps: {function} of "
                                 "{arguments} is never below 0."};
constexpr Template kLogProbabilities{"loss.meant_for_log_probabilities", "log-probabilities"};
constexpr Template kProbabilitiesToo{"loss.meant_for_probabilities", "log-probabilities and of targets that are probabilities"};
constexpr Template kTargetsTo1{"loss.meant_for_targets_to_1", "targets from 0 to 1"};
constexpr Template kLogSoftmaxOrCrossEntropy{"advice.log_softmax_or_cross_entropy",
                                             "Put a log_softmax before it, or take a loss that has one inside (cross_entropy)."};
constexpr Template kSoftmaxAndTargets{"advice.log_softmax_and_targets", "Put a log_softmax before it, and look at the targets."};
constexpr Template kBringTargetsTo1{"advice.bring_targets_to_1", "Bring the targets into 0 to 1."};

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
                     kLossNegative({{"median", end},
                                    {"steps", kEndLosses},
                                    {"function", Name{NameKind::function, std::string(name_of(loss.function))}},
                                    {"arguments", loss.meant_for()}}),
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
        "Each of the last ten losses was below 0, and their median by more than a hundredth of the first one, where the loss "
        "function "
        "gives 0 or more for what it is meant for.",
    .meaning = "What went into the loss is not what it is meant for: it falls without an end, or is least where it should not be.",
    .help = "Give `nll` and `kl_div` log-probabilities, and the binary cross entropies targets from 0 to 1.",
    .explains = kOfNonfinite + Codes{"run.diverged", "model.values_grow"},
    .shown_by = "experiments/failures/nll_of_logits.toml",
    .find = find_negative_loss,
};

}  // namespace ulpscope::findings
