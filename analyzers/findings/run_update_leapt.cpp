#include "ulpscope/analyzers/findings/families.h"
#include "ulpscope/analyzers/judgements/leap.h"
#include "ulpscope/analyzers/judgements/loss_judgement.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/sentence_names.h"
#include "ulpscope/analyzers/subject/tensor_place.h"

namespace ulpscope::findings {

namespace {

constexpr Template kUpdateLeapt{
    "run.update_leapt", "One update is far out of line: at step {step} that of `{parameter}` was {ratio:.4g}x the weight's norm."};
constexpr Template kUpdatesBeforeLeap{"run.update_leapt.before",
                                      "In the {steps} steps before, no update exceeded {before:.4g}x its weight's norm."};
constexpr Template kFirstOutOfLine{"run.update_leapt.first",
                                   "The first tensor out of line is {tensor}: {largest:.4g} at most, against {before:.4g} in the "
                                   "steps before."};
constexpr Template kWrongInThatStep{
    "advice.wrong_in_that_step",
    "Check that step's samples, targets, gradients and memory: too high a learning rate makes updates grow over many steps."};
constexpr Template kClippingBounds{"advice.clipping_bounds_a_step",
                                   "Clip the norm of the gradients{norm:brackets}: that bounds what one step can do."};

void find_leap(const RunFacts& facts, Findings& found) {
  const Leap* const leap = facts.leap();
  if (!leap) return;
  RowKey key = facts.selection.key(leap->update.tensor);
  key.step = leap->update.step;
  std::vector<Evidence> evidence{{key, {{"update_over_weight", leap->update.ratio}}}};
  Extent extent{{leap->update.tensor}, leap->update.step};
  Sentences title{kUpdateLeapt({{"step", ordinal(leap->update.step)},
                                {"ratio", leap->update.ratio},
                                {"parameter", parameter_name(facts.selection, leap->update.tensor)}}),
                  kUpdatesBeforeLeap({{"steps", leap->steps_before}, {"before", leap->before}})};
  if (leap->first) {
    RowKey first = facts.selection.key(leap->first->tensor);
    first.step = leap->update.step;
    evidence.push_back({first, {{"largest", leap->first->largest}}});
    extent.tensors.push_back(leap->first->tensor);
    extent.origin = leap->first->tensor;
    title += kFirstOutOfLine({{"tensor", tensor_place(facts.selection, leap->first->tensor)},
                              {"largest", leap->first->largest},
                              {"before", leap->first->before}});
  }
  Advice advice;
  advice.text += kWrongInThatStep();
  advice.text += kClippingBounds({{"norm", advice.set(facts.context.settings.name(SettingKind::clip_norm), "1")}});
  found.add(ended_no_better(facts) ? Severity::error : Severity::info, std::move(title), std::move(evidence), std::move(advice),
            std::move(extent));
}

}  // namespace

extern constinit const FindingRule run_update_leapt{
    .code = "run.update_leapt",
    .part = Part::run,
    .raised =
        "The first update as large as its weight is more than 100x all updates of the ten or more steps before it, and the losses "
        "had not grown by then. An error where the run ended no better than it began.",
    .meaning = "Something was wrong in one step: a sample, a target, a gradient, or memory.",
    .help = "Check the first tensor that is out of line in that step, and clip the norm of the gradients.",
    .explains = kOfHugeValue + Codes{"model.dead_output", "updates.lost", "range.gradients_flushed", "scale.no_scale_fits"},
    .shown_by = "experiments/failures/gradient_wrong_in_one_step.toml",
    .find = find_leap,
};

}  // namespace ulpscope::findings
