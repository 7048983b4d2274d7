#include <fmt/format.h>

#include "ulpscope/analyzers/findings/scale_text.h"
#include "ulpscope/analyzers/run_analysis.h"
#include "ulpscope/analyzers/run_facts.h"
#include "ulpscope/analyzers/scale_judgement.h"
#include "ulpscope/base/text.h"

namespace ulpscope::findings {

namespace {

void find_collapse(const RunFacts& facts, Findings& found) {
  if (!facts.scale().collapsed()) return;
  found.add(
      Severity::error,
      fmt::format("The loss scale collapsed: the last {} in a row were skipped, and it fell to {}.",
                  count_of(facts.steps().trailing_skips, "step"), scale_text(facts.steps().last.scale_after)),
      blame_evidence(facts),
      facts.broke()
          ? fmt::format("Another scale would not help: from step {} on the losses themselves were NaN or infinite.",
                        facts.scale().broken_from)
          : fmt::format("Gradients that overflow at any scale hold NaN or infinity for another reason: what made the first is "
                        "where to look (`ulpscope ranges {}`).",
                        shell_word(facts.context.trace.path())));
}

}  // namespace

extern constinit const FindingRule scale_collapse{
    .code = "scale.collapse",
    .part = Part::scale,
    .raised = "The scaler skipped steps to the end of the run, ten or more in a row.",
    .meaning = "Training has stopped.",
    .help = "The findings on NaN and infinity say where they come from.",
    .explains = {"scale.no_step_taken", "scale.backoffs", "scale.below_100", "scale.below_1000", "scale.thrashing",
                 "scale.under_scaled", "range.gradients_flushed"},
    .shown_by = "experiments/failures/activations_overflow_fp16.toml",
    .find = find_collapse,
};

}  // namespace ulpscope::findings
