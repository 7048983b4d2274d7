#include <cmath>

#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/judgements/range_judgement.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/subject/output_slots.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/sentence_names.h"
#include "ulpscope/analyzers/subject/tensor_place.h"

namespace ulpscope::findings {

namespace {

constexpr Template kTestLossNonfinite{"run.test_loss_nonfinite",
                                      "The test loss is {loss:special} after step {step}, while the training loss is "
                                      "finite{statistic}."};
constexpr Template kStatisticHeld{"run.test_loss_nonfinite.statistic", ": {place} holds NaN or Inf (first: step {first})"};
constexpr Template kEvaluationReads{"advice.evaluation_reads", "Only evaluation reads the test data and the running statistics."};
constexpr Template kRangesOfEvaluation{"advice.ranges_of_evaluation",
                                       "`ulpscope ranges {trace} --phase evaluation` shows which tensors hold NaN or Inf."};

// A running statistic that held NaN or Inf after that step; nothing where none did, or none was recorded.
Sentence nonfinite_statistic(const RunFacts& facts, uint64_t step) {
  for (uint32_t i = 0; i < facts.selection.size(); ++i) {
    if (!is_running_statistic(facts.selection.tensor(i), facts.selection.op(i)) || facts.ranges().find(i) == nullptr) continue;
    const StepSet held = facts.ranges().nonfinite(i).steps;
    if (held.contains(step)) return kStatisticHeld({{"place", tensor_place(facts.selection, i)}, {"first", ordinal(held.first())}});
  }
  return {};
}

void find_test_loss_nonfinite(const RunFacts& facts, Findings& found) {
  const Snapshot& trace = facts.context.trace;
  const EventRow* last = nullptr;
  for (const EventRow& event : trace.events()) {
    if (event.metric != MetricKind::evaluation_loss || !facts.context.options.asks_for(event.step)) continue;
    if (last != nullptr && event.rank != last->rank && !std::isfinite(last->value)) break;  // the last one of that rank
    last = &event;
  }
  if (last == nullptr || std::isfinite(last->value) || facts.steps().nonfinite_losses.contains(last->step)) return;
  const Name path = trace_name(trace);
  found.add(Severity::error,
            kTestLossNonfinite(
                {{"loss", last->value}, {"step", ordinal(last->step)}, {"statistic", nonfinite_statistic(facts, last->step)}}),
            {{facts.selection.key_of_step(last->step, last->rank), {{last->text, last->value}}}},
            Sentences{kEvaluationReads(), kRangesOfEvaluation({{"trace", path}})}, {{}, last->step});
}

}  // namespace

extern constinit const FindingRule run_test_loss_nonfinite{
    .code = "run.test_loss_nonfinite",
    .part = Part::run,
    .raised = "The last test loss is NaN or Inf, and the training loss is not.",
    .meaning = "The trained model cannot be used.",
    .help = "Check the test data, and the running statistics of batch_norm for NaN.",
    .picture = Picture::nonfinite_flow,
    .explains = {"run.no_better_than_guessing"},
    .shown_by = "experiments/failures/running_statistics_nan.toml",
    .find = find_test_loss_nonfinite,
};

}  // namespace ulpscope::findings
