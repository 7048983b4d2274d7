#include <fmt/format.h>

#include <cmath>

#include "ulpscope/analyzers/findings/scale_text.h"
#include "ulpscope/analyzers/run_analysis.h"
#include "ulpscope/analyzers/run_facts.h"
#include "ulpscope/analyzers/scale_judgement.h"
#include "ulpscope/base/text.h"

namespace ulpscope::findings {

namespace {

void find_no_step_taken(const RunFacts& facts, Findings& found) {
  if (!facts.scale().no_step_was_taken()) return;
  const StepTotals& steps = facts.steps();
  const bool losses_broke = facts.broke();
  std::string suggestion = losses_broke ? "The losses themselves were NaN or infinite: another scale would not help."
                                        : fmt::format("What made the first NaN or infinity is where to look: `ulpscope ranges {}`.",
                                                      shell_word(facts.context.trace.path()));
  if (!std::isfinite(steps.last.scale_after)) {
    suggestion = "An infinite loss scale makes every gradient infinite or NaN: start with a finite one.";
  } else if (!losses_broke && facts.context.trace.run().dynamic_loss_scale && steps.last.scale_after > 1 &&
             steps.last.scale_after < steps.first.scale_before && steps.changes.back().after < steps.changes.back().before) {
    suggestion = fmt::format("The loss scale was still coming down, from {} to {}: start with a smaller one, or train longer.",
                             scale_text(steps.first.scale_before), scale_text(steps.last.scale_after));
  }
  found.add(Severity::error,
            fmt::format("No step was taken: {} skipped, so the run learned nothing.",
                        steps.count == 1 ? std::string("the only step was") : fmt::format("all {} steps were", steps.count)),
            facts.scale().scaling == LossScaling::scaled ? blame_evidence(facts) : std::vector<Evidence>(), std::move(suggestion));
}

}  // namespace

extern constinit const FindingRule scale_no_step_taken{
    .code = "scale.no_step_taken",
    .part = Part::scale,
    .raised = "Every step was skipped.",
    .meaning = "The run learned nothing.",
    .help = "The findings on NaN and infinity say why.",
    .explains = {"scale.backoffs", "scale.below_100", "scale.below_1000", "updates.none_applied", "run.no_better_than_guessing"},
    .shown_by = "experiments/failures/loss_scale_too_large.toml",
    .find = find_no_step_taken,
};

}  // namespace ulpscope::findings
