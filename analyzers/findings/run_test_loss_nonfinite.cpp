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
                                      "The test loss is {loss:special} after step {step}{before}, while the training loss is "
                                      "finite{statistic}."};
constexpr Template kBefore{"run.test_loss_nonfinite.before", " (in {nonfinite} of {evaluations} evaluations, first: step {first})"};
constexpr Template kStatisticHeld{"run.test_loss_nonfinite.statistic", ": {place} holds NaN or Inf (first: step {first})"};
constexpr Template kEvaluationReads{"advice.evaluation_reads", "Only evaluation reads the test data and the running statistics."};
constexpr Template kEvaluationReadsData{"advice.evaluation_reads_data", "Only evaluation reads the test data."};
constexpr Template kOtherModel{"advice.other_model_evaluated",
                               "No NaN or Inf was recorded in evaluation: they are in what was not, as a copy of the model and its "
                               "weights, or in how the loss is computed."};
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

// Says what evaluation reads and training does not, and where its values can be seen.
Advice advice_on_evaluation(const RunFacts& facts) {
  const Selection& selection = facts.selection;
  bool has_statistics = false, was_recorded = false;
  for (uint32_t i = 0; i < selection.size(); ++i) {
    has_statistics = has_statistics || is_running_statistic(selection.tensor(i), selection.op(i));
    was_recorded = was_recorded || (selection.op(i).phase == Phase::evaluation && facts.ranges().find(i) != nullptr &&
                                    facts.ranges().nonfinite(i).rows > 0);
  }
  Sentences advice{has_statistics ? kEvaluationReads() : kEvaluationReadsData()};
  if (was_recorded)
    advice += kRangesOfEvaluation({{"trace", trace_name(facts.context.trace)}});
  else if (!facts.ranges().is_filtered())
    advice += kOtherModel();
  return advice;
}

void find_test_loss_nonfinite(const RunFacts& facts, Findings& found) {
  const Snapshot& trace = facts.context.trace;
  const EventRow* last = nullptr;
  uint64_t evaluations = 0, nonfinite = 0, first = 0;
  for (const EventRow& event : trace.events()) {
    if (event.metric != MetricKind::evaluation_loss || !facts.context.options.asks_for(event.step)) continue;
    if (last != nullptr && event.rank != last->rank) {
      if (!std::isfinite(last->value)) break;  // the last one of that rank
      evaluations = nonfinite = 0;
    }
    last = &event;
    ++evaluations;
    if (std::isfinite(event.value)) continue;
    if (nonfinite == 0) first = event.step;
    ++nonfinite;
  }
  if (last == nullptr || std::isfinite(last->value) || facts.steps().nonfinite_losses.contains(last->step)) return;
  Sentence before;
  if (nonfinite > 1) before = kBefore({{"nonfinite", nonfinite}, {"evaluations", evaluations}, {"first", ordinal(first)}});
  found.add(Severity::error,
            kTestLossNonfinite({{"loss", last->value},
                                {"step", ordinal(last->step)},
                                {"before", before},
                                {"statistic", nonfinite_statistic(facts, last->step)}}),
            {{facts.selection.key_of_step(last->step, last->rank), {{last->text, last->value}}}}, advice_on_evaluation(facts),
            {{}, last->step});
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
