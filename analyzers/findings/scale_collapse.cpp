#include <fmt/format.h>

#include "ulpscope/analyzers/findings/scale_text.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/scale_judgement.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/base/text.h"

namespace ulpscope::findings {

namespace {

Advice advice_on_collapse(const RunFacts& facts) {
  if (facts.broke())
    return fmt::format("Another scale would not help: from step {} on the losses themselves were NaN or infinite.",
                       facts.scale().broken_from);
  if (Advice advice = advice_on_floor(facts); !advice.text.empty()) return advice;
  return fmt::format(
      "Gradients that overflow at any scale hold NaN or infinity for another reason: what made the first is "
      "where to look (`ulpscope ranges {}`).",
      shell_word(facts.context.trace.path()));
}

void find_collapse(const RunFacts& facts, Findings& found) {
  if (!facts.scale().collapsed()) return;
  const StepTotals& steps = facts.steps();
  const bool fell = steps.last.scale_after < steps.highest_scale;
  found.add(Severity::error,
            fmt::format("The loss scale collapsed: the last {} in a row were skipped, and it {} {}.",
                        count_of(steps.trailing_skips, "step"), fell ? "fell to" : "stayed at", scale_text(steps.last.scale_after)),
            blame_evidence(facts), advice_on_collapse(facts),
            {.steps = steps.trailing_skips, .value = skipped_steps(steps.trailing_skips)});
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
