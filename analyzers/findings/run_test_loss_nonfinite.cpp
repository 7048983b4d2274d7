#include <fmt/format.h>

#include <cmath>

#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/base/text.h"

namespace ulpscope::findings {

namespace {

void find_test_loss_nonfinite(const RunFacts& facts, Findings& found) {
  const Snapshot& trace = facts.context.trace;
  const EventRow* last = nullptr;
  for (const EventRow& event : trace.events()) {
    if (event.kind != EventKind::metric || event.text != "test_loss" || !facts.context.options.asks_for(event.step)) continue;
    if (last != nullptr && event.rank != last->rank && !std::isfinite(last->value)) break;  // the last one of that rank
    last = &event;
  }
  if (last == nullptr || std::isfinite(last->value) || facts.steps().nonfinite_losses.contains(last->step)) return;
  found.add(
      Severity::error,
      fmt::format("The test loss was {} after step {}, and the loss of that step was not.",
                  std::isnan(last->value) ? "NaN" : "infinite", last->step),
      {{facts.selection.key_of_step(last->step, last->rank), {{"test_loss", last->value}}}},
      fmt::format("Evaluation reads what training does not: the test data, and running statistics. `ulpscope ranges {} --phase "
                  "evaluation` shows what was not finite.",
                  shell_word(trace.path())),
      {{}, last->step});
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
