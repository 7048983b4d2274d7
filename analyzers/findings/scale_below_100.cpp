#include "ulpscope/analyzers/findings/scale_text.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/scale_judgement.h"

namespace ulpscope::findings {

namespace {

constexpr Template kKeepFirstInFp32{"advice.keep_first_overflow_in_fp32",
                                    "Keep the op that overflows first in FP32, or make its values smaller."};

void find_below_100(const RunFacts& facts, Findings& found) {
  const ScaleJudgement& scale = facts.scale();
  if (scale.scaling != LossScaling::scaled || scale.zones[0].steps == 0) return;
  tell_low_zone(facts, 0, kKeepFirstInFp32(), found);
}

}  // namespace

extern constinit const FindingRule scale_below_100{
    .code = "scale.below_100",
    .part = Part::scale,
    .raised = "The loss scale was below 100.",
    .meaning = "A few large values keep the loss scale low for all gradients, or it started there.",
    .help = "Keep the op that overflows first in FP32.",
    .explains = {"scale.below_1000"},
    .shown_by = "experiments/failures/one_outlier_batch_skipped.toml",
    .find = find_below_100,
};

}  // namespace ulpscope::findings
