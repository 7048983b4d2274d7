#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ulpscope/analyzers/findings/families.h"
#include "ulpscope/analyzers/judgements/leap.h"
#include "ulpscope/analyzers/judgements/loss_ends.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/trend.h"

namespace ulpscope::findings {

namespace {

// The run ended no better than it began, or with losses that are no numbers.
bool does_harm(const RunFacts& facts) {
  const StepTotals& steps = facts.judged_steps();
  const std::vector<double> ends = last_losses(steps);
  return facts.broke() || ends.empty() || !(median(ends) < steps.first.loss);
}

void find_leap(const RunFacts& facts, Findings& found) {
  const Leap* const leap = facts.leap();
  if (!leap) return;
  RowKey key = facts.selection.key(leap->update.tensor);
  key.step = leap->update.step;
  std::vector<Evidence> evidence{{key, {{"update_over_weight", leap->update.ratio}}}};
  Extent extent{{leap->update.tensor}, leap->update.step};
  std::string where;
  if (leap->first) {
    RowKey first = facts.selection.key(leap->first->tensor);
    first.step = leap->update.step;
    evidence.push_back({first, {{"largest", leap->first->largest}}});
    extent.tensors.push_back(leap->first->tensor);
    extent.origin = leap->first->tensor;
    where = fmt::format("The first that was out of line in step {} is {}: up to {:.4g}, and {:.4g} in the steps before. ",
                        leap->update.step, facts.selection.name(leap->first->tensor), leap->first->largest, leap->first->before);
  }
  Advice advice;
  advice.text =
      where +
      "Updates that are too long for the learning rate grow over steps; what makes one so is wrong in that step: a sample, a "
      "target, a gradient, or memory. Clipping the norm of the gradients" +
      in_brackets({advice.set(facts.context.settings.name(SettingKind::clip_norm), "1")}) + " bounds what one step can do.";
  found.add(does_harm(facts) ? Severity::error : Severity::info,
            fmt::format("One update threw the run: that of step {} was {:.3g} times as large as {}, and in the {} steps before "
                        "none was more than {:.3g} times as large as its weight.",
                        leap->update.step, leap->update.ratio, facts.selection.parameter_name(leap->update.tensor),
                        leap->steps_before, leap->before),
            std::move(evidence), std::move(advice), std::move(extent));
}

}  // namespace

extern constinit const FindingRule run_update_leapt{
    .code = "run.update_leapt",
    .part = Part::run,
    .raised =
        "The first update that was as large as its weight was a hundred times as large as all of ten steps or more before it, "
        "while "
        "losses had not grown: an error where the run ended no better than it began.",
    .meaning = "One step threw the run: a sample, a target or a gradient was wrong in it, or memory changed.",
    .help = "Look at what was out of line first in that step, and clip the norm of the gradients.",
    .explains = kOfHugeValue + Codes{"model.dead_output", "updates.lost", "range.gradients_flushed", "scale.no_scale_fits"},
    .shown_by = "experiments/failures/gradient_wrong_in_one_step.toml",
    .find = find_leap,
};

}  // namespace ulpscope::findings
