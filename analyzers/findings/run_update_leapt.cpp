#include <algorithm>
#include <cmath>

#include "ulpscope/analyzers/findings/families.h"
#include "ulpscope/analyzers/judgements/leap.h"
#include "ulpscope/analyzers/judgements/loss_ends.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/sentence_names.h"
#include "ulpscope/analyzers/subject/trend.h"

namespace ulpscope::findings {

namespace {

constexpr Template kUpdateLeapt{
    "run.update_leapt",
    "One update threw the run: that of step {step} was {ratio:.3g} times as large as {parameter}, and in "
    "the {steps} steps before none was more than {before:.3g} times as large as its weight."};
constexpr Template kFirstOutOfLine{"advice.first_out_of_line",
                                   "The first that was out of line in step {step} is {tensor}: up to {largest:.4g}, and "
                                   "{before:.4g} in the steps before."};
constexpr Template kWrongInThatStep{
    "advice.wrong_in_that_step",
    "Updates that are too long for the learning rate grow over steps; what makes one so is wrong in "
    "that step: a sample, a target, a gradient, or memory."};
constexpr Template kClippingBounds{"advice.clipping_bounds_a_step",
                                   "Clipping the norm of the gradients{norm:brackets} bounds what one step can do."};

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
  Advice advice;
  if (leap->first) {
    RowKey first = facts.selection.key(leap->first->tensor);
    first.step = leap->update.step;
    evidence.push_back({first, {{"largest", leap->first->largest}}});
    extent.tensors.push_back(leap->first->tensor);
    extent.origin = leap->first->tensor;
    advice.text += kFirstOutOfLine({{"step", ordinal(leap->update.step)},
                                    {"tensor", tensor_name(facts.selection, leap->first->tensor)},
                                    {"largest", leap->first->largest},
                                    {"before", leap->first->before}});
  }
  advice.text += kWrongInThatStep();
  advice.text += kClippingBounds({{"norm", advice.set(facts.context.settings.name(SettingKind::clip_norm), "1")}});
  found.add(does_harm(facts) ? Severity::error : Severity::info,
            kUpdateLeapt({{"step", ordinal(leap->update.step)},
                          {"ratio", leap->update.ratio},
                          {"parameter", parameter_name(facts.selection, leap->update.tensor)},
                          {"steps", leap->steps_before},
                          {"before", leap->before}}),
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
