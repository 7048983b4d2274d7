#include "ulpscope/analyzers/findings/scale_text.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/scale_judgement.h"

namespace ulpscope::findings {

namespace {

constexpr Template kOverflowsFirst{"advice.look_at_first_overflow",
                                   "Some values are far larger than the others: look at the tensor that overflows first, and "
                                   "keep its op in FP32."};

void find_below_100(const RunFacts& facts, Findings& found) {
  const ScaleJudgement& scale = facts.scale();
  if (scale.scaling != LossScaling::scaled || scale.zones[0].steps == 0) return;
  tell_low_zone(facts, 0, kOverflowsFirst(), found);
}

}  // namespace

extern constinit const FindingRule scale_below_100{
    .code = "scale.below_100",
    .part = Part::scale,
    .raised = "The loss scale stood below 100.",
    .meaning = "A few large values keep it low for all gradients, or it began there.",
    .help = "Keep the op that overflows first in FP32.",
    .explains = {"scale.below_1000"},
    .shown_by = "experiments/failures/one_outlier_batch_skipped.toml",
    .find = find_below_100,
};

}  // namespace ulpscope::findings
