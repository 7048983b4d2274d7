#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/loss_ends.h"
#include "ulpscope/analyzers/precision_facts.h"
#include "ulpscope/analyzers/run_analysis.h"
#include "ulpscope/analyzers/run_facts.h"

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

// What guessing gives: of C classes one C-th of the test set, and a loss of log(C) where it is not multiplied or smoothed.
void find_guessing(const RunFacts& facts, Findings& found) {
  constexpr size_t kLeastSteps = 30;
  constexpr double kBetter =
      0.01;  // a small test set is that far from guessing by chance, but among many classes not by as much again
  const AnalysisContext& context = facts.context;
  if (context.options.restricts_steps()) return;  // a beginning is no result
  const StepTotals& steps = facts.judged_steps();
  const std::vector<OpInfo>& ops = context.trace.ops();
  const auto loss = std::find_if(ops.begin(), ops.end(), [](const OpInfo& op) {
    return op.function == OpFunction::cross_entropy && op.phase != Phase::evaluation;
  });
  if (loss == ops.end() || steps.count < kLeastSteps || steps.last_losses.size() < kEndLosses) return;
  const auto loss_op = static_cast<uint32_t>(loss - ops.begin());
  const double classes = classes_of(context, loss_op);
  if (!(classes >= 2)) return;
  constexpr const char* kAdvice =
      "Where nothing else was found, look at the learning rate and its schedule, and at the range of the inputs: features far from "
      "1 saturate a model.";
  std::optional<double> accuracy;
  for (const EventRow& event : context.trace.events())
    if (event.kind == EventKind::metric && event.text == "test_accuracy") accuracy = event.value;
  const RowKey last_step = key_of_step(context.trace, steps.last.step);
  if (accuracy) {
    if (*accuracy > 1 / classes + std::min(kBetter, 1 / classes)) return;
    found.add(
        Severity::error,
        fmt::format(
            "The run learned nothing that helps: it has {:.3g}% of the test set right, and guessing among {} classes {:.3g}%.",
            100 * *accuracy, classes, 100 / classes),
        {{last_step, {{"test_accuracy", *accuracy, Unit::share}, {"of_guessing", 1 / classes, Unit::share}}}}, kAdvice);
    return;
  }
  // A factor or smoothing makes another loss of it.
  const std::span<const GraphEdge> uses = context.trace.graph().uses(loss_op);
  const bool multiplied = std::any_of(
      uses.begin(), uses.end(), [&](const GraphEdge& edge) { return ops[edge.consumer].phase == Phase::loss && edge.slot == 0; });
  if (multiplied || attribute(*loss, "label_smoothing").value_or(0) > 0) return;
  const std::vector<double> last = last_losses(steps);
  const double guess = std::log(classes), least = *std::min_element(last.begin(), last.end());
  // Batches differ: of ten losses that guessing gives, the least is below their mean, and half of them are.
  if (!(least >= 0.9 * guess) || !(median(last) >= 0.99 * guess)) return;
  found.add(Severity::error,
            fmt::format("The run learned nothing that helps: each of its last {} losses is {:.4g} or more, and guessing all {} "
                        "classes alike gives log({}) = {:.4g}.",
                        kEndLosses, least, classes, classes, guess),
            {{last_step, {{"least_loss", least}, {"loss_of_guessing", guess}}}}, kAdvice);
}

}  // namespace

extern constinit const FindingRule run_no_better_than_guessing{
    .code = "run.no_better_than_guessing",
    .part = Part::run,
    .raised = "The loss of a classifier ended where guessing all classes alike is, or above.",
    .meaning = "The run learned nothing that helps.",
    .help = "Look at what else was found; a learning rate too low or too high does this too.",
    .shown_by = "experiments/failures/logits_saturate.toml",
    .find = find_guessing,
};

}  // namespace ulpscope::findings
