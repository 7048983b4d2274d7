#include <cmath>

#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/sentence_names.h"

namespace ulpscope::findings {

namespace {

constexpr Template kTestLossNan{"run.test_loss_nonfinite.nan",
                                "The test loss was NaN after step {step}, and the loss of that step was not."};
constexpr Template kTestLossInfinite{"run.test_loss_nonfinite.infinite",
                                     "The test loss was infinite after step {step}, and the loss of that step was not."};
constexpr Template kEvaluationReads{"advice.evaluation_reads",
                                    "Evaluation reads what training does not: the test data, and running statistics."};
constexpr Template kRangesOfEvaluation{"advice.ranges_of_evaluation",
                                       "`ulpscope ranges {trace} --phase evaluation` shows what was not finite."};

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
  found.add(Severity::error, (std::isnan(last->value) ? kTestLossNan : kTestLossInfinite)({{"step", ordinal(last->step)}}),
            {{facts.selection.key_of_step(last->step, last->rank), {{last->text, last->value}}}},
            Sentences{kEvaluationReads(), kRangesOfEvaluation({{"trace", path}})}, {{}, last->step});
}

}  // namespace

extern constinit const FindingRule run_test_loss_nonfinite{
    .code = "run.test_loss_nonfinite",
    .part = Part::run,
    .raised = "The last test loss was NaN or infinite, and the training loss was not.",
    .meaning = "The model that was trained cannot be used.",
    .help = "Running statistics of batch_norm that hold NaN, and test data, are where to look.",
    .picture = Picture::nonfinite_flow,
    .explains = {"run.no_better_than_guessing"},
    .shown_by = "experiments/failures/running_statistics_nan.toml",
    .find = find_test_loss_nonfinite,
};

}  // namespace ulpscope::findings
